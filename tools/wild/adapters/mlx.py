"""mlx: `mx.fast.rope`."""

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor

REQUIRES = ("mlx", "mlx-cpu")
TYPES = {torch.float32: mx.float32, torch.bfloat16: mx.bfloat16, torch.float16: mx.float16}
BACK = {there: here for here, there in TYPES.items()}


def to_mlx(x: Tensor) -> mx.array:
    return mx.array(x.detach().float().numpy()).astype(TYPES[x.dtype])


def to_torch(x: mx.array) -> Tensor:
    return torch.from_numpy(np.array(x.astype(mx.float32))).to(BACK[x.dtype])


class Rotated(torch.autograd.Function):
    """The function as torch sees it, with mlx's gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, rotate) -> Tensor:
        ctx.rotate, ctx.given = rotate, to_mlx(x)
        return to_torch(rotate(ctx.given))

    @staticmethod
    def backward(ctx, *gradients: Tensor):
        _, (back,) = mx.vjp(ctx.rotate, [ctx.given], [to_mlx(gradients[0])])
        return to_torch(back), None


def apply_rope(
    x: Tensor, positions: Tensor, base: float = 10000.0, layout: str = "halves", width: int | None = None,
    scaling: dict | None = None,
) -> Tensor:  # fmt: skip
    scaling = scaling or {"rope_type": "linear", "factor": 1.0}
    if scaling["rope_type"] != "linear":
        raise NotImplementedError("scaling")
    first = int(positions[0])
    if not torch.equal(positions, torch.arange(first, first + len(positions))):
        raise NotImplementedError("positions that jump")

    def rotate(y: mx.array) -> mx.array:
        return mx.fast.rope(
            y, width or x.shape[-1], traditional=layout == "interleaved", base=base,
            scale=1 / scaling["factor"], offset=first,
        )  # fmt: skip

    return Rotated.apply(x, rotate)
