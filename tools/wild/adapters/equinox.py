"""equinox, on jax: `RotaryPositionalEmbedding`, which counts from 0."""

import equinox
import jax
import jax.numpy as jnp
import torch
from torch import Tensor

REQUIRES = ("equinox", "jax", "jaxlib", "ml_dtypes", "opt_einsum", "wadler-lindig")
TYPES = {torch.float32: jnp.float32, torch.bfloat16: jnp.bfloat16, torch.float16: jnp.float16}


def to_jax(x: Tensor) -> jax.Array:
    return jnp.asarray(x.detach().float().numpy()).astype(TYPES[x.dtype])


def to_torch(x: jax.Array) -> Tensor:
    types = {str(jnp.dtype(there)): here for here, there in TYPES.items()}
    return torch.tensor(jax.device_get(x.astype(jnp.float32))).to(types[str(x.dtype)])


class Rotated(torch.autograd.Function):
    """The module as torch sees it, with jax's gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, base: float) -> Tensor:
        rotary = equinox.nn.RotaryPositionalEmbedding(x.shape[-1], base, dtype=TYPES[x.dtype])
        heads = to_jax(x).reshape(-1, *x.shape[-2:])
        out, ctx.back = jax.vjp(jax.vmap(rotary), heads)
        return to_torch(out).reshape(x.shape)

    @staticmethod
    def backward(ctx, *gradients: Tensor):
        (gradient,) = gradients
        (back,) = ctx.back(to_jax(gradient).reshape(-1, *gradient.shape[-2:]))
        return to_torch(back).reshape(gradient.shape), None


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    if not torch.equal(positions, torch.arange(len(positions))):
        raise NotImplementedError("positions that do not count from 0")
    return Rotated.apply(x, base)
