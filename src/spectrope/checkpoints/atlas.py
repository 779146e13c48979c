"""Causal atlas of a checkpoint: every intervention on every head and frequency band."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from torch import nn

from spectrope.checkpoints.ablation.rotary import RotatedHeads, SiteMeans, rotary_name
from spectrope.checkpoints.ablation.screening import first_order_effects
from spectrope.checkpoints.ablation.show import Content, contents
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores, rotary_means
from spectrope.checkpoints.adapters import Tokenizer, evaluating, runs_at
from spectrope.checkpoints.extension.rotations import rotations_of
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import ConfigError, Progress, UnsupportedError, Watch, numpy_stream, unwatched
from spectrope.encodings import Band
from spectrope.lab import (
    UNMEASURED,
    AtlasSettings,
    AttendedHead,
    Cell,
    Ledger,
    Variant,
    attended_heads,
    call_of,
    cell_columns,
    cells_of,
    looks,
)
from spectrope.stats import Threshold, mean_intervals

AtlasMethod = Literal["exact", "adaptive", "screened"]
FIRST_LOOK = 8  # Sequences before the first look of an adaptive atlas.
BLOCK = 1 / 20  # Share of the cells that a screened atlas measures before it looks.
CONTROLS = 59  # Cells that it then draws at random.
MISSED = 0.05  # Probability that more of the cells left out cost than an atlas says.


@dataclass(frozen=True)
class Controls:
    """Cells of a screened atlas that were drawn at random from the unlikely ones, none of which costs.

    Args:
        n: How many.
        left: Unlikely cells that were not measured.
        draws: How often cells were drawn until none of them cost.
    """

    n: int
    left: int
    draws: int

    def most(self) -> int:
        r"""Most of the cells left that cost, with 95 % confidence over the draws.

        The largest D for which :math:`\binom{N-D}{n} / \binom Nn > \alpha 2^{-k}`, with N unlikely cells
        before the k-th draw, :math:`\alpha = 0.05`. Sums over k are at most alpha, so that draws may be
        repeated.
        """
        pool, level = self.n + self.left, MISSED / 2**self.draws
        every = math.comb(pool, self.n)
        return next(d for d in range(self.left + 1) if math.comb(pool - d - 1, self.n) <= level * every)


@dataclass(frozen=True, eq=False)
class CheckpointAtlas:
    """The cells and heads of a checkpoint's atlas.

    Args:
        cells: A row per cell, with the drop of accuracy in points and the increase of the loss in nats, each
            the mean over sequences.
        heads: A row per head: where it attends.
        bands: Name of each band, highest frequencies first.
        loss: Of the intact model, in nats per scored token.
        accuracy: Of the intact model, as a fraction.
        sequences: How many sequences there are.
        length: Most tokens of a sequence.
        passes: Pairs of a cell and a sequence that were computed.
        controls: Of a screened atlas that left cells out.
    """

    cells: pl.DataFrame
    heads: pl.DataFrame
    bands: tuple[str, ...]
    loss: float
    accuracy: float
    sequences: int
    length: int
    passes: int
    controls: Controls | None = None


def atlas_checkpoint(
    model: nn.Module,
    on: Content,
    *,
    tokenizer: Tokenizer | None = None,
    examples: int = 32,
    length: int = 64,
    layers: slice = slice(None),
    settings: AtlasSettings | None = None,
    method: AtlasMethod = "exact",
    batch: int | None = None,
    watch: Watch = unwatched,
) -> CheckpointAtlas:
    """Measure the atlas of a language model with rotary positions.

    Args:
        model: A Hugging Face model in which one module turns all layers, such as a Llama.
        on: A task, texts or token ids; see `ablate_model`.
        tokenizer: The model's, for texts.
        examples: Sequences of a task, and most of texts.
        length: Tokens of each.
        layers: Layers whose heads to change.
        settings: Bands and threshold.
        method: "exact" measures every cell on all sequences; "adaptive" samples sequences until each cell is
            called; "screened" measures cells on all sequences in the order of their first-order effects until
            none of a block costs, and then a random sample of the others as a control.
        batch: Number of sequences per batch, including changed copies; None chooses a batch that fills the
            device.
        watch: Called with the cells done.

    Raises:
        ConfigError: If there are fewer than two sequences, or no such layer.
        UnsupportedError: If it is no language model with rotary positions, or its loss is not finite.
    """
    settings = settings or AtlasSettings()
    subject, data = CheckpointSubject.of(model), contents(model, on, tokenizer, examples, length)
    if len(data) < 2:
        raise ConfigError(f"intervals over sequences need at least 2 of them; got {len(data)}.")
    heads = [
        (place, head) for place in subject.of_layers(layers) for head in range(subject.sites[place].n_heads)
    ]
    if not heads:
        raise ConfigError(f"layers must take at least one of 0 to {len(subject.sites) - 1}; got none.")
    cells = cells_of(heads, settings.bands)
    tokens = None if batch is None else batch * data.width
    with evaluating(model), runs_at(data.width, model):
        means, attended = _described(subject, data, tokens, {place for place, _ in heads})
    measure = _Measure(subject, data, cells, settings, means, tokens, watch)
    ways = {"exact": measure.exact, "adaptive": measure.adaptive, "screened": measure.screened}
    table, intact, controls = ways[method]()
    loss, accuracy = (float(value) for value in intact.mean(0))
    if not math.isfinite(loss):
        raise UnsupportedError(f"{type(model).__name__} returns no finite loss; take dtype='float32'.")
    described = pl.DataFrame([vars(head) for head in attended])
    names = band_names(model, settings.bands)
    return CheckpointAtlas(
        table, described, names, loss, accuracy, len(data), data.width, int(table["n"].sum()), controls
    )


def band_names(model: nn.Module, bands: int) -> tuple[str, ...]:
    """The bands of a model in words, by positions per turn: "6 to 20 positions per turn"."""
    rotary_name(model)
    frequencies = rotations_of(model)[0].frequencies.abs().double().cpu().sort(descending=True).values
    return waves_in_words(frequencies[frequencies > 0].tolist(), bands)


def waves_in_words(frequencies: Sequence[float], bands: int) -> tuple[str, ...]:
    """Bands of frequencies, highest first, by the positions that their pairs take for a turn."""
    n, names = len(frequencies), list[str]()
    for index in range(bands):
        turns = [2 * math.pi / frequencies[place] for place in Band(index=index, of=bands).among(n)]
        ends = dict.fromkeys(f"{float(f'{turn:.2g}'):g}" for turn in (turns[0], turns[-1])) if turns else {}
        names.append(f"{' to '.join(ends)} positions per turn" if ends else "empty")
    return tuple(names)


def _described(
    subject: CheckpointSubject, data: Sequences, tokens: int | None, places: Iterable[int]
) -> tuple[list[SiteMeans], list[AttendedHead]]:
    """Means of all sites, and where their heads attend on the first batch of sequences."""
    attended: dict[int, list[AttendedHead]] = {}
    chosen = set(places)

    def look(place: int, heads: RotatedHeads, piece: Sequences) -> None:
        if place in chosen and place not in attended:
            attended[place] = attended_heads(place, heads.pattern(), piece.ids, piece.real)

    means = rotary_means(subject, data, tokens, look)
    return means, [head for place in sorted(attended) for head in attended[place]]


@dataclass(frozen=True)
class _Measure:
    """The cells of an atlas on some sequences."""

    subject: CheckpointSubject
    data: Sequences
    cells: list[Cell]
    settings: AtlasSettings
    means: list[SiteMeans]
    tokens: int | None
    watch: Watch

    def exact(self) -> tuple[pl.DataFrame, np.ndarray, None]:
        """All sequences, with paired intervals over sequences."""
        found, intact = self._whole(range(len(self.cells)))
        return self._table(found), intact, None

    def screened(self) -> tuple[pl.DataFrame, np.ndarray, Controls | None]:
        """All sequences, for the cells with the largest first-order effects and for some at random."""
        changes = [cell.variant[0] for cell in self.cells]
        effects = first_order_effects(self.subject, self.data, changes, self.means, tokens=self.tokens)
        left, rows = np.argsort(-effects, kind="stable"), list[pl.DataFrame]()
        draw, size, draws = numpy_stream(0, "atlas", "controls"), math.ceil(BLOCK * len(left)), 0
        intact = np.empty(0)
        while len(left):
            block, left = left[:size], left[size:]
            found, intact = self._whole(block.tolist())
            rows.append(found)
            if self._costs(found) or not len(left):
                continue
            drawn = np.isin(np.arange(len(left)), draw.permutation(len(left))[:CONTROLS])
            found, intact = self._whole(left[drawn].tolist())
            rows.append(found)
            left = left[~drawn]
            draws += 1
            if len(left) and not self._costs(found):
                controls = Controls(len(found), len(left), draws)
                return self._table(pl.concat(rows)), intact, controls
        return self._table(pl.concat(rows)), intact, None

    def adaptive(self) -> tuple[pl.DataFrame, np.ndarray, None]:
        """Use only as many sequences as each decision needs; the intervals of accuracy hold for all cells
        simultaneously."""
        n, count = len(self.data), len(self.cells)
        aim = Threshold(self.settings.threshold / 100)
        ledger = Ledger.blank(count, n, aim, 0.05 / count, np.float64)
        order = torch.from_numpy(numpy_stream(0, "atlas", "order").permutation(n))
        losses, intact = np.zeros(count), list[np.ndarray]()
        for stop in looks(n, FIRST_LOOK):
            fresh, cells = order[ledger.seen : stop], ledger.open
            scores = self._scores(self.data[fresh], cells.tolist())
            intact.append(scores[0])
            losses[cells] += (scores[1:, :, 0] - scores[0, :, 0]).sum(1)
            ledger.enter(scores[..., 1])
            self.watch(Progress("ablate", count - len(ledger.open), count))
            if not len(ledger.open):
                break
        drop = ledger.differences.sum(1) / ledger.used
        ends = {"low": 100 * ledger.low, "high": 100 * ledger.high}
        found = self._found(range(count), 100 * drop, ends, losses / ledger.used, ledger.used)
        return self._table(found), np.concatenate(intact), None

    def _whole(self, places: Sequence[int]) -> tuple[pl.DataFrame, np.ndarray]:
        """Some cells on all sequences, and the scores of the intact model."""
        scores = self._scores(self.data, places)
        change = (scores[1:] - scores[0]).swapaxes(0, 1)
        loss = mean_intervals(change[..., 0])
        drop = mean_intervals(-change[..., 1]).scaled(100)
        n = np.full(len(places), len(self.data))
        ends = {"low": drop.low, "high": drop.high}
        return self._found(places, drop.estimate, ends, loss.estimate, n), scores[0]

    def _costs(self, found: pl.DataFrame) -> bool:
        return bool((found["drop"] > self.settings.threshold).any())

    def _scores(self, data: Sequences, places: Sequence[int]) -> np.ndarray:
        variants: list[Variant] = [(), *(self.cells[place].variant for place in places)]
        given: dict[str, Any] = {"tokens": self.tokens, "site_means": self.means, "watch": self.watch}
        return checkpoint_scores(self.subject, data, variants, **given).numpy()

    def _found(
        self,
        places: Sequence[int],
        drop: np.ndarray,
        ends: dict[str, np.ndarray],
        loss: np.ndarray,
        n: np.ndarray,
    ) -> pl.DataFrame:
        calls = [
            call_of(float(low), float(high), self.settings.threshold)
            for low, high in zip(ends["low"], ends["high"], strict=True)
        ]
        columns = {"place": list(places), "drop": drop, **ends, "loss_increase": loss, "n": n, "call": calls}
        return pl.DataFrame(columns)

    def _table(self, found: pl.DataFrame) -> pl.DataFrame:
        """A row per cell; what was not measured is null, and called so."""
        cells = cell_columns(self.cells).with_row_index("place").cast({"place": pl.Int64})
        rows = cells.join(found, on="place", how="left", maintain_order="left").drop("place")
        return rows.with_columns(pl.col("n").fill_null(0), pl.col("call").fill_null(UNMEASURED))
