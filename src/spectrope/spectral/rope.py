"""RoPE's logits in complex form: one unimodular Toeplitz factor and one share of energy per frequency."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.checks import angles, check, factors, real_matrix
from spectrope.spectral.product import past_grams

Pairs = Literal["adjacent", "halves"]


@dataclass(frozen=True, eq=False)
class BandGram:
    r"""Inner products :math:`\Gamma_{ts} = \langle L_t, L_s\rangle` of what each coordinate pair adds to the
    logits.

    Args:
        gram: Γ, in squared logit units, with shape (m, m).
    """

    gram: Float[Tensor, "m m"]

    @property
    def energy(self) -> float:
        """Energy of the logits, the sum of all entries."""
        return self.gram.sum().item()

    @property
    def shares(self) -> Float[Tensor, " m"]:
        r""":math:`\sum_s\Gamma_{ts}/\sum\Gamma`, which sum to 1; one may be negative, where bands cancel.

        Raises:
            ConfigError: If the bands add up to nothing.
        """
        positive = self.energy > 1e-13 * self.gram.abs().sum().item()
        check(positive, "logits must not all be zero: shares of no energy are undefined.")
        return self.gram.sum(1) / self.gram.sum()

    def grouped(self, bands: int) -> "BandGram":
        """The same for this many contiguous bands of frequencies, as equal in width as can be."""
        label = band_labels(len(self.gram), bands).to(self.gram.device)
        member = torch.nn.functional.one_hot(label, bands).to(self.gram.dtype)
        return BandGram(member.T @ self.gram @ member)


def band_labels(m: int, bands: int) -> Tensor:
    """Band of each of m frequencies, contiguous, as equal in width as can be, with shape (m,)."""
    check(1 <= bands <= m, f"bands must lie between 1 and m = {m}; got {bands}.")
    return torch.arange(m) * bands // m


def complex_pairs(x: Tensor, pairs: Pairs = "adjacent") -> Complex[Tensor, "n m"]:
    r"""Coordinate pairs as complex numbers :math:`z_t = x_{(t,1)} + i x_{(t,2)}`: rotation multiplies by a
    phase.

    Args:
        x: Queries or keys of one head, with shape (n, 2m).
        pairs: "adjacent" for (0, 1), (2, 3), ...; "halves" for (0, m), (1, m + 1), ...

    Raises:
        ConfigError: If the width is odd.
    """
    x = real_matrix(x, "x")
    check(x.shape[1] % 2 == 0, f"x must have an even width to pair coordinates; got {x.shape[1]}.")
    halves = x.view(len(x), -1, 2) if pairs == "adjacent" else x.view(len(x), 2, -1).mT
    return torch.complex(halves[..., 0].contiguous(), halves[..., 1].contiguous())


def rotated(x: Complex[Tensor, "n m"], frequencies: Tensor) -> Complex[Tensor, "n m"]:
    r"""Pairs turned by their position: :math:`z_t e^{ip\theta_t}`, p = 0, ..., n - 1.

    Args:
        x: Pairs from `complex_pairs`.
        frequencies: θ in radians per position, with shape (m,).
    """
    theta = angles(frequencies)
    check(len(theta) == x.shape[1], f"frequencies must number {x.shape[1]}, one per pair; got {len(theta)}.")
    position = torch.arange(len(x), dtype=torch.float64, device=x.device)
    return x * torch.exp(1j * torch.outer(position, theta))


def rope_logits(q: Tensor, k: Tensor, frequencies: Tensor, pairs: Pairs = "adjacent") -> Float[Tensor, "n n"]:
    r"""The exact logits of RoPE, :math:`L = \operatorname{Re}\sum_t (q^t k^{t*}) \circ E_t`,
    :math:`E_t = [e^{i(i-j)\theta_t}]`.

    No single Toeplitz factor can be pulled out of the sum but for one frequency, or where all
    :math:`q^t k^{t*}` are multiples of one matrix: see `factorisation_residual`. Without the factor
    1/sqrt(d).

    Args:
        q: Queries before rotation, with shape (n, 2m).
        k: Keys before rotation, with shape (n, 2m).
        frequencies: θ in radians per position, with shape (m,).
        pairs: How coordinates pair up.
    """
    q, k = factors(q, k)
    left, right = (rotated(complex_pairs(x, pairs), frequencies) for x in (q, k))
    return (left @ right.mH).real


def band_gram(q: Tensor, k: Tensor, causal: bool = False, pairs: Pairs = "adjacent") -> BandGram:
    r"""The Gram matrix of frequency bands in :math:`O(nd^2)`, from queries and keys after rotation.

    Full: sums over 2 × 2 blocks of :math:`(Q^\top Q)\circ(K^\top K)`. Causal: chunk by chunk, as
        `logit_energy`.

    Args:
        q: Queries as they enter the product, with shape (n, 2m).
        k: Keys likewise, with shape (n, 2m).
        causal: Whether query i sees keys j <= i alone.
        pairs: How coordinates pair up.
    """
    q, k = factors(q, k)
    q, k = (torch.view_as_real(complex_pairs(x, pairs)).flatten(1) for x in (q, k))
    if not causal:
        return BandGram(_block_sums((q.T @ q) * (k.T @ k)))
    m = q.shape[1] // 2
    gram = q.new_zeros(m, m)
    for queries, keys, before in past_grams(q, k):
        gram += _block_sums((torch.matmul(queries.mT, queries) * before).sum(0))
        for rows, columns in zip(queries, keys, strict=True):
            own = torch.bmm(rows.view(-1, m, 2).movedim(1, 0), columns.view(-1, m, 2).permute(1, 2, 0))
            flat = own.tril_().flatten(1)
            gram += flat @ flat.T
    return BandGram(gram)


def _block_sums(x: Float[Tensor, "d d"]) -> Float[Tensor, "m m"]:
    m = len(x) // 2
    return x.view(m, 2, m, 2).sum((1, 3))
