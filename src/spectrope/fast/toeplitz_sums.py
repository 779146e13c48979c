r"""Attention weights as sums of Toeplitz matrices between diagonal ones, each applied by FFT.

A polynomial of logits :math:`q_i^\top W_{i-j} k_j` is a sum over monomials m of products of a function of the
query, one of the lag and one of the key: :math:`A = \sum_m D_{\phi_m(q)}\,T_m\,D_{\psi_m(k)}` (Fast Gradient
Computation for RoPE Attention in Almost Linear Time, arXiv 2505.11892; Alman and Song, 2023). Memory is
linear in the length; the backward pass makes every term anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from spectrope.fast.features import multinomials
from spectrope.spectral.fourier import fast_length

TERM_ENTRIES = 2**22  # Of the transforms taken at once, which bounds memory.


@dataclass(frozen=True)
class Terms:
    """Monomials of up to some degree in s variables, as products of the same number of factors.

    Args:
        factors: Which variable each factor is, 0 standing for the constant 1, with shape (terms, degree).
        weights: Coefficients that make the sum of all monomials the polynomial of the variables' sum.
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


Expand = Callable[[Terms], tuple[Tensor, Tensor, Tensor]]


def toeplitz_sums(
    terms: Terms, expand: Expand, u: Float[Tensor, "b h j e"], n_q: int
) -> Float[Tensor, "b h i e"]:
    r""":math:`Y_i = \sum_m w_m \phi_m(i) \sum_j T_m(i-j)\,\psi_m(j)\,u_j`, the last query at the last key.

    Args:
        terms: The monomials and their weights w.
        expand: Makes of some terms :math:`\phi` (b, h, i, m), :math:`\psi` (b, h, j, m) and T of lags
            1 - i, ..., j - 1, (h, m or 1, i + j - 1).
        u: Payloads.
        n_q: Queries.
    """
    points = fast_length(n_q + u.shape[2] - 1)
    size = max(1, TERM_ENTRIES // (u.shape[0] * u.shape[1] * u.shape[3] * points))
    out = u.new_zeros(*u.shape[:2], n_q, u.shape[3])
    for some in terms.chunks(size):
        part = checkpoint(_part, some, expand, u, n_q, points, use_reentrant=False)
        assert isinstance(part, Tensor)
        out = out + part
    return out


def _part(terms: Terms, expand: Expand, u: Tensor, n_q: int, points: int) -> Tensor:
    """The sum over a few terms."""
    left, right, lags = expand(terms)
    payload = (right[..., None] * u[..., None, :]).movedim(2, -1)  # (b, h, m, e, j)
    spectrum = torch.fft.rfft(payload, points) * torch.fft.rfft(lags, points)[:, :, None]
    seen = torch.fft.irfft(spectrum, points)[..., u.shape[2] - 1 : u.shape[2] - 1 + n_q]
    return torch.einsum("bhim,bhmei->bhie", left * terms.weights.to(left), seen)


def normalised(
    terms: Terms,
    expand: Expand,
    v: Float[Tensor, "b h j e"],
    n_q: int,
    blind: Bool[Tensor, "b i"] | None = None,
) -> Float[Tensor, "b h i e"]:
    """Weighted means of the values; 0, with no gradient, at queries that are blind."""
    sums = toeplitz_sums(terms, expand, F.pad(v, (0, 1), value=1.0), n_q)
    above, below = sums[..., :-1], sums[..., -1:]
    if blind is not None:  # before the division: the gradient of 0 / 0 is NaN wherever it is masked later
        hidden = blind[:, None, :, None]
        above, below = above.masked_fill(hidden, 0.0), below.masked_fill(hidden, 1.0)
    return above / below


def lag_form_attention(
    q: Float[Tensor, "b h n d"],
    k: Float[Tensor, "b h n d"],
    v: Float[Tensor, "b h n e"],
    forms: Float[Tensor, "lags d d"],
    coefficients: tuple[float, ...],
    *,
    causal: bool,
) -> Float[Tensor, "b h n e"]:
    r"""Attention with weights :math:`P(q_i^\top W_{i-j} k_j)` for any family W, in almost linear time.

    The paper's algorithm in its general form, a reference for small widths: it takes :math:`\binom{s+g}{g}`
    convolutions of e + 1 columns for degree g and s entries of W that are not zero at all lags. RoPE needs
    none of them, because its W factors (`impl="polynomial"`).

    Args:
        q: Queries, scaled.
        k: Keys.
        v: Values.
        forms: :math:`W_{-(n-1)}, \dots, W_{n-1}`, with shape (2n - 1, d, d).
        coefficients: Of P, the constant first; those of `exp_polynomial` make it softmax attention within
            `mean_error` of its error bound.
        causal: Whether queries see the past alone.

    References:
        Fast Gradient Computation for RoPE Attention in Almost Linear Time (arXiv 2505.11892).
    """
    rows, columns = forms.ne(0).any(0).nonzero(as_tuple=True)
    entries = forms[:, rows, columns]
    n = q.shape[2]
    seen = (torch.arange(1 - n, n, device=q.device) >= 0 if causal else torch.ones(2 * n - 1)).to(forms)

    def expand(terms: Terms) -> tuple[Tensor, Tensor, Tensor]:
        lags = terms.products(entries) * seen[:, None]
        return terms.products(q[..., rows]), terms.products(k[..., columns]), lags.mT[None]

    return normalised(Terms.of(len(rows), coefficients), expand, v, n)
