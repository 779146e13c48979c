r"""Weights of lags under a lag bias, :math:`T(n)=e^{b(n)}`, that decay exponentially from some lag on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.encodings import Context, Encoding

STRAIGHT = 1e-6  # Logit units by which a bias may leave its straight tail; part of the certificate.
LONGEST_NEAR = 2048
DEEPEST = 60.0  # Logit units: sums of weights down to e^-60 are far from the end of float32.


@dataclass(frozen=True)
class Tail:
    r"""Weights from distance :math:`n_0`, the start, on: :math:`e^{\text{level} - \text{rate}\,(n - n_0)}`.

    The level is that of the start, which no weight exceeds: at distance 0 the line may be beyond any float.
    """

    start: int
    rate: Float[Tensor, " h"]
    level: Float[Tensor, " h"]


@dataclass(frozen=True)
class LagWeights:
    """Logarithms of the weights of lags, per head, less each head's largest.

    Args:
        logs: Of lags -(n - 1), ..., n - 1, with shape (h, 2n - 1), in float64.
        past: Weights of lags from some lag on.
        future: Weights of negative lags likewise.
        deviation: Logit units by which the tails may be off.
    """

    logs: Float[Tensor, "h lags"]
    past: Tail
    future: Tail
    deviation: float

    @property
    def n(self) -> int:
        """One more than the largest lag."""
        return (self.logs.shape[1] + 1) // 2

    @property
    def starts(self) -> tuple[int, int]:
        """Lags from which weights decay exponentially, in the past and in the future."""
        return self.past.start, self.future.start

    def of_heads(self, heads: Sequence[int]) -> "LagWeights":
        """The weights of some heads."""
        chosen = list(heads)
        past, future = (Tail(t.start, t.rate[chosen], t.level[chosen]) for t in (self.past, self.future))
        return LagWeights(self.logs[chosen], past, future, self.deviation)

    def of_lags(self, lag: Tensor, heads: Tensor) -> Tensor:
        """Weights of integer lags with any shape (*n,), for some heads: (heads, *n)."""
        return self.logs[heads][:, (lag + self.n - 1).flatten()].exp().unflatten(1, lag.shape)


def lag_weights(ctx: Context, encoding: Encoding, causal: bool) -> LagWeights:
    """The weights of an encoding's lag bias at the lengths of a context.

    Raises:
        UnsupportedError: If positions are not consecutive and shared, the bias is straight only beyond lag
            2048 or rises there, it needs a gradient, or it leaves a query with vanishing weights alone.
    """
    require_consecutive(ctx)
    n_q, n_k = ctx.q.shape[-2], ctx.k.shape[-2]
    n = max(n_q, n_k)
    lags = torch.arange(1 - n, n, dtype=torch.float64, device=ctx.q.device)
    bias = encoding.lag_bias(lags)
    if bias.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError(
            f"fast attention has no gradient for the lag bias of {type(encoding).__name__}, which needs one."
        )
    bias = bias.detach().double().T.expand(ctx.q.shape[1], -1).clone()
    seen = bias[:, n - 1 :] if causal else bias
    bias -= seen.amax(1, keepdim=True)
    nearest = seen if ctx.mask is not None or n_q > n_k else bias[:, n - 1]
    if float(nearest.amin()) < -DEEPEST:
        raise UnsupportedError(
            f"fast attention needs a lag bias within {DEEPEST:g} of its largest at the nearest key that "
            f"may be seen, which that of {type(encoding).__name__} may leave."
        )
    past, off_past = _tail(bias[:, n - 1 :], encoding)
    if causal:
        bias[:, : n - 1] = 0.0
        return LagWeights(bias, past, past, off_past)
    future, off_future = _tail(bias[:, :n].flip(1), encoding)
    return LagWeights(bias, past, future, max(off_past, off_future))


def require_consecutive(ctx: Context) -> None:
    """Refuse positions that are not consecutive.

    Raises:
        UnsupportedError: If lags are not differences of indices.
    """
    n_q, n_k = ctx.q.shape[-2], ctx.k.shape[-2]
    index = torch.arange(n_k, device=ctx.k_pos.device)
    start = ctx.k_pos[..., :1]
    keys = ((ctx.k_pos - start) == index).all()
    queries = ((ctx.q_pos - start) == torch.arange(n_k - n_q, n_k, device=index.device)).all()
    if not bool(keys & queries):
        raise UnsupportedError(
            "fast attention with a lag bias needs consecutive positions, the last query at the last key."
        )


def _tail(bias: Float[Tensor, "h n"], encoding: Encoding) -> tuple[Tail, float]:
    """The falling straight line that the bias follows from some lag on, and how closely."""
    n = bias.shape[1]
    bent = (bias.diff(n=2, dim=1).abs() > 1e-9 * (1 + bias[:, 2:].abs())).any(0).nonzero()
    start = 0 if len(bent) == 0 else int(bent[-1]) + 1
    rate = (bias[:, start] - bias[:, -1]) / max(1, n - 1 - start)
    steps = torch.arange(n - start, dtype=bias.dtype, device=bias.device)
    off = float((bias[:, start:] - bias[:, start, None] + rate[:, None] * steps).abs().max())
    if off > STRAIGHT or bool((rate < -STRAIGHT / n).any()):
        start, rate, off = n - 1, torch.zeros_like(rate), 0.0
    if start > LONGEST_NEAR:
        raise UnsupportedError(
            f"attention impl 'polynomial' needs a lag bias that is straight and does not rise beyond lag "
            f"{LONGEST_NEAR}, as that of {type(encoding).__name__} is not."
        )
    return Tail(start, rate.clamp(min=0), bias[:, start]), off


class LagDecay:
    """Exponential decay of weights with the distance from the edge at which a scan enters a chunk.

    Args:
        tail: Rates and levels of all heads.
        heads: The head of each row.
        like: Tensor with the dtype.
    """

    def __init__(self, tail: Tail, heads: Tensor, like: Tensor) -> None:
        self.start, self.dtype, self.edge = tail.start, like.dtype, 0
        self._rate = tail.rate[heads][:, None, None]
        self.level = tail.level[heads][:, None, None].exp().to(like.dtype)

    def move(self, edge: int) -> Tensor:
        """Move to another edge, and return the factor by which a state at the last one decays."""
        passed, self.edge = abs(edge - self.edge), edge
        return (-self._rate * passed).exp().to(self.dtype)

    def of_targets(self, positions: Tensor) -> Float[Tensor, "b 1 m"]:
        """Weights of positions from the edge on, without the level."""
        return (-self._rate * (positions - self.edge).abs()).exp().to(self.dtype)

    def of_sources(self, positions: Tensor) -> Float[Tensor, "b 1 m"]:
        """Weights of positions behind the edge, none of which is nearer than the tail's start."""
        return (-self._rate * ((positions - self.edge).abs() - self.start)).exp().to(self.dtype)
