"""Toeplitz matrices represented by their lags, with FFT products and symbols; not formed explicitly."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Inexact
from torch import Tensor

from spectrope.spectral.checks import check, vector, wide
from spectrope.spectral.fourier import fast_length, fft, ifft, irfft, rfft


@dataclass(frozen=True, eq=False)
class ToeplitzOperator:
    r"""The matrix :math:`T_{ij} = t_{i-j}`, :math:`0 \le i, j < n`, real or complex, Hermitian or not.

    Products cost :math:`O(n \log n)`; memory is linear in n.

    >>> decay = ToeplitzOperator.of(lambda lag: 0.5 ** lag.abs(), 1_000_000)
    >>> f"{(decay @ torch.ones(1_000_000))[500_000]:.3f}"  # the symbol at 0, (1 + .5) / (1 - .5)
    '3.000'

    Args:
        lags: :math:`t_{-(n-1)}, \dots, t_{n-1}`, with shape (2n-1,); kept in float64 or complex128.

    Raises:
        ConfigError: If the number of lags is even, or one of them is not finite.

    References:
        Toeplitz and Circulant Matrices: A Review (Gray, 2006), Sec. 4 and 5.
    """

    lags: Tensor

    def __post_init__(self) -> None:
        lags = vector(self.lags, "lags").clone(memory_format=torch.contiguous_format)
        check(len(lags) % 2 == 1, f"lags must be t_-(n-1), ..., t_(n-1), an odd number; got {len(lags)}.")
        object.__setattr__(self, "lags", lags)

    @classmethod
    def hermitian(cls, column: Tensor) -> "ToeplitzOperator":
        """The Hermitian one with this first column, of shape (n,); its first entry must be real."""
        column = vector(column, "column")
        check(
            not column.is_complex() or column[0].imag.item() == 0,
            f"column[0] of a Hermitian Toeplitz matrix must be real; got {column[0].item()}.",
        )
        return cls(torch.cat([column[1:].flip(0).conj(), column]))

    @classmethod
    def causal(cls, column: Tensor) -> "ToeplitzOperator":
        """The lower-triangular matrix with this first column, of shape (n,): causal attention."""
        column = vector(column, "column")
        return cls(torch.cat([torch.zeros_like(column[1:]), column]))

    @classmethod
    def of(cls, lag_function: Callable[[Tensor], Tensor], n: int) -> "ToeplitzOperator":
        """The n x n section of t, given as a function of integer lags in float64.

        Raises:
            ConfigError: If n is below 1.
        """
        check(n >= 1, f"n must be at least 1; got {n}.")
        return cls(lag_function(torch.arange(1 - n, n, dtype=torch.float64)))

    @property
    def n(self) -> int:
        """Number of rows."""
        return (len(self.lags) + 1) // 2

    @property
    def is_real(self) -> bool:
        """Whether the lags are stored as real numbers."""
        return not self.lags.is_complex()

    @cached_property
    def is_hermitian(self) -> bool:
        """Whether :math:`t_{-d} = \\bar t_d`, up to the last digits, which vectorised functions get wrong."""
        difference = (self.lags - self.lags.flip(0).conj()).abs()
        return bool((difference <= 8 * torch.finfo(torch.float64).eps * self.lags.abs()).all())

    @cached_property
    def bandwidth(self) -> int:
        """The largest lag, either way, whose entry is not zero."""
        filled = self.lags.nonzero()[:, 0]
        return int((filled - (self.n - 1)).abs().max()) if len(filled) else 0

    def hermitian_part(self) -> "ToeplitzOperator":
        """(T + T*) / 2, whose extreme eigenvalues bound the field of values of T."""
        return ToeplitzOperator((self.lags + self.lags.flip(0).conj()) / 2)

    def hadamard(self, other: "ToeplitzOperator") -> "ToeplitzOperator":
        """The entrywise product with another Toeplitz matrix of this size."""
        check(self.n == other.n, f"both sizes must agree; got {self.n} and {other.n}.")
        return ToeplitzOperator(self.lags * other.lags)

    def dense(self) -> Inexact[Tensor, "n n"]:
        """The matrix itself: memory grows as n squared."""
        i = torch.arange(self.n, device=self.lags.device)
        return self.lags[i[:, None] - i + self.n - 1]

    def counts(self) -> Float[Tensor, " lags"]:
        """Entries on each diagonal, n - abs(d)."""
        d = torch.arange(1 - self.n, self.n, dtype=torch.float64, device=self.lags.device)
        return self.n - d.abs()

    def __matmul__(self, x: Tensor) -> Tensor:
        """T X for a vector of shape (n,) or columns of shape (n, c)."""
        fits = x.ndim in (1, 2) and len(x) == self.n
        check(fits, f"x must have shape ({self.n},) or ({self.n}, c); got {tuple(x.shape)}.")
        return self.apply(wide(x, "x").movedim(0, -1).contiguous()).movedim(-1, 0)

    def apply(self, x: Inexact[Tensor, "*batch n"]) -> Inexact[Tensor, "*batch n"]:
        """T x along the last dimension of contiguous x in float64 or complex128, which is not checked."""
        size = self._size
        if self.is_real and not x.is_complex():
            return irfft(rfft(x, size).mul_(self._transfer), size)[..., : self.n]
        transfer = fft(circulant_column(self._band, size), size)
        return ifft(fft(x, size).mul_(transfer), size)[..., : self.n]

    def symbol(self, theta: Tensor) -> Tensor:
        r"""The truncated symbol :math:`f_n(\theta) = \sum_{|d|<n} t_d e^{id\theta}` at any angles."""
        b = self.bandwidth
        d = torch.arange(-b, b + 1, dtype=torch.float64, device=self.lags.device)
        values = torch.exp(1j * wide(theta, "theta")[..., None] * d) @ self._band.to(torch.complex128)
        return values.real if self.is_hermitian else values

    def symbol_on_grid(self, points: int) -> Tensor:
        r"""The truncated symbol at :math:`\theta_k = 2\pi k / M`, k < M; that of a real matrix up to M // 2.

        >>> ToeplitzOperator(torch.tensor([1.0, 0.0, 1.0])).symbol_on_grid(4)  # 2 cos(θ)
        tensor([ 2.,  0., -2.], dtype=torch.float64)

        Args:
            points: M, of any size: lags that are equal modulo M share their angle.
        """
        column = circulant_column(self._band, points)
        values = rfft(column, points).conj() if self.is_real else ifft(column, points) * points
        return values.real if self.is_hermitian else values.resolve_conj()

    def fejer(self) -> "ToeplitzOperator":
        r"""Lags of the Fejér mean :math:`(1 - |d|/n)\,t_d`.

        Its symbol at θ is the Rayleigh quotient of T at :math:`e^{-ij\theta}/\sqrt n`, so that it never
        leaves the field of values, and for a Hermitian T the interval between the extreme eigenvalues.
        """
        return ToeplitzOperator(self.lags * self.counts() / self.n)

    @cached_property
    def _band(self) -> Tensor:
        middle = self.n - 1
        return self.lags[middle - self.bandwidth : middle + self.bandwidth + 1]

    @cached_property
    def _size(self) -> int:
        return fast_length(self.n + self.bandwidth)  # beyond it, no lag that is not zero wraps around

    @cached_property
    def _transfer(self) -> Tensor:
        transfer = rfft(circulant_column(self._band, self._size), self._size)
        return transfer.real.contiguous() if self.is_hermitian else transfer


def circulant_column(lags: Inexact[Tensor, " lags"], size: int) -> Inexact[Tensor, " size"]:
    """First column of the circulant of this size that sums the lags, -(n-1) to n-1, modulo its size."""
    n = (len(lags) + 1) // 2
    lag = torch.arange(1 - n, n, device=lags.device)
    return lags.new_zeros(size).index_add_(0, lag % size, lags)
