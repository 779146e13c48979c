r"""Polynomial attention under any lag bias: sums of Toeplitz matrices between diagonal ones, applied by FFT.

The matrix of weights :math:`T(i-j)\,P(\langle q_i, k_j\rangle)` is
:math:`\sum_m w_m D_{\phi_m(q)}\,T\,D_{\phi_m(k)}` over the monomials m of P, and each term is a convolution
(Fast Gradient Computation for RoPE Attention in Almost Linear Time, arXiv 2505.11892; Alman and Song, 2023).
Everything is computed in float64. Memory is linear in the length; the backward pass computes all terms anew.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spectrope.attention import IMPLEMENTATIONS, Implementation, attention
from spectrope.core import Noise, UnsupportedError
from spectrope.encodings import Context, Encoding, Form
from spectrope.fast.certificate import Certificate, RoundingSetting, bound_logits
from spectrope.fast.lag_weights import require_consecutive
from spectrope.fast.monomials import multinomials
from spectrope.fast.planning import FORMS, TOLERANCE, fewest_features, rotated
from spectrope.fast.polynomial import projected
from spectrope.spectral import fast_length

TERM_ENTRIES = 2**22  # Of the transforms taken at once, which bounds memory.
FFT_STEP = 16  # Units of rounding per doubling of the length that a transform may lose, in the 2-norm.
SHARE = 1e-3  # Of the tolerance that transforms may take.


@dataclass(frozen=True)
class Terms:
    """Monomials of up to some degree in s variables, as products of the same number of factors.

    Args:
        factors: The variable of each factor, counted from 1, or 0 for the constant 1: (terms, degree).
        weights: Coefficients with which the monomials sum to the polynomial of the variables' sum.
    """

    factors: Int[Tensor, "terms degree"]
    weights: Float[Tensor, " terms"]

    @classmethod
    def of(cls, variables: int, coefficients: tuple[float, ...]) -> "Terms":
        """The expansion of :math:`P(x_1 + ... + x_s)`: C(s + g, g) terms."""
        degree = len(coefficients) - 1
        factors = torch.combinations(torch.arange(variables + 1), degree, with_replacement=True)
        factors = factors.view(-1, degree)
        powers = F.one_hot(factors, variables + 1).sum(1)[:, 1:]
        constants = torch.tensor(coefficients, dtype=torch.float64)[powers.sum(1)]
        return cls(factors, constants * multinomials(powers))

    def chunks(self, size: int) -> Iterator["Terms"]:
        """A few terms at a time."""
        pairs = zip(self.factors.split(size), self.weights.split(size), strict=True)
        return (Terms(factors, weights) for factors, weights in pairs)

    def products(self, x: Float[Tensor, "*batch s"]) -> Float[Tensor, "*batch terms"]:
        """Every monomial of some variables."""
        with_one = torch.cat([torch.ones_like(x[..., :1]), x], -1)
        return with_one[..., self.factors.to(x.device)].prod(-1)


@dataclass(frozen=True)
class LagTable:
    """Weights of lags 1 - i, ..., j - 1, (h, lags), at most 1, and the least weight that a query sees."""

    weights: Float[Tensor, "h lags"]
    least: float


def lag_table(ctx: Context, encoding: Encoding, causal: bool) -> LagTable:
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
    return LagTable(torch.where(seen, bias, -torch.inf).exp(), least)


def transform_bound(certificate: Certificate, norm: float, lags: LagTable, n_k: int) -> float:
    r"""What transforms add to an output, in units of max|v|.

    A transform of L points is taken to lose at most :math:`\rho = 16 u \log_2 L` of a vector's 2-norm
    (Higham, 2002, Thm. 24.2, with a wide margin for radices other than 2). Then a convolution of t with x is
    off by :math:`\rho(\|t\|_2\|x\|_1 + 2\|t\|_1\|x\|_2) \le 3\sqrt{2 n}\,\rho\,\|t\|_2\|x\|_2`. By
    Cauchy-Schwarz the sum over features, which adds a unit for each, is off by that with
    :math:`\sqrt n \sum_m |a_m| N^m \max|v|` for :math:`\|x\|_2`, N bounding :math:`|q||k|`. Numerator and
    denominator both are, and the denominator is at least :math:`(1-\epsilon)e^{-B}` times the least weight of
    a key that is seen.
    """
    polynomial, n = certificate.polynomial, max(n_k, lags.weights.shape[1] + 1 - n_k)
    unit = torch.finfo(torch.float64).eps / 2
    lost = unit * (FFT_STEP * math.log2(4 * n) + certificate.features)
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
    bounds, n_k = bound_logits(turned.q, turned.k, turned.keys, negligible=TOLERANCE), ctx.k.shape[-2]
    setting = RoundingSetting(max(ctx.q.shape[-2], n_k), ctx.q.shape[-1], torch.float64, v.dtype)
    k, values = (_visible(x, turned.keys) for x in (turned.k, v.double()))
    outputs, blind = [], _blind(ctx, turned.keys, causal)
    for head in range(ctx.q.shape[1]):
        certificate = fewest_features(bounds, head, (1 - SHARE) * TOLERANCE, setting)
        norm = float(bounds.norm_bound[head])
        if certificate is None or transform_bound(certificate, norm, lags, n_k) > SHARE * TOLERANCE:
            reach = float(bounds.reach_bound[head])
            raise UnsupportedError(
                f"attention impl 'toeplitz_fft' cannot serve head {head} within {TOLERANCE:g}: its logits "
                f"reach {reach:.3g}, its weights of lags fall to {lags.least:.1e}."
            )
        of_head = projected(replace(turned, k=k), bounds, [head], certificate.rank)
        terms = Terms.of(certificate.rank, certificate.polynomial.coefficients)
        lag_row = lags.weights[[head]]
        outputs.append(normalised(terms, *of_head, values[:, [head]], lag_row, blind, turned.keys))
    return torch.cat(outputs, 1).to(v.dtype)


def _visible(x: Tensor, keys: Tensor | None) -> Tensor:
    """The values at keys that may be seen, and 0 at others."""
    return x if keys is None else torch.where(keys[:, None, :, None], x, 0.0)


def _blind(ctx: Context, keys: Tensor | None, causal: bool) -> Bool[Tensor, "b i"]:
    """Queries that attend to no key."""
    n_q, n_k = ctx.q.shape[-2], ctx.k.shape[-2]
    seen = torch.ones(len(ctx.q), n_k, device=ctx.q.device) if keys is None else keys.double()
    if not causal:
        return (seen.sum(1, keepdim=True) == 0).expand(-1, n_q)
    before = F.pad(seen.cumsum(1), (max(0, n_q - n_k), 0))
    return before[:, -n_q:] == 0


def normalised(
    terms: Terms,
    q: Float[Tensor, "b h i s"],
    k: Float[Tensor, "b h j s"],
    v: Float[Tensor, "b h j e"],
    lags: Float[Tensor, "h lags"],
    blind: Bool[Tensor, "b i"],
    keys: Bool[Tensor, "b j"] | None = None,
) -> Float[Tensor, "b h i e"]:
    """Weighted means of the values; 0, with no gradient, at queries that are blind.

    Args:
        terms: The expansion of the polynomial.
        q: Queries.
        k: Keys, 0 where they may not be seen.
        v: Values, 0 where they may not be seen.
        lags: Weights of lags 1 - i, ..., j - 1.
        blind: Queries that see no key.
        keys: True at keys that may be seen; None allows all.
    """
    u, points = F.pad(v, (0, 1), value=1.0), fast_length(q.shape[2] + k.shape[2] - 1)
    spectrum = torch.fft.rfft(lags, points)
    size = max(1, TERM_ENTRIES // (u.shape[0] * u.shape[1] * u.shape[3] * points))
    sums = u.new_zeros(*q.shape[:3], u.shape[3])
    for some in terms.chunks(size):
        part = checkpoint(_sum_of_terms, some, q, k, u, spectrum, keys, points, use_reentrant=False)
        assert isinstance(part, Tensor)
        sums = sums + part
    hidden = blind[:, None, :, None]  # masked before the division, as the gradient of 0 / 0 is NaN
    return sums[..., :-1].masked_fill(hidden, 0.0) / sums[..., -1:].masked_fill(hidden, 1.0)


def _sum_of_terms(
    terms: Terms,
    q: Float[Tensor, "b h i s"],
    k: Float[Tensor, "b h j s"],
    u: Float[Tensor, "b h j e"],
    spectrum: Complex[Tensor, "h frequencies"],
    keys: Bool[Tensor, "b j"] | None,
    points: int,
) -> Float[Tensor, "b h i e"]:
    r""":math:`\sum_m w_m \phi_m(q_i) \sum_j T(i-j)\,\phi_m(k_j)\,u_j` over some terms m."""
    features = _visible(terms.products(k), keys)
    payload = (features[..., None] * u[..., None, :]).movedim(2, -1)  # (b, h, m, e, j)
    product = torch.fft.rfft(payload, points) * spectrum[:, None, None]
    n_q, n_k = q.shape[2], k.shape[2]
    seen = torch.fft.irfft(product, points)[..., n_k - 1 : n_k - 1 + n_q]
    return torch.einsum("bhim,bhmei->bhie", terms.products(q) * terms.weights.to(q), seen)


IMPLEMENTATIONS.register(
    "toeplitz_fft", Implementation(toeplitz_fft, forms=FORMS, dropout=False, exact=False)
)
