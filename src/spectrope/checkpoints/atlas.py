"""Causal atlas of a checkpoint: every intervention on every head and frequency band."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from torch import nn

from spectrope.checkpoints.ablation.calls import Caller, CallMethod, Calls
from spectrope.checkpoints.ablation.rotary import RotatedHeads, SiteMeans, rotary_name
from spectrope.checkpoints.ablation.show import Content, contents
from spectrope.checkpoints.ablation.sources import FillSources, rotary_means
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import require_several
from spectrope.checkpoints.adapters import Tokenizer, evaluating, runs_at
from spectrope.checkpoints.extension.rotations import rotations_of
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import UnsupportedError, Watch, unwatched
from spectrope.encodings import Band
from spectrope.lab import AtlasSettings, AttendedHead, AttendedSums, cell_columns, cells_of


@dataclass(frozen=True, eq=False)
class CheckpointAtlas:
    """The cells and heads of a checkpoint's atlas.

    Args:
        cells: A row per cell, with the drop of accuracy in points and the increase of the loss in nats, each
            the mean over sequences.
        heads: A row per head: where it attends.
        bands: Name of each band, highest frequencies first.
        sequences: How many sequences there are.
        length: Most tokens of a sequence.
        calls: What was measured.
    """

    cells: pl.DataFrame
    heads: pl.DataFrame
    bands: tuple[str, ...]
    sequences: int
    length: int
    calls: Calls

    @property
    def passes(self) -> int:
        """Pairs of a cell and a sequence that were computed."""
        return int(self.cells["n"].sum())


def atlas_checkpoint(
    model: nn.Module,
    on: Content,
    *,
    tokenizer: Tokenizer | None = None,
    examples: int = 32,
    length: int = 64,
    layers: slice = slice(None),
    settings: AtlasSettings | None = None,
    method: CallMethod = "exact",
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
            none of a block costs, and then a random sample of the others as a control; "screened-adaptive"
            does so on as many sequences as each call needs.
        batch: Number of sequences per batch, including changed copies; None chooses a batch that fills the
            device.
        watch: Called with the cells done.

    Raises:
        ConfigError: If there are fewer than two sequences, no such layer, or more bands than frequencies.
        UnsupportedError: If it is no language model with rotary positions, or its loss is not finite.
    """
    settings = settings or AtlasSettings()
    subject, data = CheckpointSubject.of(model), contents(model, on, tokenizer, examples, length)
    require_several(data)
    frequencies = frequencies_of(model)
    settings.require_at_most(len(frequencies))
    heads = subject.heads(layers)
    cells = cells_of(heads, settings.bands)
    tokens = None if batch is None else batch * data.width
    with evaluating(model), runs_at(data.width, model):
        means, attended = heads_described(subject, data, tokens, {place for place, _ in heads})
    changes, sources = [cell.variant[0] for cell in cells], FillSources(site_means=means)
    caller = Caller(subject, data, changes, settings.threshold, sources, tokens, watch)
    calls = caller.calls(method)
    if not np.isfinite(calls.intact).all():
        raise UnsupportedError(f"{type(model).__name__} returns no finite loss; take dtype='float32'.")
    table = pl.concat([cell_columns(cells), calls.table], how="horizontal")
    described = pl.DataFrame([vars(head) for head in attended])
    names = waves_in_words(frequencies, settings.bands)
    return CheckpointAtlas(table, described, names, len(data), data.width, calls)


def frequencies_of(model: nn.Module) -> list[float]:
    """The frequencies at which a model's pairs turn, highest first, in radians per position.

    Raises:
        UnsupportedError: If no single module turns all layers.
    """
    rotary_name(model)
    frequencies = rotations_of(model)[0].frequencies.abs().double().cpu().sort(descending=True).values
    return frequencies[frequencies > 0].tolist()


def waves_in_words(frequencies: Sequence[float], bands: int) -> tuple[str, ...]:
    """Bands of frequencies, highest first, in words: "6 to 20 positions per turn".

    Args:
        frequencies: In radians per position, at least one per band.
        bands: Number of bands.
    """
    n, names = len(frequencies), list[str]()
    for index in range(bands):
        turns = [2 * math.pi / frequencies[place] for place in Band(index=index, of=bands).among(n)]
        ends = dict.fromkeys(f"{float(f'{turn:.2g}'):g}" for turn in (turns[0], turns[-1]))
        names.append(f"{' to '.join(ends)} positions per turn")
    return tuple(names)


def heads_described(
    subject: CheckpointSubject, data: Sequences, tokens: int | None, places: Iterable[int]
) -> tuple[list[SiteMeans], list[AttendedHead]]:
    """Means of all sites, and where their heads attend."""
    attended = {place: AttendedSums() for place in sorted(places)}

    def look(place: int, heads: RotatedHeads, piece: Sequences) -> None:
        if place in attended:
            with_sinks = heads.call.sinks is not None
            attended[place].add(heads.pattern(), piece.ids, piece.real, with_sinks=with_sinks)

    means = rotary_means(subject, data, tokens, look)
    return means, [head for place, sums in attended.items() for head in sums.heads(place)]
