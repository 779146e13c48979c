"""The atlas of a run: every intervention on every head and band, exactly or on as few examples as needed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import torch

from spectrope.attention import additive_mask
from spectrope.core import Configured, UnsupportedError, Watch, inference, require, unwatched
from spectrope.encodings import Encoding, Form, most_bands
from spectrope.lab.ablation.adaptive import sampled
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.methods import EXAMPLES, TablesByName, TrainedSubject
from spectrope.lab.ablation.passes import Piece, intact_sites
from spectrope.lab.atlas.attended import AttendedHead, attended_heads
from spectrope.lab.atlas.cells import AtlasSettings, Cell, call_of, cell_columns, cells_of
from spectrope.lab.evaluation.score import IGNORED, counted_labels
from spectrope.lab.sizes import size_mark
from spectrope.models import Decoder
from spectrope.stats import Discordance, Threshold, difference_intervals
from spectrope.store import Run
from spectrope.tasks import Batch

ATLAS, ATLAS_HEADS = "atlas", "atlas-heads"
LOOKED = 64  # Examples on which patterns are described.


@dataclass(frozen=True, kw_only=True)
class RunAtlas(Configured):
    """How the atlas of a run is measured."""

    settings: AtlasSettings = field(default_factory=AtlasSettings)
    examples: int = EXAMPLES  # Held-out examples, most of them where sampling is adaptive.
    adaptive: bool = False  # Whether each cell is sampled until it is called.

    def __post_init__(self) -> None:
        require(self.examples >= 4, self, "examples", "at least 4")

    @property
    def mark(self) -> str:
        """Suffix of the names of the tables: what differs from the default atlas."""
        settings, usual = self.settings, AtlasSettings()
        marks = "" if settings.bands == usual.bands else f"-{settings.bands}-bands"
        marks += "" if settings.threshold == usual.threshold else f"-above-{settings.threshold:.10g}"
        marks += "-adaptive" if self.adaptive else ""
        return marks if self.examples == EXAMPLES else marks + size_mark(self.examples)


def atlas_run(
    run: Run, device: torch.device, how: RunAtlas | None = None, watch: Watch = unwatched
) -> TablesByName:
    """Measure the atlas of a finished run, and store its tables, "atlas" and "atlas-heads", with it.

    Their names also contain the number of bands, the threshold, the method and the number of examples, as far
    as these differ from the defaults.

    Args:
        run: A finished run.
        device: Device to compute on.
        how: Bands, threshold, examples and method (default: `RunAtlas()`).
        watch: Progress callback.

    Raises:
        ConfigError: If there are more bands than a head has frequencies.
        UnsupportedError: If the encoding has no frequency bands.
    """
    with run.lock():
        tables = atlas_tables(TrainedSubject.of(run, device, watch), how or RunAtlas())
        for name, table in tables.items():
            run.write_frame(name, table)
    return tables


def atlas_tables(subject: TrainedSubject, how: RunAtlas) -> TablesByName:
    """The cells and the heads of an atlas, by the names of the stored tables."""
    model, settings = subject.model, how.settings
    settings.require_at_most(run_frequencies(model))
    data = subject.held_out[: how.examples]
    data = data[counted_labels(model, data.labels) != IGNORED]
    config = model.config
    heads = [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
    cells = cells_of(heads, settings.bands)
    measure = _sampled_drops if how.adaptive else _exact_drops
    drops = measure(subject, data, cells, settings)
    calls = [call_of(low, high, settings.threshold) for low, high in drops.select("low", "high").iter_rows()]
    table = pl.concat([cell_columns(cells), drops], how="horizontal").with_columns(call=pl.Series(calls))
    mark = how.mark
    return {ATLAS + mark: table, ATLAS_HEADS + mark: pl.DataFrame(patterns_of(subject, data[:LOOKED]))}


def run_frequencies(model: Decoder) -> int:
    """The fewest frequencies that any head has: its rotating pairs, or the waves of its lag kernel.

    Raises:
        UnsupportedError: If an encoding has no frequency bands.
    """
    config = model.config
    encodings = [model.encoding_of(layer) for layer in range(config.n_layers)]
    for encoding in encodings:
        require_bands(encoding)
    width = config.attention.encoded_dim(config.head_dim)
    return min(most_bands(encoding, width, config.max_length) for encoding in encodings)


def require_bands(encoding: Encoding) -> None:
    """Refuse encodings whose positions are neither a rotation nor a bias of the lag.

    Raises:
        UnsupportedError: If an encoding acts through the input, or its logits do not factor.
    """
    embeds = type(encoding).embed is not Encoding.embed
    if embeds and not encoding.turns and encoding.form is Form.DOT:
        raise UnsupportedError(
            f"{type(encoding).__name__} adds positions to the input, where heads share them; an atlas needs "
            "rotations or biases of the lag, which each head has to itself."
        )


def _exact_drops(
    subject: TrainedSubject, data: Batch, cells: list[Cell], settings: AtlasSettings
) -> pl.DataFrame:
    """Drops on all examples, with paired intervals over examples."""
    variants = [(), *(cell.variant for cell in cells)]
    hits = correctness(
        subject.model, data, variants, dtype=subject.dtype, seed=subject.seed, watch=subject.watch
    ).numpy()
    found = difference_intervals(Discordance.of(hits[0], hits[1:])).scaled(100)
    n = np.full(len(cells), hits.shape[1])
    return pl.DataFrame({"drop": found.estimate, "low": found.low, "high": found.high, "n": n})


def _sampled_drops(
    subject: TrainedSubject, data: Batch, cells: list[Cell], settings: AtlasSettings
) -> pl.DataFrame:
    """Drops on as many examples as each call takes; the intervals hold for all cells at once."""
    ledger = sampled(
        subject.model,
        data,
        [cell.variant for cell in cells],
        Threshold(settings.threshold / 100),
        alpha=0.05 / len(cells),
        dtype=subject.dtype,
        seed=subject.seed,
        watch=subject.watch,
    )
    return pl.DataFrame(
        {
            "drop": 100 * ledger.differences.sum(1, dtype=np.int64) / ledger.used,
            "low": 100 * ledger.low,
            "high": 100 * ledger.high,
            "n": ledger.used,
        }
    )


def patterns_of(subject: TrainedSubject, data: Batch) -> list[AttendedHead]:
    """Where the heads of all layers attend, on some examples."""
    return list(_patterns(subject.model, data, subject.dtype))


def _patterns(model: Decoder, data: Batch, dtype: torch.dtype) -> Iterator[AttendedHead]:
    device = next(model.parameters()).device
    with inference(device, dtype):
        piece = Piece.of(model, data.to(device))
        for layer, site in enumerate(intact_sites(piece)):
            logits = site.encoding.logits(site.ctx.on_axes(site.encoding.axes))
            mask = additive_mask(site.ctx, site.heads.causal)
            pattern = (logits if mask is None else logits + mask.to(logits.dtype)).float().softmax(-1)
            yield from attended_heads(layer, pattern.cpu(), data.inputs, piece.stream.real.cpu())
