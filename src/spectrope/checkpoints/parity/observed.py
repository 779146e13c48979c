"""Next-token predictions of a runtime, complete or for a few tokens, and measures of their difference."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from spectrope.core import ConfigError

NO_TOKEN = -1  # Fills rows of a runtime that reports fewer tokens at some places.
REST = 1e-9  # Smallest probability of the tokens that are not reported.


@dataclass(frozen=True, eq=False)
class Observed:
    """Logarithms of next-token probabilities after some tokens of some prompts.

    Args:
        logs: In nats, with shape (n, m, k).
        ids: Which tokens these are, `NO_TOKEN` for none, with that shape; None where k is the vocabulary.
        unnamed: The largest logarithm reported of tokens whose ids are not known, minus infinity for none,
            with shape (n, m); None where there are none.
    """

    logs: Float[Tensor, "n m k"]
    ids: Int[Tensor, "n m k"] | None = None
    unnamed: Float[Tensor, "n m"] | None = None

    def __post_init__(self) -> None:
        reported = self.logs if self.ids is None else self.logs[self.ids != NO_TOKEN]
        unknown = self.unnamed is not None and bool(self.unnamed.isnan().any())
        if unknown or not bool(torch.isfinite(reported).all()):
            raise ConfigError("a runtime reports log-probabilities that are not finite.")

    def first(self, n: int) -> "Observed":
        """The same after the first n prompts."""
        ids, unnamed = (None if x is None else x[:n] for x in (self.ids, self.unnamed))
        return Observed(self.logs[:n], ids, unnamed)

    def of(self, ids: Int[Tensor, "n m k"]) -> Float[Tensor, "n m k"]:
        """The logarithms of these tokens, NaN where they are not reported."""
        missing = ids == NO_TOKEN
        if self.ids is None:
            return self.logs.gather(-1, ids.clamp(min=0)).masked_fill(missing, torch.nan)
        same = (ids[..., :, None] == self.ids[..., None, :]) & ~missing[..., None]
        logs = torch.where(same, self.logs[..., None, :], 0.0).sum(-1)
        return logs.masked_fill(~same.any(-1), torch.nan)

    def most(self) -> Float[Tensor, "n m"]:
        """The largest probability that a token may have which is not reported.

        The most probable ones are reported: it is at most the smallest of theirs and what they leave.
        """
        if self.ids is None:
            return torch.zeros_like(self.logs[..., 0])
        missing = self.ids == NO_TOKEN
        smallest = self.logs.masked_fill(missing, 0.0).amin(-1)
        if self.unnamed is not None:
            smallest = torch.maximum(smallest, self.unnamed)
        left = 1 - self.logs.exp().masked_fill(missing, 0.0).sum(-1)
        return torch.minimum(smallest.exp(), left).clamp(min=REST)

    def best(self, k: int) -> Int[Tensor, "n m k"]:
        """The k most probable tokens, or as many as are reported."""
        logs = self.logs if self.ids is None else self.logs.masked_fill(self.ids == NO_TOKEN, -torch.inf)
        places = logs.topk(min(k, logs.shape[-1]), dim=-1).indices
        return places if self.ids is None else self.ids.gather(-1, places)


def divergence(p: Observed, q: Observed) -> Float[Tensor, "n m"]:
    r"""Kullback-Leibler divergence of q from p, in nats: :math:`\sum_i p_i \log(p_i / q_i)`.

    Where one of them reports some tokens only, the others count as one token, and the divergence of these
    coarser distributions is a lower bound of the whole. Where both do, tokens that one of them reports stay
    apart, and the other is taken to give them those probabilities up to `Observed.most` at which the
    divergence is least. This is a lower bound for the tokens of p, and another for those of q; the larger one
    is returned.
    """
    if p.ids is None and q.ids is None:
        return (p.logs.exp() * (p.logs - q.logs)).sum(-1).clamp(min=0)
    ids = p.ids if p.ids is not None else q.ids
    assert ids is not None
    a, b = p.of(ids), q.of(ids)
    known = ~(a.isnan() | b.isnan())
    a, b = (x.masked_fill(~known, -torch.inf) for x in (a, b))
    terms = torch.where(known, a.exp() * (a - b), 0.0).sum(-1)
    left_a, left_b = ((1 - x.exp().sum(-1)).clamp(min=REST) for x in (a, b))
    if p.ids is None or q.ids is None:
        return (terms + left_a * (left_a / left_b).log()).clamp(min=0)
    of_p = _least(_alone(p, q), left_a, left_b, q.most(), capped_second=True)
    of_q = _least(_alone(q, p), left_b, left_a, p.most(), capped_second=False)
    return (terms + torch.maximum(of_p, of_q)).clamp(min=0)


def _alone(p: Observed, q: Observed) -> Float[Tensor, "n m k"]:
    """Probabilities of the tokens of p that q does not report, in falling order; 0 for others."""
    assert p.ids is not None
    apart = q.of(p.ids).isnan() & (p.ids != NO_TOKEN)
    return p.logs.exp().masked_fill(~apart, 0.0).sort(-1, descending=True).values


def _least(
    alone: Float[Tensor, "n m k"],
    left: Float[Tensor, "n m"],
    others: Float[Tensor, "n m"],
    most: Float[Tensor, "n m"],
    *,
    capped_second: bool,
) -> Float[Tensor, "n m"]:
    r"""Least divergence over the tokens that are not shared, of which one side reports some.

    The other side's probabilities are least different when they are proportional to those reported, except
    for the j largest, which would exceed the bound and get it: :math:`\min(u, c\,x_i)`, with the c for which
    they sum to what that side leaves, and the smallest j for which no other exceeds the bound u.

    Args:
        alone: Probabilities :math:`x_i` of tokens that one side alone reports, in falling order.
        left: What that side leaves to all tokens that are not shared.
        others: What the other side leaves to them.
        most: The bound u on the other side's probability of each.
        capped_second: Whether the other side is the second argument of the divergence.
    """
    zero = torch.zeros_like(alone[..., :1])
    above = torch.cat([zero, alone.cumsum(-1)], -1)
    count = torch.arange(above.shape[-1], dtype=alone.dtype)
    below = (left[..., None] - above).clamp(min=REST)
    remaining = (others[..., None] - count * most[..., None]).clamp(min=REST)
    factors = remaining / below
    fits = factors * torch.cat([alone, zero], -1) <= most[..., None]
    j = fits.double().argmax(-1, keepdim=True)  # The first; the last one always fits.
    capped = torch.arange(alone.shape[-1]) < j
    ratios = torch.where(capped, (alone.clamp(min=REST) / most[..., None]).log(), 0.0)
    factor = factors.gather(-1, j)[..., 0].log()
    if capped_second:
        return (alone * ratios).sum(-1) - below.gather(-1, j)[..., 0] * factor
    return remaining.gather(-1, j)[..., 0] * factor - (most[..., None] * ratios).sum(-1)


def shared(p: Observed, q: Observed) -> Float[Tensor, "n m"]:
    """Probability of the tokens that both report, by the one that gives them less."""
    some = p if p.ids is not None else q
    if some.ids is None:
        return torch.ones_like(p.logs[..., 0])
    both = [one.of(some.ids) for one in (p, q)]
    missing = both[0].isnan() | both[1].isnan()
    first, second = (x.exp().masked_fill(missing, 0.0).sum(-1) for x in both)
    return torch.minimum(first, second)


def agreement(p: Observed, q: Observed, k: int) -> Float[Tensor, "n m"]:
    """Share of the k most probable tokens of p that are among the k most probable of q.

    NaN where either reports fewer than k tokens.
    """
    first, second = p.best(k), q.best(k)
    shared = (first[..., :, None] == second[..., None, :]).any(-1).double().mean(-1)
    few = (first == NO_TOKEN).any(-1) | (second == NO_TOKEN).any(-1)
    return shared.masked_fill(few | (first.shape[-1] < k), torch.nan)


def rank_correlations(p: Observed, q: Observed, k: int) -> Float[np.ndarray, "n m"]:
    """Spearman's correlation over the k most probable tokens of p, NaN where q reports fewer than three."""
    ids = p.best(k)
    a, b = p.of(ids).numpy(), q.of(ids).numpy()
    found = np.full(a.shape[:2], np.nan)
    for place in np.ndindex(*a.shape[:2]):
        known = ~np.isnan(a[place]) & ~np.isnan(b[place])
        x, y = a[place][known], b[place][known]
        if len(x) > 2 and np.ptp(x) > 0 and np.ptp(y) > 0:
            found[place] = np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]
    return found
