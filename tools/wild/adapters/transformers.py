"""transformers: the rotary modules of Llama and Qwen2-VL, and the functions with which models apply them."""

from functools import cache

from torch import Tensor
from transformers import LlamaConfig, Qwen2VLTextConfig
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as apply_interleaved
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as apply_halves
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

REQUIRES = ("transformers",)


@cache
def module(width: int, base: float, scaling: tuple, sections: tuple):
    parameters = {"rope_type": "default", "rope_theta": base} | dict(scaling)
    fields = {"hidden_size": width, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": width}
    if sections:
        parameters["mrope_section"] = list(sections)
        config = Qwen2VLTextConfig(**fields, rope_parameters=parameters)
        return Qwen2VLRotaryEmbedding(config)
    config = LlamaConfig(**fields, max_position_embeddings=32768, rope_parameters=parameters)
    return LlamaRotaryEmbedding(config)


def apply_rope(
    x: Tensor, positions: Tensor, base: float = 10000.0, layout: str = "halves", width: int | None = None,
    scaling: dict | None = None, sections: list | None = None,
) -> Tensor:  # fmt: skip
    width = width or x.shape[-1]
    rotary = module(width, base, tuple((scaling or {}).items()), tuple(sections or ()))
    if sections:
        if layout != "halves" or width != x.shape[-1]:
            raise NotImplementedError("sections of a part of the width, or of neighbours")
        cos, sin = rotary(x, positions[:, None])
        return apply_halves(x, x, cos, sin)[0]
    cos, sin = rotary(x, positions[None])
    apply = apply_interleaved if layout == "interleaved" else apply_halves
    return apply(x, x, cos, sin)[0]
