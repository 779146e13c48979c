"""Coordinate pairs as complex numbers."""

from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.core.errors import ConfigError

Pairing = Literal["adjacent", "halves"]  # Coordinates (2j, 2j+1), or (j, j+m).


def complex_pairs(x: Float[Tensor, "*b d"], pairing: Pairing = "adjacent") -> Complex[Tensor, "*b m"]:
    r"""The m = d/2 coordinate pairs of x as complex numbers :math:`z_j = x_{(j,1)} + i x_{(j,2)}`.

    A rotation multiplies each of them by a phase.

    Raises:
        ConfigError: If the width is odd.
    """
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
    """
    if pairing == "halves":
        re, im = factor.real.to(x.dtype), factor.imag.to(x.dtype)
        swapped = x.roll(x.shape[-1] // 2, -1)
        return torch.addcmul(x * torch.cat([re, re], -1), swapped, torch.cat([-im, im], -1))
    wide = _aligned(x.double() if x.dtype is torch.float64 else x.float())
    z = torch.view_as_complex(wide.unflatten(-1, (-1, 2)))
    turned = z * factor.to(z.dtype)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def _aligned(x: Tensor) -> Tensor:
    """x itself where its memory can be read as complex numbers, else a copy."""
    *strides, last = x.stride()
    even = last == 1 and x.storage_offset() % 2 == 0 and all(stride % 2 == 0 for stride in strides)
    return x if even else x.clone(memory_format=torch.contiguous_format)
