"""torch's own `nn.MultiheadAttention`, step by step, so that its kernel and its heads can be seen."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import UnsupportedError


def check_multi_head(module: nn.MultiheadAttention) -> None:
    """Refuse modules whose forward pass `multi_head_forward` does not reproduce.

    Raises:
        UnsupportedError: If sequences are not its first dimension, or it adds keys of its own.
    """
    if not module.batch_first:
        raise UnsupportedError("nn.MultiheadAttention is read with batch_first=True alone; build it so.")
    if module.bias_k is not None or module.add_zero_attn:
        raise UnsupportedError("nn.MultiheadAttention with add_bias_kv or add_zero_attn is not read here.")


def multi_head_forward(
    module: nn.MultiheadAttention,
    query: Float[Tensor, "b i c"],
    key: Float[Tensor, "b j _"],
    value: Float[Tensor, "b j _"],
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Float[Tensor, "b i c"], None]:
    """Output of the module, from torch's attention function and its own projection.

    Args and their meaning are torch's: True in a mask forbids. No pattern is returned.
    """
    q, k, v = (
        F.linear(x, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, weight, bias in zip((query, key, value), _weights(module), _biases(module), strict=True)
    )
    mask = None if attn_mask is None else _added(attn_mask, q)
    if mask is not None and mask.ndim == 3:
        mask = mask.unflatten(0, (-1, module.num_heads))
    if key_padding_mask is not None:
        padding = _added(key_padding_mask, q)[:, None, None, :]
        mask = padding if mask is None else mask + padding
    causal, dropout = is_causal and mask is None, module.dropout if module.training else 0.0
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    return module.out_proj(heads.transpose(1, 2).flatten(2)), None


def _weights(module: nn.MultiheadAttention) -> tuple[Tensor, ...]:
    if module.in_proj_weight is not None:
        return module.in_proj_weight.chunk(3)
    return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight  # pyright: ignore[reportReturnType]


def _biases(module: nn.MultiheadAttention) -> tuple[Tensor | None, ...]:
    return (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of torch's module as an additive bias on logits."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -torch.inf)
