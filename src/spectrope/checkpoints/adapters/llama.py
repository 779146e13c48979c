"""Llamas with random weights."""

from importlib.util import find_spec

import torch
from torch import nn

from spectrope.core import UnsupportedError


def random_llama(
    vocabulary: int,
    *,
    width: int,
    feed_forward: int,
    layers: int,
    heads: int,
    length: int,
    base: float,
    seed: int,
) -> nn.Module:
    """A Llama whose weights are drawn from a seed.

    Args:
        vocabulary: Number of tokens, none of which begins or ends a text.
        width: Of the hidden states.
        feed_forward: Of the hidden layer of each block.
        layers: Number of blocks.
        heads: Heads of each block, each with keys of its own.
        length: Most positions.
        base: Of the rotation.
        seed: Of the weights.

    Raises:
        UnsupportedError: If transformers is missing.
    """
    require_llama()
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=length,
        rope_parameters={"rope_type": "default", "rope_theta": base},
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def require_llama() -> None:
    """Refuse to start without transformers.

    Raises:
        UnsupportedError: If it is not installed.
    """
    if find_spec("transformers") is None:
        raise UnsupportedError("a Llama needs transformers; pip install 'spectrope[hf]'.")
