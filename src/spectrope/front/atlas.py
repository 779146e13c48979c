"""Causal atlas of a run or a model: the cost of removing each frequency band of each head."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import polars as pl
import torch

from spectrope.checkpoints import CheckpointAtlas, Content, atlas_checkpoint
from spectrope.checkpoints.ablation.calls import CallMethod
from spectrope.checkpoints.ablation.words import (
    ceiling_in_words,
    flat_in_words,
    intact_in_words,
    intervals_in_words,
    screening_in_words,
)
from spectrope.checkpoints.atlas import waves_in_words
from spectrope.console import Shown
from spectrope.core import ConfigError, Device, Watch, choose_device, require_type
from spectrope.encodings import Band, Encoding, PerHead, rotating_pairs
from spectrope.figures import AtlasTables, Drawing, HeadEffects, atlas_spec, write_atlas
from spectrope.front.ablate import LENGTH, SEQUENCES, refuse, require_language_model
from spectrope.front.arguments import require_callback, require_whole
from spectrope.front.progress import counting, watching
from spectrope.front.targets import AnyTokenizer, Target, opened
from spectrope.lab import (
    EXAMPLES,
    LOOKED,
    UNMEASURED,
    AtlasSettings,
    RunAtlas,
    atlas_run,
    experiment_of,
    load_model,
)
from spectrope.models import Decoder
from spectrope.store import Run

CELLS_SHOWN = 12


@dataclass(frozen=True, repr=False)
class Atlas(Shown, HeadEffects):
    """Cost of removing each frequency band of each head, in percentage points of accuracy.

    Args:
        drawn: Name, description, cells and heads, as shown on the page.
        threshold: Drop, in points, above which a cell is said to cost.

    Example:
        >>> import spectrope as sp
        >>> plan = sp.experiment("distance", "rope", epochs=1, n_examples=60).with_(n_layers=1, n_heads=4)
        >>> run = sp.train(plan, watch=sp.unwatched)
        >>> atlas = sp.atlas(run, bands=2, examples=20, watch=sp.unwatched)
        >>> atlas.to_frame().height, atlas.figure().name
        (44, 'atlas')
    """

    drawn: AtlasTables
    threshold: float

    def to_frame(self) -> pl.DataFrame:
        """A row per cell: layer, head, intervention, band, drop with its interval, n and call."""
        return self.drawn.cells

    def heads(self) -> pl.DataFrame:
        """A row per head: mean lag, attention to the first and the previous token, induction, examples."""
        return self.drawn.heads

    def figure(self) -> Drawing:
        """The heat maps of all interventions, a panel per band."""
        return Drawing("atlas", atlas_spec(self.drawn))

    def page(self, path: str | Path, command: str = "") -> Path:
        """Write the page, one HTML file, and return its path.

        Args:
            path: File to write.
            command: Command that draws it again, shown on the page.
        """
        return write_atlas(self.drawn, Path(path), command)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        tables = {"cells": self.drawn.cells.to_dicts(), "heads": self.drawn.heads.to_dicts()}
        return {
            "model": self.drawn.name,
            "bands": list(self.drawn.bands),
            "threshold": self.threshold,
        } | tables

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        cells = self.drawn.cells
        bands = "; ".join(f"{number}: {name}" for number, name in enumerate(self.drawn.bands))
        yield f"{self.drawn.told} Bands: {bands}. Layers and heads count from 0."
        calls = ["costs", "does not", "undecided", *([UNMEASURED] if cells["n"].eq(0).any() else [])]
        counts = cells.group_by("intervention", maintain_order=True).agg(
            *(pl.col("call").eq(call).sum().alias(call) for call in calls),
            pl.col("drop").max().round(1).alias("largest drop"),
        )
        yield f"cells that cost more than {self.threshold:g} points", counts
        shown = ("layer", "head", "intervention", "band", "drop", "low", "high", "call")
        # Keeping a band removes all others, whose cost is not its own.
        removed = cells.drop_nulls("band").filter(pl.col("intervention") != "keep-band")
        costliest = removed.sort("drop", descending=True, nulls_last=True).head(CELLS_SHOWN)
        yield "costliest bands", costliest.select(shown)


def atlas(
    target: Target,
    *,
    on: Content | None = None,
    tokenizer: AnyTokenizer | None = None,
    bands: int = 4,
    threshold: float = 5.0,
    method: CallMethod = "exact",
    examples: int | None = None,
    length: int | None = None,
    layers: slice | None = None,
    batch: int | None = None,
    root: str | Path = "runs",
    device: Device = "auto",
    allow_download: bool = False,
    watch: Watch | None = None,
) -> Atlas:
    """Measure the cost of removing each frequency band of each head, and of removing position or content.

    One head is changed at a time: the rotation of a band is removed, or frozen at the head's mean lag; all
    other bands are removed; the head attends only by position or only by content; or the head is removed. The
    tables of a run are stored with it.

    Args:
        target: A run, a model, or the name of a run or a checkpoint.
        on: Of a model: "induction" (default) or "distance", texts, a file of texts, or token ids.
        tokenizer: The model's, for texts.
        bands: Frequency bands per head, at most as many as it has frequencies.
        threshold: Drop, in points, above which a cell is said to cost.
        method: "exact" measures all cells on all examples; "adaptive" samples examples only until each cell
            is decided; "screened", for models, measures the cells with the largest first-order effects, and
            a random sample of the others as a control; "screened-adaptive", for models, does so on as many
            sequences as each decision needs.
        examples: Held-out examples of a run, or sequences of a model.
        length: Tokens of a model's sequences.
        layers: Layers of a model whose heads to change.
        batch: Of a model, sequences in one batch.
        root: Folder that holds the run folders.
        device: Where to compute; a module is measured where it is.
        allow_download: Whether a checkpoint may be fetched from the hub.
        watch: Progress callback.

    Raises:
        ConfigError: If there is no such target, or an argument does not apply to it.
        UnsupportedError: If its encoding is neither a rotation nor a lag bias.

    Example:
        >>> import spectrope as sp
        >>> plan = sp.experiment("distance", "rope", epochs=1, n_examples=60).with_(n_layers=1, n_heads=4)
        >>> run = sp.train(plan, watch=sp.unwatched)
        >>> found = sp.atlas(run, bands=2, examples=20, watch=sp.unwatched)
        >>> found.to_frame()["intervention"].unique().sort().to_list()[:3]
        ['content-only', 'freeze-band', 'keep-band']
    """
    _check(method, threshold, watch, bands=bands, examples=examples, batch=batch, length=length)
    place = choose_device(device)
    settings = AtlasSettings(bands=bands, threshold=threshold)
    known, wrapped = opened(target, root, device, tokenizer, allow_download=allow_download)
    if isinstance(known, Run):
        if method.startswith("screened"):
            raise ConfigError(f"method {method!r} is for models; run {known.id} has 'exact' and 'adaptive'.")
        of_models = {"on": on, "length": length, "layers": layers, "batch": batch}
        refuse(of_models, "models", f"run {known.id} has its own task")
        count = EXAMPLES if examples is None else examples
        how = RunAtlas(settings=settings, examples=count, adaptive=method == "adaptive")
        return _of_run(known, place, how, watch)
    require_language_model(known)
    content: Content = "induction" if on is None else on
    with counting(watch, "mapping") as shown:
        found = atlas_checkpoint(
            known,
            content,
            tokenizer=wrapped,
            examples=SEQUENCES if examples is None else examples,
            length=LENGTH if length is None else length,
            layers=slice(None) if layers is None else layers,
            settings=settings,
            method=method,
            batch=batch,
            watch=shown,
        )
    name = target if isinstance(target, str) else type(known).__name__
    told = _told_of_model(found, content if isinstance(content, str | Path) else "tokens", method, threshold)
    return Atlas(AtlasTables(str(name), told, found.bands, found.cells, found.heads), threshold)


def _check(
    method: CallMethod, threshold: float, watch: object, *, length: int | None, **counts: int | None
) -> None:
    """Refuse a method that there is not, what is no number or no callback, and what counts nothing.

    Raises:
        ConfigError: Naming the first.
    """
    if method not in get_args(CallMethod):
        raise ConfigError(f"method must be one of {', '.join(get_args(CallMethod))}; got {method!r}.")
    require_type(threshold, (int, float), "threshold", "a number of points")
    require_callback(watch)
    require_whole(1, **counts)
    require_whole(2, length=length)


def _told_of_model(found: CheckpointAtlas, on: str | Path, method: CallMethod, threshold: float) -> str:
    calls, sequences = found.calls, found.sequences
    sentences = [
        f"Measured on {on}, with {intervals_in_words(method, 'cell', sequences)}.",
        f"{intact_in_words(calls, sequences, found.length)}.",
        screening_in_words(calls, method, "cells"),
        "" if method.endswith("adaptive") else flat_in_words(calls.table, "cells"),
        ceiling_in_words(calls, sequences, threshold),
    ]
    return " ".join(filter(None, sentences))


def _of_run(run: Run, device: torch.device, how: RunAtlas, watch: Watch | None) -> Atlas:
    with watching(watch, [experiment_of(run).label]) as shown:
        tables: Mapping[str, pl.DataFrame] = atlas_run(run, device, how, shown)
    cells, heads = tables.values()
    model = load_model(run, torch.device("cpu"))
    names = run_bands(model, how.settings.bands)
    intervals = (
        "simultaneous intervals at any stopping time" if how.adaptive else "95 % intervals over examples"
    )
    least, most = cells["n"].min(), cells["n"].max()
    n = f"{most}" if least == most else f"{least} to {most}"
    told = (
        f"Each cell is measured on {n} held-out examples, with {intervals}; attention is described on at "
        f"most {LOOKED} of them."
    )
    name = f"{experiment_of(run).label}, run {run.id}"
    return Atlas(AtlasTables(name, told, names, cells, heads), how.settings.threshold)


def run_bands(model: Decoder, bands: int) -> tuple[str, ...]:
    """The bands of a run's model in words: of its rotation, else of its bias of the lag."""
    encoding = _first_part(model.encoding_of(0))
    pairs = rotating_pairs(encoding, model.config.attention.encoded_dim(model.config.head_dim))
    if len(pairs.frequencies):
        return waves_in_words(pairs.frequencies.abs().sort(descending=True).values.tolist(), bands)
    n = model.config.max_length
    return tuple(_periods(Band(index=index, of=bands).waves(n), 2 * n - 1) for index in range(bands))


def _first_part(encoding: Encoding) -> Encoding:
    while isinstance(encoding, PerHead):
        encoding = next(encoding.parts())[1]
    return encoding


def _periods(waves: range, length: int) -> str:
    ends = dict.fromkeys(f"{length / wave:.3g}" for wave in (waves[-1], waves[0]))
    return f"waves of {' to '.join(ends)} positions"
