"""Polynomial attention under any lag bias: features times convolutions by FFT, in float64."""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.attention.base import IMPLEMENTATIONS, Implementation, attention
from spectrope.core.errors import UnsupportedError
from spectrope.core.noise import Noise
from spectrope.encodings.base import Context, Encoding, Form
from spectrope.fast.certificate import Certificate, Setting, measure
from spectrope.fast.certified import moved
from spectrope.fast.lag_weights import require_consecutive
from spectrope.fast.plan import FORMS, TOLERANCE, cheapest, rotated
from spectrope.fast.toeplitz_sums import Terms, normalised

FFT_STEP = 16  # Units of rounding per doubling of the length that a transform may lose, in the 2-norm.
SHARE = 1e-3  # Of the tolerance that transforms may take.


@dataclass(frozen=True)
class Lags:
    """Weights of lags 1 - i, ..., j - 1, (h, lags), at most 1, and the least weight that a query sees."""

    weights: Float[Tensor, "h lags"]
    least: float


def lag_table(ctx: Context, encoding: Encoding, causal: bool) -> Lags:
    """The exponential of an encoding's lag bias, less each head's largest, 0 where it is not seen.

    Raises:
        UnsupportedError: If positions are not consecutive and shared.
    """
    require_consecutive(ctx)
    n_q, n_k, heads = ctx.q.shape[-2], ctx.k.shape[-2], ctx.q.shape[1]
    lags = torch.arange(1 - n_q, n_k, dtype=torch.float64, device=ctx.q.device)
    if encoding.form is Form.DOT:
        bias = lags.new_zeros(heads, len(lags))
    else:
        bias = encoding.lag_bias(lags).double().T.expand(heads, -1)
    seen = (lags >= 0) | (not causal)
    bias = bias - bias[:, seen].detach().amax(1, keepdim=True)
    nearest = bias[:, seen] if ctx.mask is not None or n_q > n_k else bias[:, n_q - 1, None]
    least = float(nearest.detach().amin().exp())
    return Lags(torch.where(seen, bias, -torch.inf).exp(), least)


def transform_bound(found: Certificate, norm: float, lags: Lags, n_k: int) -> float:
    r"""What transforms add to an output, in units of max|v|.

    A transform of L points is taken to lose at most :math:`\rho = 16 u \log_2 L` of a vector's 2-norm
    (Higham, 2002, Thm. 24.2, with a wide margin for radices other than 2). Then a convolution of t with x is
    off by :math:`\rho(\|t\|_2\|x\|_1 + 2\|t\|_1\|x\|_2) \le 3\sqrt{2 n}\,\rho\,\|t\|_2\|x\|_2`. By
    Cauchy-Schwarz the sum over features, which adds a unit for each, is off by that with
    :math:`\sqrt n \sum_m |a_m| N^m \max|v|` for :math:`\|x\|_2`, N bounding :math:`|q||k|`. Numerator and
    denominator both are, and the denominator is at least :math:`(1-\epsilon)e^{-B}` times the least weight of
    a key that is seen.
    """
    polynomial, n = found.polynomial, max(n_k, lags.weights.shape[1] + 1 - n_k)
    unit = torch.finfo(torch.float64).eps / 2
    lost = unit * (FFT_STEP * math.log2(4 * n) + found.features)
    energy = float(lags.weights.detach().square().sum(1).max()) ** 0.5
    moduli = polynomial.magnitude(norm)
    least = (1 - polynomial.error_bound) * math.exp(-polynomial.reach) * lags.least
    share = 3.3 * 2**0.5 * lost * n * energy * moduli / max(least, 1e-300)
    return 2 * share / (1 - share) if share < 0.5 else math.inf


def toeplitz_fft(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Attention within the default tolerance under rotation and any lag bias, whose gradient is taken too.

    Raises:
        UnsupportedError: If some head's logits reach too far for any degree, or transforms lose too much.
    """
    if ctx.q.numel() == 0:
        return attention(ctx, v, encoding, causal=causal, impl="fastest")
    wide = replace(ctx, q=ctx.q.double(), k=ctx.k.double())
    turned, lags = rotated(wide, encoding), lag_table(wide, encoding, causal)
    geometry, n_k = measure(turned.q, turned.k, turned.keys, negligible=TOLERANCE), ctx.k.shape[-2]
    setting = Setting(max(ctx.q.shape[-2], n_k), ctx.q.shape[-1], torch.float64, v.dtype)
    k, values = (_visible(x, turned.keys) for x in (turned.k, v.double()))
    outputs, blind = [], _blind(ctx, turned.keys, causal)
    for head in range(ctx.q.shape[1]):
        found = cheapest(geometry, head, (1 - SHARE) * TOLERANCE, setting)
        norm = float(geometry.norm_bound[head])
        if found is None or transform_bound(found, norm, lags, n_k) > SHARE * TOLERANCE:
            reach = float(geometry.reach_bound[head])
            raise UnsupportedError(
                f"attention impl 'toeplitz_fft' cannot serve head {head} within {TOLERANCE:g}: its logits "
                f"reach {reach:.3g}, its weights of lags fall to {lags.least:.1e}."
            )
        near_q, near_k = moved(replace(turned, k=k), geometry, [head], found.rank)
        weights = lags.weights[[head]]
        outputs.append(_head(near_q, near_k, values[:, [head]], weights, turned.keys, blind, found))
    return torch.cat(outputs, 1).to(v.dtype)


def _visible(x: Tensor, keys: Tensor | None) -> Tensor:
    """What is at keys that may be seen, and 0 at others."""
    return x if keys is None else torch.where(keys[:, None, :, None], x, 0.0)


def _blind(ctx: Context, keys: Tensor | None, causal: bool) -> Bool[Tensor, "b i"]:
    """Which queries see no key at all."""
    n_q, n_k = ctx.q.shape[-2], ctx.k.shape[-2]
    seen = torch.ones(len(ctx.q), n_k, device=ctx.q.device) if keys is None else keys.double()
    if not causal:
        return (seen.sum(1, keepdim=True) == 0).expand(-1, n_q)
    before = F.pad(seen.cumsum(1), (max(0, n_q - n_k), 0))
    return before[:, -n_q:] == 0


def _head(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lags: Tensor,
    keys: Tensor | None,
    blind: Tensor,
    found: Certificate,
) -> Float[Tensor, "b 1 i e"]:
    """One head, with the features of its certificate."""

    def expand(some: Terms) -> tuple[Tensor, Tensor, Tensor]:
        return some.products(q), _visible(some.products(k), keys), lags[:, None]

    return normalised(Terms.of(found.rank, found.polynomial.coefficients), expand, v, q.shape[2], blind)


IMPLEMENTATIONS.register(
    "toeplitz_fft", Implementation(toeplitz_fft, forms=FORMS, dropout=False, exact=False)
)
