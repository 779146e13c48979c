"""First-order effects of changed heads on a checkpoint's predictions, to choose what to measure."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.ablation.rotary import RotatedHeads, needs_rotation, rotations_recorded
from spectrope.checkpoints.ablation.sources import TOKENS, FillSources, pieces
from spectrope.checkpoints.ablation.stages import CheckpointStages
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import before, evaluating, runs_at
from spectrope.checkpoints.sequences import Sequences
from spectrope.lab import HeadAblation, fills_of


def first_order_effects(
    subject: CheckpointSubject,
    data: Sequences,
    changes: Sequence[HeadAblation],
    sources: FillSources,
    *,
    tokens: int | None = None,
) -> Float[np.ndarray, " changes"]:
    r"""How much each change moves the log odds of the targets to first order, without running it.

    Of a head with outputs :math:`O_t` at positions t and replacements :math:`R_t`, it is

    .. math:: \frac1n \sum_s \sum_t \left| \left\langle \frac{\partial L_s}{\partial O_t}, R_t - O_t
       \right\rangle \right|

    where :math:`L_s` is the mean log odds of the targets of sequence s. One forward and one backward pass
    serve all heads. This ranks changes and predicts no cost: where a model is confident, terms of the Taylor
    series have the wrong size and sign, which log odds instead of losses and absolute values at each position
    mitigate.

    Args:
        subject: The model.
        data: The sequences.
        changes: Single heads and what takes the place of their output.
        sources: What the fills need beside the heads.
        tokens: Tokens in one batch; None takes what fills the device.

    Raises:
        UnsupportedError: If a fill changes rotations and the model does not rotate by one module.

    References:
        Attribution Patching (Nanda, 2023); AtP* (Kramár et al., 2024), on saturation and cancellation.
    """
    device = next(subject.model.parameters()).device
    total = np.zeros(len(changes))
    with evaluating(subject.model), runs_at(data.width, subject.model):
        for index, piece in pieces(data, tokens or TOKENS[device.type]):
            donated = sources.donated(subject, index)
            stages = CheckpointStages(
                subject, piece.to(device), sources.means, donated, site_means=sources.site_means
            )
            effects = _Effects(stages, any(map(needs_rotation, fills_of([tuple(changes)]))))
            total += [effects.of(change) for change in changes]
    return total / len(data)


class _Effects:
    """First-order effects on some sequences, computed for all heads of a site and a fill at once."""

    def __init__(self, stages: CheckpointStages, rotating: bool) -> None:
        self.stages, self.computed = stages, dict[tuple[int, str], Float[np.ndarray, " h"]]()
        self.heads: dict[str, Tensor] = {}
        self.rotated: dict[str, RotatedHeads] = {}
        self.gradients = self._gradients(rotating)

    def of(self, change: HeadAblation) -> float:
        """The sum over sequences of the effect of one change."""
        key = (change.layer, change.fill)
        if key not in self.computed:
            self.computed[key] = self._of_site(*key)
        return float(self.computed[key][change.head])

    def _gradients(self, rotating: bool) -> dict[str, Tensor]:
        """The gradient of the log odds by the heads of each site, (b, t, f), by its projection."""
        subject, data = self.stages.subject, self.stages.data
        added: dict[str, Tensor] = {}

        def note(heads: RotatedHeads) -> None:
            self.rotated[heads.call.module] = heads

        def add(name: str, args: Any, given: Any) -> Any:
            self.heads[name] = args[0].detach()
            added[name] = torch.zeros_like(args[0], requires_grad=True)
            return (args[0] + added[name], *args[1:]), given

        recording = contextlib.nullcontext()
        if rotating:
            recording = rotations_recorded(subject.model, subject.rotations, note)
        projections = [site.projection for site in subject.sites]
        with torch.enable_grad(), recording, before(subject.model, projections, add):
            odds = _log_odds(subject.scored_logits(data), data)
            gradients = torch.autograd.grad(odds, list(added.values()))
        return dict(zip(added, gradients, strict=True))

    @torch.no_grad()
    def _of_site(self, place: int, fill: str) -> Float[np.ndarray, " h"]:
        site = self.stages.subject.sites[place]
        if needs_rotation(fill):
            rotated, means = self.rotated[site.module], self.stages.site_means
            rotated.require_bare(self.heads[site.projection])
            intact = rotated.intact()
            changed = rotated.output(fill, None if means is None else means[place])
        else:
            intact = self.heads[site.projection]
            changed = self.stages.filled(fill, place, intact)
        terms = (self.gradients[site.projection] * (changed - intact))[..., : site.n_heads * site.width]
        by_head = terms.unflatten(-1, (site.n_heads, -1)).sum(-1)
        return by_head.abs().sum((0, 1)).double().cpu().numpy()


def _log_odds(logits: Float[Tensor, "n classes"], data: Sequences) -> Float[Tensor, ""]:
    """Sum over sequences of the mean log odds of their targets."""
    targets = data.targets[data.scored][:, None]
    others = logits.float().scatter(1, targets, -torch.inf).logsumexp(1)
    odds = logits.float().gather(1, targets)[:, 0] - others
    scored = data.scored.sum(1, keepdim=True).expand_as(data.scored)[data.scored]
    return (odds / scored).sum()
