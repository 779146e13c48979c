r"""The algorithm of Alman and Song for rotary attention: monomials of unrotated vectors, and FFT.

Queries and keys are not rotated. The entries of the relative rotation :math:`W_{i-j}` are Toeplitz matrices,
and a logit is a sum of O(d) products of one entry, one coordinate of the query and one of the key,

.. math:: \langle q_i, W_{i-j} k_j\rangle = \sum_r W^{(r)}_{i-j}\, q_{i,c_r} k_{j,e_r}.

A monomial of these products is a monomial of the query, times one of the key, times a product of entries,
which is a Toeplitz matrix again. So the matrix of weights is
:math:`\sum_m w_m D_{\phi_m(q)}\,T_m\,D_{\psi_m(k)}`, and FFT applies each term.

RoPE's relative rotation is a product of one of the query and one of the key. `toeplitz_fft` and `polynomial`
take these first and need fewer terms. The algorithm here needs no such product. If its factors overflow, as
those of xPos do far from the origin, the entries of W remain bounded.

References:
    Fast RoPE Attention: Combining the Polynomial Method and Fast Fourier Transform (Alman and Song, 2025),
    arXiv 2505.11892.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from spectrope.attention import IMPLEMENTATIONS, Implementation, attention
from spectrope.core import Noise, UnsupportedError
from spectrope.encodings import Context, Encoding, Tag
from spectrope.fast.certificate import Certificate, LogitBounds, RoundingSetting
from spectrope.fast.lag_weights import require_consecutive
from spectrope.fast.planning import TOLERANCE, fft_certificate
from spectrope.fast.rotation import FORMS, key_mask
from spectrope.fast.toeplitz import LagSpectra, Terms, normalised, sees_nothing, visible
from spectrope.fast.transforms import LagTable, lag_table


@dataclass(frozen=True)
class RelativeEntries:
    """The entries of a relative rotation that are not 0 at every lag.

    Args:
        query_axes: The coordinate of the query that each multiplies.
        key_axes: The coordinate of the key.
        weights: Entries of each head at lags 1 - i, ..., j - 1, 0 where they are not seen, (h, r, lags).
    """

    query_axes: Int[Tensor, " r"]
    key_axes: Int[Tensor, " r"]
    weights: Float[Tensor, "h r lags"]

    def gain(self, head: int, dim: int) -> float:
        r"""A bound of :math:`\sum_r |W^{(r)} q_{c_r} k_{e_r}| / |q||k|` in one head.

        With M the largest modulus of each entry, this is :math:`\|M\|_2 \le \sqrt{\|M\|_1 \|M\|_\infty}`. The
        latter also bounds sums of products of monomials by Cauchy-Schwarz.
        """
        largest = self.weights.new_zeros(dim, dim)
        largest[self.query_axes, self.key_axes] = self.weights[head].detach().abs().amax(1)
        return float(largest.sum(0).max() * largest.sum(1).max()) ** 0.5


def relative_entries(ctx: Context, encoding: Encoding, causal: bool) -> RelativeEntries:
    """The entries of an encoding's relative rotation, from what it makes of unit vectors.

    Raises:
        UnsupportedError: If positions are not consecutive and shared, or the encoding mixes heads.
    """
    require_consecutive(ctx)
    heads, n_q, dim = ctx.q.shape[1:]
    _require_separate_heads(encoding, heads, dim, ctx.q.device)
    lags = torch.arange(1 - n_q, ctx.k.shape[-2], device=ctx.q.device)[None]
    seen = ((lags[0] >= 0) | (not causal)).double()
    units = torch.eye(dim, dtype=torch.float64, device=ctx.q.device).expand(1, heads, dim, dim)
    keys = encoding.rotate(units, lags.new_zeros(1, dim), "key")[0]
    rows, query_axes, key_axes = [], [], []
    for axis in range(dim):
        turned = encoding.rotate(units[:, :, [axis]].expand(1, heads, lags.shape[1], dim), lags, "query")[0]
        entries = (turned @ keys.mT).mT * seen
        kept = (entries.detach() != 0).any(2).any(0).nonzero().squeeze(1)
        rows.append(entries[:, kept])
        key_axes.append(kept)
        query_axes.append(torch.full_like(kept, axis))
    return RelativeEntries(torch.cat(query_axes), torch.cat(key_axes), torch.cat(rows, 1))


def _require_separate_heads(encoding: Encoding, heads: int, dim: int, device: torch.device) -> None:
    """Refuse an encoding under which a head's queries or keys depend on those of another head."""
    alone = torch.eye(heads, dtype=torch.float64, device=device)[:, :, None, None].expand(-1, -1, 1, dim)
    pos = torch.zeros(1, 1, dtype=torch.long, device=device)
    others = ~torch.eye(heads, dtype=torch.bool, device=device)
    for side in ("query", "key"):
        if encoding.rotate(alone, pos, side)[others].any():
            raise UnsupportedError(
                f"attention impl 'relative_fft' needs heads that are rotated by themselves; "
                f"{type(encoding).__name__} computes some heads from the vectors of others."
            )


