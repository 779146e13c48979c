"""The decoder of the experiments."""

__all__ = [
    "Block",
    "Decoder",
    "DecoderConfig",
    "Heads",
    "Stream",
]

from .decoder import Block, Decoder, DecoderConfig, Heads, Stream
