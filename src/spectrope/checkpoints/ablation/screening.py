"""First-order effects of changed heads on a checkpoint's predictions, to choose what to measure."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.ablation.rotary import RotatedHeads, SiteMeans, rotations_recorded
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import TOKENS, pieces
from spectrope.checkpoints.adapters import before, evaluating, runs_at
from spectrope.checkpoints.sequences import Sequences
from spectrope.lab import HeadAblation


def first_order_effects(
    subject: CheckpointSubject,
    data: Sequences,
    changes: Sequence[HeadAblation],
    means: Sequence[SiteMeans],
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
        subject: The model; its heads must be rotated by one module.
        data: The sequences.
        changes: Single heads and what takes the place of their output: "zero", or a fill of rotations.
        means: Means of each attention module, see `rotary_means`.
        tokens: Tokens in one batch; None takes what fills the device.

    Raises:
        UnsupportedError: If the model does not rotate by one module.

    References:
        Attribution Patching (Nanda, 2023); AtP* (Kramár et al., 2024), on saturation and cancellation.
    """
    device = next(subject.model.parameters()).device
    total = np.zeros(len(changes))
    with evaluating(subject.model), runs_at(data.width, subject.model):
        for _, piece in pieces(data, tokens or TOKENS[device.type]):
            calls, gradients = _gradients(subject, piece.to(device))
            effects = [_Effects(*one) for one in zip(calls, gradients, means, strict=True)]
            total += [effects[change.layer].of(change) for change in changes]
    return total / len(data)


def _gradients(subject: CheckpointSubject, data: Sequences) -> tuple[list[RotatedHeads], list[Tensor]]:
    """The call of each attention module, and the gradient of the log odds by its heads, (b, t, f)."""
    places = {site.module: place for place, site in enumerate(subject.sites)}
    calls: dict[int, RotatedHeads] = {}
    added: list[Tensor] = []

    def note(heads: RotatedHeads) -> None:
        calls[places[heads.call.module]] = heads

    def add(_: str, args: Any, given: Any) -> Any:
        added.append(torch.zeros_like(args[0], requires_grad=True))
        return (args[0] + added[-1], *args[1:]), given

    projections = [site.projection for site in subject.sites]
    with (
        torch.enable_grad(),
        rotations_recorded(subject.model, note),
        before(subject.model, projections, add),
    ):
        odds = _log_odds(subject.scored_logits(data), data)
        gradients = torch.autograd.grad(odds, added)
    return [calls[place] for place in range(len(subject.sites))], list(gradients)


def _log_odds(logits: Float[Tensor, "n classes"], data: Sequences) -> Float[Tensor, ""]:
    """Sum over sequences of the mean log odds of their targets."""
    targets = data.targets[data.scored][:, None]
    others = logits.float().scatter(1, targets, -torch.inf).logsumexp(1)
    odds = logits.float().gather(1, targets)[:, 0] - others
    scored = data.scored.sum(1, keepdim=True).expand_as(data.scored)[data.scored]
    return (odds / scored).sum()


class _Effects:
    """First-order effects of changes of one module's heads, computed for all its heads at once."""

    def __init__(self, heads: RotatedHeads, gradient: Float[Tensor, "b t f"], means: SiteMeans) -> None:
        self.heads, self.gradient, self.means = heads, gradient, means
        self.known: dict[str, Float[np.ndarray, " h"]] = {}

    def of(self, change: HeadAblation) -> float:
        """The sum over sequences of the effect of one change."""
        if change.fill not in self.known:
            self.known[change.fill] = self._of_all(change.fill)
        return float(self.known[change.fill][change.head])

    @torch.no_grad()
    def _of_all(self, fill: str) -> Float[np.ndarray, " h"]:
        intact = self.heads.intact()
        changed = torch.zeros_like(intact) if fill == "zero" else self.heads.output(fill, self.means)
        terms = (self.gradient * (changed - intact)).unflatten(-1, (self.heads.call.q.shape[1], -1))
        return terms.sum(-1).abs().sum((0, 1)).double().cpu().numpy()
