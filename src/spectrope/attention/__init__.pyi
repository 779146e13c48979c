"""Attention under any positional encoding, by several implementations, compared with one reference."""

__all__ = [
    "ATTENTIONS",
    "HEAD_DIM",
    "IMPLEMENTATIONS",
    "N_HEADS",
    "REPEATS",
    "Allocations",
    "AttentionConfig",
    "Bounded",
    "EncodingCost",
    "HeadSizes",
    "Heads",
    "Implementation",
    "Latent",
    "MultiHead",
    "Ratio",
    "ShiftedWindows",
    "Stream",
    "UncostedEncoding",
    "additive_bias",
    "additive_mask",
    "attention",
    "batch_size",
    "costs",
    "describe_attention",
    "fastest",
]

from .base import IMPLEMENTATIONS, Implementation, additive_bias, additive_mask, attention, fastest
from .bounded import Bounded
from .cost import (
    HEAD_DIM,
    N_HEADS,
    REPEATS,
    Allocations,
    EncodingCost,
    Ratio,
    UncostedEncoding,
    batch_size,
    costs,
)
from .heads import ATTENTIONS, AttentionConfig, Heads, HeadSizes, Stream, describe_attention
from .latent import Latent
from .multi_head import MultiHead
from .shifted_windows import ShiftedWindows
