"""What attention takes on this machine: two short measurements, and how they grow with the length."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F

from spectrope.core.timing import seconds
from spectrope.fast.polynomial import polynomial_attention
from spectrope.fast.running_sums import Rule

EXACT_LENGTH, CHUNKS, REPEATS = 1024, 4, 2


@dataclass(frozen=True)
class Cost:
    """What a prediction depends on beside the polynomial.

    Args:
        queries: Shape of the queries, (b, h, i, d); values are taken to be as wide.
        n_keys: Keys of each head.
        causal: Whether queries see the past alone.
        biased: Whether there is a lag bias: an additive mask to the exact kernel.
        device: Where it runs.
    """

    queries: tuple[int, ...]
    n_keys: int
    causal: bool
    biased: bool
    device: torch.device


def exact_seconds(cost: Cost) -> float:
    """Predicted time of torch's exact kernel for one head of all examples."""
    batch, _, n, dim = cost.queries
    pairs = n * cost.n_keys * batch
    return pairs * _exact_per_pair(dim, cost.causal and not cost.biased, cost.biased, cost.device)


def fast_seconds(cost: Cost, rank: int, degree: int) -> float:
    """Predicted time of polynomial attention for one head of all examples."""
    batch, _, n, dim = cost.queries
    sweeps = 1 if cost.causal or not cost.biased else 2
    scan = cost.causal or cost.biased
    return sweeps * batch * max(n, cost.n_keys) * _fast_per_token(dim, rank, degree, scan, cost.device)


@lru_cache(maxsize=64)
def _exact_per_pair(dim: int, causal: bool, biased: bool, device: torch.device) -> float:
    q, k, v = torch.randn(3, 1, 1, EXACT_LENGTH, dim, device=device)
    bias = torch.zeros(1, 1, EXACT_LENGTH, EXACT_LENGTH, device=device) if biased else None
    call = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=causal)  # noqa: E731
    return _least_seconds(call, device) / EXACT_LENGTH**2


@lru_cache(maxsize=256)
def _fast_per_token(dim: int, rank: int, degree: int, causal: bool, device: torch.device) -> float:
    rule = Rule((1.0,) * (degree + 1), causal)
    n = CHUNKS * rule.chunk(rank)
    q, k = torch.randn(2, 1, 1, n, rank, device=device) / rank
    v = torch.randn(1, 1, n, dim, device=device)
    return _least_seconds(lambda: polynomial_attention(q, k, v, rule), device) / n


def _least_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Of a few runs after an untimed one."""
    with torch.no_grad():
        return min([seconds(call, device) for _ in range(REPEATS + 1)][1:])
