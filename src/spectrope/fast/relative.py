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

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from spectrope.attention import IMPLEMENTATIONS, Implementation, attention
from spectrope.core import Noise, UnsupportedError
from spectrope.encodings import Context, Encoding, Tag
from spectrope.fast.certificate import Certificate, RoundingSetting
from spectrope.fast.entries import RelativeEntries, Unrotated, relative_entries, unrotated
from spectrope.fast.planning import TOLERANCE, AttentionPlan, HeadPlan, relative_certificate
from spectrope.fast.rotation import FORMS, visible
from spectrope.fast.toeplitz import LagSpectra, Terms, normalised, sees_nothing
from spectrope.fast.transforms import LagTable, lag_table


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

    vectors: Unrotated
    values: Float[Tensor, "b h j e"]
    entries: RelativeEntries
    lags: LagTable
    blind: Bool[Tensor, "b i"]

    @classmethod
    def of(cls, ctx: Context, v: Tensor, encoding: Encoding, causal: bool) -> "_Layer":
        vectors = unrotated(ctx, encoding)
        return cls(
            vectors,
            visible(v.double(), vectors.keys),
            relative_entries(ctx, encoding, causal),
            lag_table(replace(ctx, q=vectors.q, k=vectors.k), encoding, causal),
            sees_nothing(ctx, vectors.keys, causal),
        )

    def bound(self, head: int) -> float:
        """A bound of the modulus of a head's logits."""
        return self.vectors.norm(head) * self.entries.gain(head, self.vectors.q.shape[-1])

    def output(self, head: int, certificate: Certificate) -> Float[Tensor, "b 1 i e"]:
        """The output of one head by the polynomial of a certificate."""
        entries, at = self.entries, [head]
        terms = Terms.of(len(entries.query_axes), certificate.polynomial.coefficients)
        q, k = self.vectors.q[:, at][..., entries.query_axes], self.vectors.k[:, at][..., entries.key_axes]
        lags = EntryLags(entries.weights[head], self.lags.weights[at])
        return normalised(terms, q, k, self.values[:, at], lags, self.blind, self.vectors.keys)


def relative_fft(ctx: Context, v: Tensor, encoding: Encoding, causal: bool, noise: Noise | None) -> Tensor:
    """Attention within the default tolerance by monomials of unrotated vectors, with its gradient.

    Raises:
        UnsupportedError: If some head's logits reach too far for any degree, or transforms lose too much.
    """
    if ctx.q.numel() == 0:
        return attention(ctx, v, encoding, causal=causal, impl="fastest")
    layer, outputs = _Layer.of(ctx, v, encoding, causal), []
    sizes = layer.lags.sizes
    setting = RoundingSetting(sizes.length, ctx.q.shape[-1], torch.float64, v.dtype)
    for head in range(ctx.q.shape[1]):
        bound, variables = layer.bound(head), len(layer.entries.query_axes)
        certificate = relative_certificate(bound, variables, TOLERANCE, setting, sizes)
        if certificate is None:
            raise UnsupportedError(
                f"attention impl 'relative_fft' cannot serve head {head} within {TOLERANCE:g}: its logits "
                f"reach {bound:.3g} by the norms of queries and keys."
            )
        outputs.append(layer.output(head, certificate))
    return torch.cat(outputs, 1).to(v.dtype)


def relative_heads(
    ctx: Context, v: Tensor, encoding: Encoding, made: AttentionPlan, heads: Sequence[HeadPlan]
) -> Float[Tensor, "b some i e"]:
    """Some heads of a plan, by monomials of unrotated vectors."""
    layer = _Layer.of(ctx, v, encoding, made.causal)
    certified = ((head.head, head.certificate) for head in heads)
    outputs = [layer.output(head, proof) for head, proof in certified if proof is not None]
    return torch.cat(outputs, 1).to(v.dtype)


IMPLEMENTATIONS.register(
    "relative_fft",
    Implementation(
        relative_fft, forms=FORMS, requires=frozenset({Tag.SHIFT_INVARIANT}), dropout=False, exact=False
    ),
)
