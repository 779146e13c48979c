r"""Polynomial attention under any lag bias: sums of Toeplitz matrices between diagonal ones, applied by FFT.

The matrix of weights :math:`T(i-j)\,P(\langle q_i, k_j\rangle)` is
:math:`\sum_m w_m D_{\phi_m(q)}\,T\,D_{\phi_m(k)}` over the monomials m of P, and each term is a convolution.
Everything is computed in float64. Memory is linear in the length; the backward pass computes all terms anew.

References:
    Fast RoPE Attention: Combining the Polynomial Method and Fast Fourier Transform (Alman and Song, 2025),
    arXiv 2505.11892; for the gradient, Fast Gradient Computation for RoPE Attention in Almost Linear Time,
    arXiv 2412.17316.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spectrope.attention import IMPLEMENTATIONS, Implementation, attention
from spectrope.core import Noise, UnsupportedError
from spectrope.encodings import Context, Encoding
from spectrope.fast.certificate import RoundingSetting, bound_logits
from spectrope.fast.costs import TERM_ENTRIES
from spectrope.fast.monomials import multinomials
from spectrope.fast.planning import TOLERANCE, AttentionPlan, HeadPlan, fft_certificate
from spectrope.fast.rotation import FORMS, Rotated, projected, rotated, visible
from spectrope.fast.transforms import lag_table
from spectrope.spectral import fast_length


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


class LagSpectra(ABC):
    """Transforms of the Toeplitz matrices that stand between the diagonal ones of each term."""

    @abstractmethod
    def of_terms(self, terms: Terms, points: int) -> Complex[Tensor, "h terms frequencies"]:
        """The transform of each term's weights of lags; one for all terms where they share it."""


@dataclass(frozen=True)
class SharedLags(LagSpectra):
    """The same weights of lags in every term, (h, lags)."""

    weights: Float[Tensor, "h lags"]

    def of_terms(self, terms: Terms, points: int) -> Complex[Tensor, "h 1 frequencies"]:
        return torch.fft.rfft(self.weights, points)[:, None]


def toeplitz_fft(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Attention within the default tolerance under rotation and any lag bias, whose gradient is taken too.

    Raises:
        UnsupportedError: If some head's logits reach too far for any degree, or transforms lose too much.
    """
    if ctx.q.numel() == 0:
        return attention(ctx, v, encoding, causal=causal, impl="fastest")
    wide = replace(ctx, q=ctx.q.double(), k=ctx.k.double())
    turned, lags = rotated(wide, encoding), lag_table(wide, encoding, causal)
    bounds, sizes = bound_logits(turned.q, turned.k, turned.keys, negligible=TOLERANCE), lags.sizes
    setting = RoundingSetting(sizes.length, ctx.q.shape[-1], torch.float64, v.dtype)
    k, values = (visible(x, turned.keys) for x in (turned.k, v.double()))
    outputs, blind = [], sees_nothing(ctx, turned.keys, causal)
    for head in range(ctx.q.shape[1]):
        certificate = fft_certificate(bounds, head, TOLERANCE, setting, sizes)
        if certificate is None:
            reach = float(bounds.reach_bound[head])
            raise UnsupportedError(
                f"attention impl 'toeplitz_fft' cannot serve head {head} within {TOLERANCE:g}: its logits "
                f"reach {reach:.3g}, its weights of lags fall to {lags.least:.1e}."
            )
        of_head = projected(replace(turned, k=k), bounds, [head], certificate.rank)
        terms = Terms.of(certificate.rank, certificate.polynomial.coefficients)
        row = SharedLags(lags.weights[[head]])
        outputs.append(normalised(terms, *of_head, values[:, [head]], row, blind, turned.keys))
    return torch.cat(outputs, 1).to(v.dtype)


def fft_head(
    ctx: Context, turned: Rotated, v: Tensor, encoding: Encoding, made: AttentionPlan, head: HeadPlan
) -> Float[Tensor, "b 1 i e"]:
    """One head of a plan, by Toeplitz terms."""
    assert made.bounds is not None
    assert head.certificate is not None
    keys, certificate = turned.keys, head.certificate
    wide = Rotated(turned.q.double(), visible(turned.k.double(), keys), keys)
    q, k = projected(wide, made.bounds, [head.head], certificate.rank)
    terms = Terms.of(certificate.rank, certificate.polynomial.coefficients)
    row = SharedLags(lag_table(ctx, encoding, made.causal).weights[[head.head]])
    values = visible(v[:, [head.head]].double(), keys)
    return normalised(terms, q, k, values, row, sees_nothing(ctx, keys, made.causal), keys).to(v.dtype)


def sees_nothing(ctx: Context, keys: Tensor | None, causal: bool) -> Bool[Tensor, "b i"]:
    """Mask of queries that attend to no key."""
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
    lags: LagSpectra,
    blind: Bool[Tensor, "b i"],
    keys: Bool[Tensor, "b j"] | None = None,
) -> Float[Tensor, "b h i e"]:
    """Weighted means of the values; 0, with no gradient, at queries that are blind.

    Args:
        terms: The expansion of the polynomial.
        q: Queries.
        k: Keys, 0 where they may not be seen.
        v: Values, 0 where they may not be seen.
        lags: Transforms of the weights of lags 1 - i, ..., j - 1.
        blind: Queries that see no key.
        keys: True at keys that may be seen; None allows all.
    """
    u, points = F.pad(v, (0, 1), value=1.0), fast_length(q.shape[2] + k.shape[2] - 1)
    size = max(1, TERM_ENTRIES // (u.shape[0] * u.shape[1] * u.shape[3] * points))
    sums = u.new_zeros(*q.shape[:3], u.shape[3])
    for some in terms.chunks(size):
        part = checkpoint(_sum_of_terms, some, q, k, u, lags, keys, points, use_reentrant=False)
        assert isinstance(part, Tensor)
        sums = sums + part
    hidden = blind[:, None, :, None]  # masked before the division, as the gradient of 0 / 0 is NaN
    return sums[..., :-1].masked_fill(hidden, 0.0) / sums[..., -1:].masked_fill(hidden, 1.0)


def _sum_of_terms(
    terms: Terms,
    q: Float[Tensor, "b h i s"],
    k: Float[Tensor, "b h j s"],
    u: Float[Tensor, "b h j e"],
    lags: LagSpectra,
    keys: Bool[Tensor, "b j"] | None,
    points: int,
) -> Float[Tensor, "b h i e"]:
    r""":math:`\sum_m w_m \phi_m(q_i) \sum_j T_m(i-j)\,\phi_m(k_j)\,u_j` over some terms m."""
    features = visible(terms.products(k), keys)
    payload = (features[..., None] * u[..., None, :]).movedim(2, -1)  # (b, h, m, e, j)
    product = torch.fft.rfft(payload, points) * lags.of_terms(terms, points)[:, :, None]
    n_q, n_k = q.shape[2], k.shape[2]
    seen = torch.fft.irfft(product, points)[..., n_k - 1 : n_k - 1 + n_q]
    return torch.einsum("bhim,bhmei->bhie", terms.products(q) * terms.weights.to(q), seen)


IMPLEMENTATIONS.register(
    "toeplitz_fft", Implementation(toeplitz_fft, forms=FORMS, dropout=False, exact=False)
)
