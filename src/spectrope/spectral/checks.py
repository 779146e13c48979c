"""Validation of the inputs of spectral functions."""

from typing import cast

import torch
from torch import Tensor

from spectrope.core import ConfigError, require_type

LARGEST, SMALLEST = 1e70, 1e-70


def check(ok: bool, message: str) -> None:
    """Raise `ConfigError` with this message unless `ok`."""
    if not ok:
        raise ConfigError(message)


def tensor(x: object, name: str) -> Tensor:
    """x, if it is a tensor."""
    require_type(x, Tensor, name, "a tensor, such as torch.as_tensor makes of an array or a list")
    return cast(Tensor, x)


def wide(x: Tensor, name: str) -> Tensor:
    """x in float64 or complex128, detached, after checking that it is finite and well scaled.

    Raises:
        ConfigError: If x is no tensor, holds NaN or infinity, or its largest entry lies outside
            1e-70 ... 1e70.
    """
    x = tensor(x, name)
    x = x.detach().to(torch.complex128 if x.is_complex() else torch.float64).resolve_conj()
    if x.numel():
        low, high = (torch.view_as_real(x) if x.is_complex() else x).aminmax()  # NaN if any entry is
        size = torch.maximum(-low, high).item()
        if not size < float("inf"):
            raise ConfigError(f"{name} must be finite; got {bad(x)} of {x.numel()} NaN or infinite.")
        check(
            size == 0 or SMALLEST <= size <= LARGEST,
            f"{name} must have its largest entry within {SMALLEST:g} ... {LARGEST:g}, so that energies "
            f"neither overflow nor vanish; got {size:.3g}. Rescale it.",
        )
    return x


def rounding(x: Tensor) -> float:
    """Share of the largest singular value below which others may be rounding of the type of x.

    Errors of single entries, each up to half of the type's epsilon, add up to less: four times it is safe.
    """
    return 4 * torch.finfo(x.dtype).eps if x.dtype.is_floating_point else 0.0


def bad(x: Tensor) -> int:
    """How many entries are NaN or infinite."""
    return int((~torch.isfinite(x)).sum())


def vector(x: Tensor, name: str) -> Tensor:
    """x as a wide vector with at least one entry."""
    x = tensor(x, name)
    check(x.ndim == 1 and len(x) > 0, f"{name} must have shape (n,) with n >= 1; got {tuple(x.shape)}.")
    return wide(x, name)


def matrix(x: Tensor, name: str) -> Tensor:
    """x as a wide matrix with at least one row and column."""
    x = tensor(x, name)
    check(x.ndim == 2 and x.numel() > 0, f"{name} must have shape (n, d), n, d >= 1; got {tuple(x.shape)}.")
    return wide(x, name)


def real_matrix(x: Tensor, name: str) -> Tensor:
    """x as a float64 matrix with at least one row and column."""
    check(not tensor(x, name).is_complex(), f"{name} must be real; got {x.dtype}.")
    return matrix(x, name)


def square(x: Tensor, name: str) -> Tensor:
    """x as a wide square matrix."""
    x = matrix(x, name)
    check(x.shape[0] == x.shape[1], f"{name} must be square; got {tuple(x.shape)}.")
    return x


def square_pair(one: Tensor, other: Tensor, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Two wide square matrices of one shape."""
    one, other = square(one, names[0]), square(other, names[1])
    check(
        one.shape == other.shape,
        f"{names[0]} and {names[1]} must have one shape; got {tuple(one.shape)} and {tuple(other.shape)}.",
    )
    return one, other


def is_hermitian(matrix: Tensor) -> bool:
    """Whether a square matrix is Hermitian up to rounding."""
    return torch.allclose(matrix, matrix.mH, rtol=1e-12, atol=1e-12 * matrix.abs().max().item())


def factors(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of one head as float64 matrices of one shape (n, d)."""
    q, k = real_matrix(q, "q"), real_matrix(k, "k")
    check(
        q.shape == k.shape, f"q and k must have one shape (n, d); got {tuple(q.shape)} and {tuple(k.shape)}."
    )
    return q, k


def angles(frequencies: Tensor) -> Tensor:
    """Frequencies as a float64 vector, in radians per position."""
    check(
        not tensor(frequencies, "frequencies").is_complex(),
        f"frequencies must be real; got {frequencies.dtype}.",
    )
    return vector(frequencies, "frequencies")
