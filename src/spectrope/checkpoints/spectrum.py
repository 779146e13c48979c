"""Spectra of a checkpoint's heads, layer by layer."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import torch
from torch import Tensor, nn

from spectrope.checkpoints.ablation.cuts import Before
from spectrope.checkpoints.ablation.stages import CheckpointFork, CheckpointStages
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import (
    Call,
    before,
    evaluating,
    head_sites,
    recorded,
    runs_at,
    states_of,
    trained_length,
)
from spectrope.checkpoints.audit.applied import applied_encodings
from spectrope.checkpoints.probes.constant_content import attending_modules
from spectrope.checkpoints.probes.heads import Applied, RecordedHeads, joined, recorded_heads
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import ConfigError, Progress, Watch, unwatched
from spectrope.lab import (
    LayerSpectrum,
    LayerTerms,
    Measurement,
    StateShares,
    TablesByName,
    bands_table,
    kernel_table,
    layer_spectrum,
    layer_terms,
    shares_table,
    spectrum_table,
    state_shares,
    term_tables,
)

PROBED = 512  # Positions at which rotations are measured, where the model takes as many.


def checkpoint_spectrum(
    model: nn.Module,
    data: Sequences,
    *,
    layers: slice = slice(None),
    batch: int | None = None,
    draws: int = 199,
    seed: int = 0,
    quantities: Sequence[str] = (),
    watch: Watch = unwatched,
) -> TablesByName:
    """Measure the logits of every head of a checkpoint, one layer after the other.

    Tables "spectrum", "kernel", "shares" and, where all coordinates turn, "bands" are those of a run's
    `spectrum`. In a model with two stacks a column "role" says which attention is meant; attention to another
    sequence has no lags and is left out. The rotation is measured with constant content and undone. There is
    no permutation test if the model's code only exposes masked logits that include a bias.

    Args:
        model: A Hugging Face model.
        data: At least two sequences of the same length, at least 2.
        layers: Which layers to measure, of each stack.
        batch: Sequences in one pass; None takes all.
        draws: Permutations in the test of Toeplitz shares.
        seed: Of the permutations.
        quantities: Of heads, beside the installed ones; a class in a file (`file.py:Class`) is run.
        watch: Called with the numbers of layers measured and in all.

    Raises:
        ConfigError: If there are fewer than two sequences or tokens, or none of the layers.
        UnsupportedError: If no attention kernel could be observed, or a mask is neither causal nor full.
    """
    plan = Measurement(draws=draws, quantities=tuple(quantities))
    subject, chosen, heard = _opened(model, data, layers, batch)
    spectra: list[LayerSpectrum] = []
    states: list[StateShares] = []
    for layer, tokens in heard:
        assert layer.ctx.x_q is not None
        spectra.append(layer_spectrum(layer, tokens.shape[1], draws, seed, plan.names))
        states.append(state_shares(layer.ctx.x_q, tokens))
        watch(Progress("spectrum", len(spectra), len(chosen)))
    tables = {
        "spectrum": spectrum_table(spectra, len(data)),
        "shares": _placed(shares_table(states), chosen),
        "kernel": kernel_table(spectra),
        "bands": bands_table(spectra),
    }
    return {name: _labelled(table, subject) for name, table in tables.items() if not table.is_empty()}


def checkpoint_terms(
    model: nn.Module,
    data: Sequences,
    *,
    design: str,
    layers: slice = slice(None),
    batch: int | None = None,
    draws: int = 199,
    seed: int = 0,
    watch: Watch = unwatched,
) -> TablesByName:
    """Split the logits of every head of a checkpoint into the terms of Eq. 8, one layer after the other.

    The tables are those of a run's `terms`. Nothing is assumed of the weights: queries and keys are recorded
    in a forward pass, and split after the measured rotation has been undone.

    Args:
        model: A Hugging Face model.
        data: At least two sequences of the same length, at least 2.
        design: Name of the sequences in the tables, such as "texts".
        layers: Layers to measure, of each stack.
        batch: Sequences in one pass; None takes all.
        draws: Permutations in the test of each term.
        seed: Seed of the permutations.
        watch: Progress callback, called with the number of layers done.

    Raises:
        ConfigError: If there are fewer than two sequences or tokens, or none of the layers.
        UnsupportedError: If no attention kernel could be observed, or a mask is neither causal nor full.
    """
    subject, chosen, heard = _opened(model, data, layers, batch)
    found: list[LayerTerms] = []
    for layer, tokens in heard:
        found.append(layer_terms(layer, tokens, tokens.shape[1], draws, seed))
        watch(Progress("terms", len(found), len(chosen)))
    tables = term_tables({design: found}, {design: len(data)})
    return {name: _labelled(table, subject) for name, table in tables.items() if not table.is_empty()}


def _opened(
    model: nn.Module, data: Sequences, layers: slice, batch: int | None
) -> tuple[CheckpointSubject, list[int], Iterator[tuple[RecordedHeads, Tensor]]]:
    """The model, the sites to measure, and their attention with the tokens of their stack, in order."""
    if len(data) < 2 or int(data.lengths.min()) < 2:
        raise ConfigError(
            f"spectra need two sequences of two tokens; got {len(data)} of {data.lengths.min()}."
        )
    subject = CheckpointSubject(model, head_sites(model, attending_modules(model)))
    chosen = _chosen(subject, layers)

    def heard() -> Iterator[tuple[RecordedHeads, Tensor]]:
        with runs_at(data.width, model):
            for layer in layer_heads(subject, data, chosen, _applied(subject, data), batch):
                yield layer, data.tokens(subject.sites[layer.layer].role)

    return subject, chosen, heard()


def _chosen(subject: CheckpointSubject, layers: slice) -> list[int]:
    """Places of the sites in some layers that attend to their own sequence."""
    chosen = [place for place in subject.of_layers(layers) if subject.sites[place].role != "cross"]
    if not chosen:
        last = max(site.layer for site in subject.sites)
        raise ConfigError(f"layers must take at least one of 0 to {last}; got none.")
    return chosen


def _applied(subject: CheckpointSubject, data: Sequences) -> dict[str, Applied]:
    """What each module applies, measured at as many positions as tell frequencies well."""
    self_attention = [site for site in subject.sites if site.role != "cross"]
    longest = max(data.tokens(site.role).shape[1] for site in self_attention)
    length = max(longest, min(PROBED, trained_length(subject.model) or PROBED))
    return applied_encodings(subject.model, [site.module for site in self_attention], length)


@torch.no_grad()
def layer_heads(
    subject: CheckpointSubject,
    data: Sequences,
    places: Collection[int],
    applied: Mapping[str, Applied],
    batch: int | None = None,
) -> Iterator[RecordedHeads]:
    """The attention of some sites, one after the other, on all sequences; nothing is kept here.

    The model runs once: at each site every batch goes on from where it was left at the one before.

    Args:
        subject: The model.
        data: Sequences without padding.
        places: Of the sites, in their order.
        applied: What each module applies whatever its content.
        batch: Sequences in one pass; None takes all.
    """
    device, last = next(subject.model.parameters()).device, max(places)
    with evaluating(subject.model):
        pieces = [data[rows].to(device) for rows in torch.arange(len(data)).split(batch or len(data))]
        runs = [CheckpointStages(subject, piece, rest=subject.handed_on(piece)) for piece in pieces]
        entering = [run.start() for run in runs]
        for place in range(last + 1):
            heard = [_heard(run, place, state) for run, state in zip(runs, entering, strict=True)]
            if place in places:
                site = subject.sites[place]
                call, x = joined([call for call, _, _ in heard]), torch.cat([x for _, x, _ in heard])
                yield recorded_heads(place, call, x, applied[site.module])
            if place < last:
                entering = [fork.advance(()) for _, _, fork in heard]


def _heard(run: CheckpointStages, place: int, state: Before) -> tuple[Call, Tensor, CheckpointFork]:
    """What a site's kernel receives and what enters its module, on the CPU, and the pass from there on."""
    module, model = run.subject.sites[place].module, run.subject.model
    calls: list[Call] = []
    states: list[Tensor] = []

    def note(_: str, args: Any, given: dict[str, Any]) -> None:
        states.append(states_of(args, given).cpu())

    with recorded(model, calls.append, attend=True), before(model, [module], note):
        fork = run.fork(place, state, [()])
    received = next(call for call in calls if call.module == module)
    return received.cpu(), states[0], fork


def _placed(table: pl.DataFrame, places: list[int]) -> pl.DataFrame:
    """Rows numbered by the order of layers, numbered by sites instead."""
    return table.with_columns(pl.col("layer").replace_strict(dict(enumerate(places))))


def _labelled(table: pl.DataFrame, subject: CheckpointSubject) -> pl.DataFrame:
    """Sites named as a checkpoint counts them: by role, where there are several, and layer."""
    place = pl.col("layer")
    layers = place.replace_strict({place: site.layer for place, site in enumerate(subject.sites)})
    if not subject.sites[0].role:
        return table.with_columns(layer=layers)
    roles = place.replace_strict({place: site.role for place, site in enumerate(subject.sites)})
    return table.with_columns(role=roles, layer=layers).select("role", pl.exclude("role"))