@dataclass(frozen=True)
class EntryLags(LagSpectra):
    """A product of entries for each term, times weights of lags that all terms share."""

    entries: Float[Tensor, "r lags"]
    shared: Float[Tensor, "1 lags"]

    def of_terms(self, terms: Terms, points: int) -> Complex[Tensor, "1 terms frequencies"]:
        products = terms.products(self.entries.T).T * self.shared
        return torch.fft.rfft(products, points)[None]


@dataclass(frozen=True)
class _Layer:
    """One layer's unrotated queries and keys, and what all heads share."""

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b h j d"]
    keys: Tensor | None
    entries: RelativeEntries
    lags: LagTable

    def certificate(self, head: int, out: torch.dtype) -> tuple[float, Certificate | None]:
        """A bound of the head's logits, and the certificate of the fewest terms, if there is one.

        Keys are not centred: the mean of rotated keys is none of unrotated ones.
        """
        dim = self.q.shape[-1]
        q, k = (float(x[:, head].detach().norm(dim=-1).max()) for x in (self.q, self.k))
        norm = q * k * self.entries.gain(head, dim) * (1 + 1e-9)
        variables = len(self.entries.query_axes)
        setting = RoundingSetting(self.lags.sizes.length, variables, torch.float64, out)
        return norm, fft_certificate(_bounds(norm, variables), 0, TOLERANCE, setting, self.lags.sizes)


def _bounds(norm: float, variables: int) -> LogitBounds:
    """Bounds of one head of which the norm alone is known: no subspace holds its logits."""
    remainder = torch.full((3, 1, variables + 1), torch.inf, dtype=torch.float64)
    remainder[..., -1] = 0.0
    norms = torch.tensor([norm], dtype=torch.float64)
    nowhere = norms.new_zeros(1, 1, 1, variables)
    return LogitBounds(nowhere, norms, norms, norms.new_zeros(3, 1, variables, variables), remainder)


def relative_fft(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Attention within the default tolerance by monomials of unrotated vectors, with its gradient.

    Raises:
        UnsupportedError: If some head's logits reach too far for any degree, or transforms lose too much.
    """
    if ctx.q.numel() == 0:
        return attention(ctx, v, encoding, causal=causal, impl="fastest")
    keys = key_mask(ctx)
    wide = replace(ctx, q=encoding.scaled(ctx.q.double()) * ctx.scale, k=visible(ctx.k.double(), keys))
    entries = relative_entries(wide, encoding, causal)
    layer = _Layer(wide.q, wide.k, keys, entries, lag_table(wide, encoding, causal))
    values, blind = visible(v.double(), keys), sees_nothing(ctx, keys, causal)
    outputs = []
    for head in range(ctx.q.shape[1]):
        reach, certificate = layer.certificate(head, v.dtype)
        if certificate is None:
            raise UnsupportedError(
                f"attention impl 'relative_fft' cannot serve head {head} within {TOLERANCE:g}: its logits "
                f"reach {reach:.3g} by the norms of queries and keys."
            )
        terms = Terms.of(len(entries.query_axes), certificate.polynomial.coefficients)
        q, k = layer.q[:, [head]][..., entries.query_axes], layer.k[:, [head]][..., entries.key_axes]
        lags = EntryLags(entries.weights[head], layer.lags.weights[[head]])
        outputs.append(normalised(terms, q, k, values[:, [head]], lags, blind, keys))
    return torch.cat(outputs, 1).to(v.dtype)


IMPLEMENTATIONS.register(
    "relative_fft",
    Implementation(
        relative_fft, forms=FORMS, requires=frozenset({Tag.SHIFT_INVARIANT}), dropout=False, exact=False
    ),
)
