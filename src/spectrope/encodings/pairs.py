"""Pairs of coordinates as complex numbers."""

from typing import Literal

import torch
from jaxtyping import Complex, Float
from torch import Tensor

Pairing = Literal["adjacent", "halves"]


def multiply_pairs(
    x: Float[Tensor, "b h t d"], factor: Complex[Tensor, "#b #h t m"], pairing: Pairing
) -> Float[Tensor, "b h t d"]:
    r"""Multiply the m = d/2 coordinate pairs of x, read as complex numbers, by `factor`.

    A factor :math:`e^{i\varphi}` turns a pair by the angle :math:`\varphi` in radians. Adjacent pairs take
    one complex product, which measured as fast as a copy on a CPU; halves take three passes.

    Args:
        x: Real vectors.
        factor: One complex number per pair.
        pairing: "adjacent" pairs coordinates (2j, 2j+1), "halves" pairs (j, j+m).

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
