"""RoPE's logits in complex form: one unimodular Toeplitz factor and one share of energy per frequency.

Coordinate pairs are complex numbers here, as `spectrope.encodings.parts.complex_pairs` makes them.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.spectral.checks import angles, check, factors, matrix, tensor, wide
from spectrope.spectral.logits import diagonal_sums, masked
from spectrope.spectral.product import past_grams


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
    """Band of each of m frequencies, contiguous, as equal in width as can be, with shape (m,).

    >>> band_labels(5, 2)
    tensor([0, 0, 0, 1, 1])
    """
    check(1 <= bands <= m, f"bands must lie between 1 and m = {m}; got {bands}.")
    return torch.arange(m) * bands // m


def rotated(z: Tensor, frequencies: Tensor) -> Complex[Tensor, "n m"]:
    r"""Complex pairs turned by their position: :math:`z_t e^{ip\theta_t}`, p = 0, ..., n - 1.

    >>> rotated(torch.ones(3, 1), torch.tensor([torch.pi])).real.round().flatten()
    tensor([ 1., -1.,  1.], dtype=torch.float64)

    Args:
        z: Coordinate pairs as complex numbers, with shape (n, m).
        frequencies: θ in radians per position, with shape (m,).
    """
    z, theta = matrix(z, "z"), angles(frequencies)
    check(len(theta) == z.shape[1], f"frequencies must number {z.shape[1]}, one per pair; got {len(theta)}.")
    position = torch.arange(len(z), dtype=torch.float64, device=z.device)
    return z * torch.exp(1j * torch.outer(position, theta))


def rope_logits(q: Tensor, k: Tensor, frequencies: Tensor) -> Float[Tensor, "n n"]:
    r"""The exact logits of RoPE, :math:`L = \operatorname{Re}\sum_t (q^t k^{t*}) \circ E_t`,
    :math:`E_t = [e^{i(i-j)\theta_t}]`.

    No Toeplitz factor can be separated from the sum unless there is one frequency, or all
    :math:`q^t k^{t*}` are multiples of one matrix; see `factorisation_residuals`. The factor 1/sqrt(d) is
    not included.

    >>> q = k = torch.ones(4, 1)  # content that does not change: a cosine of the lag
    >>> rope_logits(q, k, torch.tensor([torch.pi]))[3].round()
    tensor([-1.,  1., -1.,  1.], dtype=torch.float64)

    Args:
        q: Coordinate pairs of queries before rotation as complex numbers, with shape (n, m).
        k: Pairs of keys likewise.
        frequencies: θ in radians per position, with shape (m,).
    """
    return (rotated(q, frequencies) @ rotated(k, frequencies).mH).real


def factorisation_residuals(
    q: Complex[Tensor, "*b n m"],
    k: Complex[Tensor, "*b n m"],
    frequencies: Tensor,
    *,
    bands: int = 1,
    causal: bool = False,
) -> Float[Tensor, "*b"]:
    r"""Distance of RoPE's complex logits from a product of content and position, for batches of heads.

    With :math:`L_c = \sum_t (q^t k^{t*})\circ E_t` and :math:`G_b = \sum_{t\in b} q^t k^{t*}`, what band b of
    frequencies would give without positions, this is
    :math:`\rho_F = \min_T \|L_c - \sum_b G_b\circ T_b\|^2/\|L_c\|^2` over Toeplitz :math:`T_b`: a
    least-squares problem for each diagonal. For independent content and one band it tends to the mean over
    allowed pairs of :math:`1 - |\operatorname{mean}_t e^{i\delta\theta_t}|^2`; with as many bands as
    frequencies it is 0.

    >>> q, k = torch.randn(2, 20, 3, dtype=torch.complex128)
    >>> frequencies = torch.tensor([1.0, 0.1, 0.01])
    >>> residuals = [factorisation_residuals(q, k, frequencies, bands=bands) for bands in (1, 3)]
    >>> bool(residuals[0] > 0.2), bool(residuals[1] < 1e-12)
    (True, True)

    Args:
        q: Coordinate pairs of queries before rotation, with shape (*b, n, m).
        k: Pairs of keys likewise.
        frequencies: θ in radians per position, with shape (m,).
        bands: Contiguous bands with a Toeplitz factor each, from 1 to m.
        causal: Whether query i attends only to keys j <= i.

    Returns:
        Fractions of the energy; NaN where the logits are all zero.
    """
    fit = _position_fit(q, k, frequencies, bands, causal)
    explained = (fit.target.conj() * fit.factors).real.sum((-1, -2))
    return (1 - explained / fit.energy).clamp(min=0)


def position_factor(
    q: Complex[Tensor, "*b n m"],
    k: Complex[Tensor, "*b n m"],
    frequencies: Tensor,
    causal: bool = False,
) -> Complex[Tensor, " lags"]:
    r"""The Toeplitz factor T for which :math:`G \circ T` is nearest to RoPE's complex logits of a batch.

    It is what the paper calls :math:`G_e`, measured: :math:`G = \sum_t q^t k^{t*}` is the product without
    positions, and T is fitted lag by lag over all examples. For independent content it tends to
    :math:`\operatorname{mean}_t e^{i\delta\theta_t}`; for one frequency it is :math:`e^{i\delta\theta}`.

    >>> q, k = torch.randn(2, 3, 8, 1, dtype=torch.complex128)
    >>> factor = position_factor(q, k, torch.tensor([0.5]))
    >>> torch.testing.assert_close(factor, torch.exp(0.5j * torch.arange(-7, 8).double()))

    Args:
        q: Coordinate pairs of queries before rotation, with shape (*b, n, m).
        k: Pairs of keys likewise.
        frequencies: θ in radians per position, with shape (m,).
        causal: Whether query i attends only to keys j <= i.

    Returns:
        T at lags -(n-1), or 0 if causal, to n-1; 0 where G vanishes.
    """
    fit = _position_fit(q, k, frequencies, 1, causal)
    lags = 2 * q.shape[-2] - 1
    target, gram = (x.reshape(-1, lags).sum(0) for x in (fit.target[..., 0], fit.gram[..., 0, 0].real))
    first = q.shape[-2] - 1 if causal else 0
    return torch.where(gram > 0, target / gram.clamp(min=torch.finfo(torch.float64).tiny), 0)[first:]


@dataclass(frozen=True, eq=False)
class _PositionFit:
    """The least-squares problem of a Toeplitz factor per band, lag by lag.

    Args:
        target: Inner products of logits with the content of each band.
        gram: Inner products of the contents of bands.
        energy: Squared norm of the logits.
    """

    target: Complex[Tensor, "*b lags bands"]
    gram: Complex[Tensor, "*b lags bands bands"]
    energy: Float[Tensor, "*b"]

    @property
    def factors(self) -> Complex[Tensor, "*b lags bands"]:
        """The solution with the least norm."""
        return (torch.linalg.pinv(self.gram, hermitian=True, rtol=1e-10) @ self.target[..., None])[..., 0]


def _position_fit(q: Tensor, k: Tensor, frequencies: Tensor, bands: int, causal: bool) -> _PositionFit:
    q, k = tensor(q, "q"), tensor(k, "k")
    check(
        q.is_complex() and k.is_complex(),
        f"q and k must be complex, a number per coordinate pair; got {q.dtype} and {k.dtype}.",
    )
    check(
        q.ndim >= 2 and q.shape == k.shape,
        f"q and k must have one shape (*b, n, m); got {tuple(q.shape)} and {tuple(k.shape)}.",
    )
    theta, m = angles(frequencies), q.shape[-1]
    check(len(theta) == m, f"frequencies must number {m}, one per pair; got {len(theta)}.")
    q, k, label = wide(q, "q"), wide(k, "k"), band_labels(m, bands)
    places = torch.arange(q.shape[-2], dtype=torch.float64, device=theta.device)
    turn = torch.exp(1j * torch.outer(places, theta))
    logits = masked((q * turn) @ (k * turn).mH, causal)
    parts = [masked(q[..., label == band] @ k[..., label == band].mH, causal) for band in range(bands)]
    target = torch.stack([diagonal_sums(part.conj() * logits) for part in parts], -1)
    gram = torch.stack(
        [torch.stack([diagonal_sums(a.conj() * b) for b in parts], -1) for a in parts], -2
    )  # of the bands' contents, lag by lag
    return _PositionFit(target, gram, (logits.abs() ** 2).sum((-1, -2)))


def band_gram(q: Tensor, k: Tensor, causal: bool = False) -> BandGram:
    r"""The Gram matrix of frequency bands in :math:`O(nm^2)`, from queries and keys after rotation.

    Full: sums over 2 × 2 blocks of :math:`(Q^\top Q)\circ(K^\top K)`. Causal: chunk by chunk, as
    `logit_energy`.

    >>> q, k = torch.randn(2, 30, 4, dtype=torch.complex128)
    >>> f"{band_gram(q, k, causal=True).shares.sum():.6f}"
    '1.000000'

    Args:
        q: Coordinate pairs of queries as they enter the product, with shape (n, m).
        k: Pairs of keys likewise, with shape (n, m).
        causal: Whether query i attends only to keys j <= i.
    """
    q, k = (torch.view_as_real(matrix(z, "pairs").to(torch.complex128)).flatten(1) for z in (q, k))
    q, k = factors(q, k)
    if not causal:
        return BandGram(_block_sums((q.T @ q) * (k.T @ k)))
    m = q.shape[1] // 2
    gram = q.new_zeros(m, m)
    for queries, keys, before in past_grams(q, k):
        gram += _block_sums((torch.matmul(queries.mT, queries) * before).sum(0))
        for rows, columns in zip(queries, keys, strict=True):
            per_pair = torch.bmm(rows.view(-1, m, 2).movedim(1, 0), columns.view(-1, m, 2).permute(1, 2, 0))
            flat = per_pair.tril_().flatten(1)
            gram += flat @ flat.T
    return BandGram(gram)


def _block_sums(x: Float[Tensor, "d d"]) -> Float[Tensor, "m m"]:
    m = len(x) // 2
    return x.view(m, 2, m, 2).sum((1, 3))
