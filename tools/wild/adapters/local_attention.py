"""local-attention: `SinusoidalEmbeddings` and `apply_rotary_pos_emb`, which count from 0."""

import torch
from local_attention.rotary import SinusoidalEmbeddings, apply_rotary_pos_emb
from torch import Tensor

REQUIRES = ("local-attention", "einops", "hyper-connections", "torch-einops-utils")


def apply_rope(x: Tensor, positions: Tensor, base: float = 10000.0) -> Tensor:
    if not torch.equal(positions, torch.arange(len(positions))):
        raise NotImplementedError("positions that do not count from 0")
    frequencies, scale = SinusoidalEmbeddings(x.shape[-1], theta=base)(x)
    return apply_rotary_pos_emb(x, x, frequencies, scale)[0]
