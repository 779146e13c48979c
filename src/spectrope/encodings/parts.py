"""Building blocks of encodings: constants, coordinate pairs as complex numbers, position tables."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float, Int
from torch import Tensor, nn

from spectrope.core import ConfigError, UnsupportedError


class Constant(nn.Module):
    """A tensor that follows its module between devices and keeps its dtype under `.half()` and the like.

    With frequencies rounded to bfloat16, a token at position 1000 would be rotated by a wrong angle.

    Args:
        value: The tensor.
    """

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Constant":
        exact = self.value
        super()._apply(fn, recurse)
        self.value = exact.to(self.value.device)
        return self


Pairing = Literal["adjacent", "halves"]  # Coordinates (2j, 2j+1), or (j, j+m).


def complex_pairs(x: Float[Tensor, "*b d"], pairing: Pairing = "adjacent") -> Complex[Tensor, "*b m"]:
    r"""The m = d/2 coordinate pairs of x as complex numbers :math:`z_j = x_{(j,1)} + i x_{(j,2)}`.

    A rotation multiplies each of them by a phase.

    Raises:
        ConfigError: If the width is odd, or `pairing` is neither "adjacent" nor "halves".
    """
    _require_pairing(pairing)
    if x.shape[-1] % 2:
        raise ConfigError(f"x must have an even width to pair coordinates; got {x.shape[-1]}.")
    pairs = x.unflatten(-1, (-1, 2)) if pairing == "adjacent" else x.unflatten(-1, (2, -1)).mT
    return torch.complex(*(part.contiguous() for part in pairs.unbind(-1)))


def multiply_pairs(
    x: Float[Tensor, "b h t d"], factor: Complex[Tensor, "#b #h t m"], pairing: Pairing
) -> Float[Tensor, "b h t d"]:
    r"""Multiply the m = d/2 coordinate pairs of x, read as complex numbers, by `factor`.

    A factor :math:`e^{i\varphi}` turns a pair by the angle :math:`\varphi` in radians. Adjacent pairs take
    one complex product, which measured as fast as a copy on a CPU; halves take three passes.

    Args:
        x: Real vectors.
        factor: One complex number per pair.
        pairing: Which coordinates form pairs.

    Returns:
        The products, in the layout and dtype of x.

    Raises:
        ConfigError: If `pairing` is neither "adjacent" nor "halves".
    """
    _require_pairing(pairing)
    if pairing == "halves":
        re, im = factor.real.to(x.dtype), factor.imag.to(x.dtype)
        swapped = x.roll(x.shape[-1] // 2, -1)
        return torch.addcmul(x * torch.cat([re, re], -1), swapped, torch.cat([-im, im], -1))
    wide = _aligned(x.double() if x.dtype is torch.float64 else x.float())
    z = torch.view_as_complex(wide.unflatten(-1, (-1, 2)))
    turned = z * factor.to(z.dtype)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def _require_pairing(pairing: str) -> None:
    if pairing not in get_args(Pairing):
        raise ConfigError(f"pairing must be one of {', '.join(get_args(Pairing))}; got {pairing!r}.")


def _aligned(x: Tensor) -> Tensor:
    """x itself where its memory can be read as complex numbers, else a copy."""
    *strides, last = x.stride()
    even = last == 1 and x.storage_offset() % 2 == 0 and all(stride % 2 == 0 for stride in strides)
    return x if even else x.clone(memory_format=torch.contiguous_format)


def lookup(table: Float[Tensor, "n c"], index: Tensor, owner: object) -> Tensor:
    """Rows of `table` at `index`, interpolated linearly between rows where it is fractional.

    Args:
        table: The rows.
        index: Row numbers of any shape (*s,), whole or floating-point.
        owner: The object that the message names.

    Returns:
        The rows, with shape (*s, c).

    Raises:
        UnsupportedError: If an index lies outside the table. On CUDA, where this check would stall the
            device, torch's device-side assertion stops the program instead.
    """
    try:
        if not index.is_floating_point():
            return F.embedding(index, table)
        below, above = index.floor().long(), index.ceil().long()
        weight = (index - below).to(table.dtype)[..., None]
        return torch.lerp(F.embedding(below, table), F.embedding(above, table), weight)
    except IndexError:
        raise UnsupportedError(
            f"{type(owner).__name__} has a table of {len(table)} rows, but a position outside it was "
            f"requested; raise max_length, or use an encoding that extends beyond its training length."
        ) from None


def clipped(lag: Tensor, reach: int) -> Int[Tensor, "b i j"]:
    """Row of each lag in a table of 2 * reach + 1 rows, from -reach to reach; fractions count as whole."""
    return lag.long().clamp(-reach, reach) + reach


def at_lags(scores: Float[Tensor, "b h i n"], rows: Int[Tensor, "#b i j"]) -> Float[Tensor, "b h i j"]:
    """For each query and key, the score that the query gives to the row of their lag."""
    return scores.gather(-1, rows[:, None].expand(*scores.shape[:-1], rows.shape[-1]))
