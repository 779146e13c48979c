"""Exact ablation sweep over the heads of a language model.

The tree of variants, `HeadAblation` and the pairing of examples are those of `lab.ablation`. Sweeps and rows
are not: a run is scored by right and wrong labels, a language model by each sequence's loss and accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.ablation.checked import check_intact
from spectrope.checkpoints.ablation.rotary import needs_rotation
from spectrope.checkpoints.ablation.sources import TOKENS, FillSources, pieces
from spectrope.checkpoints.ablation.stages import CheckpointStages
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import Role, evaluating, runs_at
from spectrope.checkpoints.sequences import Sequences
from spectrope.core import ConfigError, Progress, UnsupportedError, Watch, unwatched
from spectrope.lab import HeadAblation, Tree, Variant, fills_of
from spectrope.stats import Intervals, ends, mean_intervals

CheckpointFill = Literal["zero", "mean", "resample", "position-only", "content-only"]


@dataclass(frozen=True)
class HeadCost:
    """Effect of ablating one head; layers and heads count from 0, as in the checkpoint.

    Args:
        role: "" in a model with one stack; else "encoder", "decoder", or "cross" where a decoder attends to
            what the encoder put out.
        layer: Layer of the head in its stack.
        head: Its number within the layer.
        fill: Replacement for its output.
        loss_increase: Ablated minus intact cross-entropy in nats, the mean over sequences of their means over
            scored tokens.
        loss_increase_low: Lower end of its 95 % interval over sequences.
        loss_increase_high: Upper end.
        drop: Intact minus ablated accuracy, in percentage points, likewise.
        drop_low: Lower end of its interval.
        drop_high: Upper end.
        n: Sequences.
    """

    role: Role
    layer: int
    head: int
    fill: str
    loss_increase: float
    loss_increase_low: float
    loss_increase_high: float
    drop: float
    drop_low: float
    drop_high: float
    n: int


@dataclass(frozen=True)
class CheckpointSweep:
    """Loss and accuracy of every sequence, for the intact model and with each head changed.

    Args:
        fill: What took the place of heads' outputs.
        heads: Role, layer and number of each head.
        intact: Mean loss in nats and accuracy as a fraction of each sequence.
        ablated: The same for each head.
    """

    fill: str
    heads: tuple[tuple[Role, int, int], ...]
    intact: Float[np.ndarray, "n 2"]
    ablated: Float[np.ndarray, "heads n 2"]

    @property
    def loss(self) -> float:
        """Loss of the intact model in nats, the mean over sequences of their means over scored tokens."""
        return float(self.intact[:, 0].mean())

    @property
    def accuracy(self) -> float:
        """Accuracy of the intact model, as a fraction."""
        return float(self.intact[:, 1].mean())

    def costs(self) -> list[HeadCost]:
        """One row per head, layer by layer, with paired intervals over sequences."""
        change = (self.ablated - self.intact).swapaxes(0, 1)
        changes = {
            "loss_increase": mean_intervals(change[..., 0]),
            "drop": mean_intervals(change[..., 1]).scaled(-100),
        }
        return [self._row(changes, place) for place in range(len(self.heads))]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        rows = [vars(cost) for cost in self.costs()]
        return {"loss": self.loss, "accuracy": self.accuracy, "fill": self.fill, "heads": rows}

    def _row(self, changes: dict[str, Intervals], place: int) -> HeadCost:
        values: dict[str, Any] = {}
        for name, intervals in changes.items():
            values |= ends(name, intervals.at(place))
        low, high = sorted((values["drop_low"], values["drop_high"]))
        role, layer, head = self.heads[place]
        values |= {"drop_low": low, "drop_high": high, "fill": self.fill, "n": len(self.intact)}
        return HeadCost(role=role, layer=layer, head=head, **values)


def checkpoint_sweep(
    model: nn.Module | CheckpointSubject,
    data: Sequences,
    *,
    fill: CheckpointFill = "zero",
    layers: slice = slice(None),
    tokens: int | None = None,
    seed: int = 0,
    watch: Watch = unwatched,
) -> CheckpointSweep:
    """Ablate each head of a language model in turn, before the output projection, on all sequences. The
    layers before a head, and the attention of its own layer, are computed once for all heads of the layer.

    Args:
        model: A Hugging Face language model; its weights are never touched.
        data: Sequences, at least two.
        fill: What takes the place of a head's output: zeros, its mean over the tokens of `data`, its output
            on another sequence, or its output with mean queries and keys or with all lags 0.
        layers: Layers whose heads to change, of each stack.
        tokens: Tokens in one batch, copies included; None takes what fills the device.
        seed: Pairs sequences where outputs are resampled.
        watch: Called with the numbers of heads done and in all.

    Raises:
        ConfigError: If there are fewer than two sequences, or none of the layers exists.
        UnsupportedError: If the model is no such model, or sequences of different lengths are resampled.
    """
    require_several(data)
    subject = model if isinstance(model, CheckpointSubject) else CheckpointSubject.of(model)
    heads = subject.heads(layers)
    variants: list[Variant] = [(), *((HeadAblation(*at, fill),) for at in heads)]
    scores = checkpoint_scores(subject, data, variants, tokens=tokens, seed=seed, watch=watch).numpy()
    return CheckpointSweep(fill, subject.named(heads), scores[0], scores[1:])


def require_several(data: Sequences) -> None:
    """Raise an error unless there are sequences for an interval.

    Raises:
        ConfigError: If there are fewer than two.
    """
    if len(data) < 2:
        raise ConfigError(f"intervals over sequences need at least 2 of them; got {len(data)}.")


@torch.no_grad()
def checkpoint_scores(
    subject: CheckpointSubject,
    data: Sequences,
    variants: Sequence[Variant],
    *,
    tokens: int | None = None,
    seed: int = 0,
    sources: FillSources | None = None,
    watch: Watch = unwatched,
) -> Float[Tensor, "v n 2"]:
    """Mean loss in nats and accuracy of every sequence under every variant, in float64.

    Args:
        subject: The model.
        data: The sequences.
        variants: What to change; the empty variant is the intact model.
        tokens: Tokens in one batch, copies included; None takes what fills the device.
        seed: Pairs sequences where outputs are resampled.
        sources: What fills need beside the heads; None gathers it over `data`.
        watch: Called with the numbers of variants done and in all, in whole sequences.

    Raises:
        ConfigError: If the model has no such head.
        UnsupportedError: If a fill has no meaning here, sequences of different lengths are resampled, or they
            are too long for the model, or the intact model in pieces is not that of one pass.
    """
    _check(subject, variants)
    if () not in variants and any(map(needs_rotation, fills_of(variants))):
        # Beside the intact model, every variant leaves the trunk at its own layer, where rotations are seen.
        given = {"tokens": tokens, "seed": seed, "sources": sources, "watch": watch}
        return checkpoint_scores(subject, data, [(), *variants], **given)[1:]
    device = next(subject.model.parameters()).device
    tokens = tokens or TOKENS[device.type]
    scores = torch.zeros(len(variants), len(data), 2, dtype=torch.float64)
    done = 0
    with evaluating(subject.model), runs_at(data.width, subject.model):
        if sources is None:
            sources = FillSources.over(subject, data, fills_of(variants), tokens, seed)
        for number, (index, piece) in enumerate(pieces(data, tokens)):
            donated = sources.donated(subject, index)
            piece = piece.to(device)
            rest = subject.handed_on(piece)
            stages = CheckpointStages(subject, piece, sources.means, donated, rest, sources.site_means)
            room = max(1, tokens // (len(piece) * piece.width))
            for which, scored in Tree(stages, variants, room).grow():
                scores[torch.tensor(which)[:, None], index] = scored.double().cpu()
                done += len(which) * len(index)
                watch(Progress("ablate", done // len(data), len(variants)))
            if number == 0 and () in variants:
                check_intact(subject, piece, scores[variants.index(()), index, 0])
    return scores


def _check(subject: CheckpointSubject, variants: Sequence[Variant]) -> None:
    """Refuse heads that the model does not have and fills that have no meaning for it."""
    for ablation in (ablation for variant in variants for ablation in variant):
        layers = len(subject.sites)
        n_heads = subject.sites[ablation.layer].n_heads if 0 <= ablation.layer < layers else 0
        if not 0 <= ablation.head < n_heads:
            raise ConfigError(
                f"the model has no head {ablation.head} in layer {ablation.layer}; it has {layers}."
            )
        if ablation.fill not in get_args(CheckpointFill) and not needs_rotation(ablation.fill):
            able = ", ".join(get_args(CheckpointFill))
            raise UnsupportedError(f"fill {ablation.fill!r} is for runs; a checkpoint takes {able}.")
    for variant in variants:
        if len(variant) > 1 and any(map(needs_rotation, fills_of([variant]))):
            raise UnsupportedError("fills that change rotations are measured one head at a time.")
