"""Small contexts with random content, and encodings whose parameters are not at their initial values."""

from typing import Any

import torch
from torch import Tensor

from spectrope.attention import attention
from spectrope.encodings.base import Context, EncodingConfig

B, N, H, D, C = 2, 8, 4, 8, 10
SIZES = {"d_model": C, "n_heads": H, "head_dim": D, "max_length": N}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(n: int = N) -> Context:
    pos, x = torch.arange(n)[None], draw(B, n, C, seed=2)
    return Context(draw(B, H, n, D), draw(B, H, n, D, seed=1), pos, pos, x, x)


def built(config: EncodingConfig) -> Any:
    encoding = config.fitted(**SIZES).build().double()
    with torch.no_grad():
        for number, parameter in enumerate(encoding.parameters()):
            parameter += 0.2 * draw(*parameter.shape, seed=10 + number)
    return encoding


def pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())


def gradients_hold(config: EncodingConfig) -> bool:
    """Whether gradients of causal attention with this encoding are those of finite differences."""
    encoding, pos = built(config), torch.arange(4)[None]

    def output(q: Tensor, k: Tensor, x: Tensor) -> Tensor:
        return attention(Context(q, k, pos, pos, x, x), k, encoding, causal=True)

    q, k, x = draw(1, H, 4, D), draw(1, H, 4, D, seed=1), draw(1, 4, C, seed=2)
    inputs = [value.requires_grad_() for value in (q, k, x)]
    return torch.autograd.gradcheck(output, inputs, fast_mode=True)
