"""GGUF files written from small models, right or with one fault."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import PreTrainedModel

Writer = gguf.GGUFWriter
PARTS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
FUSED = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}
AFTER = {  # Of architectures with norms after attention and after the feed-forward layer.
    "post_attention_layernorm": "post_attention_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
OTHER_PARTS = {
    "phi3": FUSED,
    "olmo2": AFTER,
    "gemma2": AFTER | {"pre_feedforward_layernorm": "ffn_norm"},
    "glm4": FUSED
    | {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
}
ADJACENT = ("llama", "smollm3", "mistral3", "granite")  # Architectures whose rows a conversion permutes.


def permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of halves as adjacent pairs."""
    rows = weight.reshape(heads, 2, len(weight) // heads // 2, *weight.shape[1:])
    return rows.swapaxes(1, 2).reshape(weight.shape)


@dataclass
class Conversion:
    """How a model is written; the defaults are right.

    Args:
        architecture: Of the file.
        kind: Type of the projections.
        leave: Layers and parts whose rows are not permuted, such as (1, "attn_q").
        change: Changes weights by name before they are written.
        metadata: Changes the metadata; None values remove a key.
        factors: Whether `rope_freqs` is written where the model's scaling is Llama 3's.
    """

    architecture: str = "llama"
    kind: str = "F32"
    leave: tuple[tuple[int, str], ...] = ()
    change: Callable[[str, np.ndarray], np.ndarray] = lambda name, weight: weight
    metadata: dict[str, Any] = field(default_factory=dict)
    factors: bool = True
    tensors: dict[str, np.ndarray] = field(default_factory=dict)


def write(model: PreTrainedModel, path: Path, conversion: Conversion) -> Path:
    """The model as a GGUF file."""
    writer = Writer(path, conversion.architecture)
    config: Any = model.config
    for key, value in (_metadata(config, model) | conversion.metadata).items():
        _add(writer, f"{conversion.architecture}.{key}", value)
    _add_tokenizer(writer, config.vocab_size)
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        new = renamed(name, conversion.architecture)
        values = weight.detach().to(torch.float32).numpy()
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        part, layer = new.split(".")[-2], int(new.split(".")[1]) if new.startswith("blk.") else -1
        if conversion.architecture in ADJACENT and part in heads and (layer, part) not in conversion.leave:
            values = permuted(values, heads[part])
        _add_tensor(writer, new, np.ascontiguousarray(conversion.change(new, values)), conversion.kind)
    if conversion.factors and (config.rope_parameters or {}).get("rope_type") == "llama3":
        _add_tensor(writer, "rope_freqs.weight", llama3_factors(config), "F32")
    for name, values in conversion.tensors.items():
        _add_tensor(writer, name, values, "F32")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def renamed(name: str, architecture: str) -> str:
    """The file's name of a weight."""
    parts = PARTS | OTHER_PARTS.get(architecture, {})
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{parts[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{parts[part]}.{kind}"


def _metadata(config: Any, model: PreTrainedModel) -> dict[str, Any]:
    rotary = config.rope_parameters.get("full_attention", config.rope_parameters)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    fields = {
        "vocab_size": config.vocab_size,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.freq_base": float(rotary["rope_theta"]),
        "rope.dimension_count": head_dim,
    }
    if hasattr(config, "rms_norm_eps"):
        fields["attention.layer_norm_rms_epsilon"] = float(config.rms_norm_eps)
    else:
        fields["attention.layer_norm_epsilon"] = float(config.layer_norm_eps)
    if rotary["rope_type"] in ("linear", "yarn"):
        fields |= {"rope.scaling.type": rotary["rope_type"], "rope.scaling.factor": float(rotary["factor"])}
    if original := rotary.get("original_max_position_embeddings"):
        fields["rope.scaling.original_context_length"] = original
    return fields


def llama3_factors(config: Any) -> np.ndarray:
    """By what Llama 3's scaling divides each frequency."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    plain = config.rope_parameters["rope_theta"] ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    return (plain / scaled).float().numpy()


def _add_tokenizer(writer: Writer, size: int) -> None:
    """A vocabulary of numbers, which a server needs to print tokens."""
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"{token:02d}" for token in range(size)])
    writer.add_token_scores([0.0] * size)
    writer.add_token_types([gguf.TokenType.NORMAL] * size)
    writer.add_add_bos_token(False)


def _add(writer: Writer, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _add_tensor(writer: Writer, name: str, values: np.ndarray, kind: str) -> None:
    wanted = gguf.GGMLQuantizationType[kind]
    if values.ndim < 2 or wanted is gguf.GGMLQuantizationType.F32 or "embd" in name:
        writer.add_tensor(name, values.astype(np.float32))
    else:
        writer.add_tensor(name, gguf.quantize(values.astype(np.float32), wanted), raw_dtype=wanted)
