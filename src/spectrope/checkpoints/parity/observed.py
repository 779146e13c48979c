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
    """

    logs: Float[Tensor, "n m k"]
    ids: Int[Tensor, "n m k"] | None = None

    def __post_init__(self) -> None:
        if not bool(torch.isfinite(self.logs if self.ids is None else self.logs[self.ids != NO_TOKEN]).all()):
            raise ConfigError("a runtime reports log-probabilities that are not finite.")

    def of(self, ids: Int[Tensor, "n m k"]) -> Float[Tensor, "n m k"]:
        """The logarithms of these tokens, NaN where they are not reported."""
        missing = ids == NO_TOKEN
        if self.ids is None:
            return self.logs.gather(-1, ids.clamp(min=0)).masked_fill(missing, torch.nan)
        same = (ids[..., :, None] == self.ids[..., None, :]) & ~missing[..., None]
        logs = torch.where(same, self.logs[..., None, :], 0.0).sum(-1)
        return logs.masked_fill(~same.any(-1), torch.nan)

    def best(self, k: int) -> Int[Tensor, "n m k"]:
        """The k most probable tokens, or as many as are reported."""
        logs = self.logs if self.ids is None else self.logs.masked_fill(self.ids == NO_TOKEN, -torch.inf)
        places = logs.topk(min(k, logs.shape[-1]), dim=-1).indices
        return places if self.ids is None else self.ids.gather(-1, places)


def divergence(p: Observed, q: Observed) -> Float[Tensor, "n m"]:
    r"""Kullback-Leibler divergence of q from p, in nats: :math:`\sum_i p_i \log(p_i / q_i)`.

    Where one of them reports some tokens only, the others count as one token, and the divergence of these
    coarser distributions is a lower bound of the whole.
    """
    if p.ids is None and q.ids is None:
        return (p.logs.exp() * (p.logs - q.logs)).sum(-1).clamp(min=0)
    ids = p.ids if p.ids is not None else q.ids
    assert ids is not None
    a, b = p.of(ids), q.of(ids)
    known = ~(a.isnan() | b.isnan())
    a, b = (x.masked_fill(~known, -torch.inf) for x in (a, b))
    terms = torch.where(known, a.exp() * (a - b), 0.0).sum(-1)
    rest_a, rest_b = ((1 - x.exp().sum(-1)).clamp(min=REST) for x in (a, b))
    return (terms + rest_a * (rest_a / rest_b).log()).clamp(min=0)


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
