"""Small random-weight models of every text family of the library, built from their configuration classes."""

import argparse
import importlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from tests.checkpoints.audit.families import ROPES
from transformers.models.auto import configuration_auto, modeling_auto

LENGTH = 48
MOST = 6_000_000  # Parameters of a model that is still called small.
HEADS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "base": modeling_auto.MODEL_MAPPING_NAMES,
}
DTYPES = ("float32", "bfloat16", "float16")

# A size for each name under which configurations keep one.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "n_vocab", "src_vocab_size", "tgt_vocab_size", "entity_vocab_size"), 64),
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "word_embed_proj_dim"), 64
    ),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "hidden_dim", "d_inner"), 64),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "shared_expert_intermediate_size"), 64),
    **dict.fromkeys(("ffn_hidden_size", "expert_ffn_hidden_size", "moe_hidden_size", "dim_ff"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "attention_head_dim", "kv_channels", "dim_head"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 16),
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_seqlen"), 128
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(
        ("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts", "num_experts_per_token"), 2
    ),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_group"), 1),
    **dict.fromkeys(("shape_embed_dim", "pronunciation_embed_dim", "entity_emb_size"), 32),
    **dict.fromkeys(("vocab_size_per_layer_input", "shape_vocab_size", "pronunciation_vocab_size"), 64),
    "hidden_size_per_layer_input": 8,
    "global_head_dim": 16,
    "zero_expert_num": 2,
    "linear_num_heads": 4,
    "linear_head_dim": 16,
    "index_n_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "rotary_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
FULL = {"layer_types": ["full_attention"] * 2}
MHA = {"num_key_value_heads": 4}
STACK = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
STACK |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 128}
ROPE = {"rope_type": "default", "rope_theta": 1e4}
WHOLE = {"bigbird_pegasus": "seq2seq"}  # Whose encoders are what is special about them.
# What a family needs besides, or None in the place of a size that it derives itself.
OWN: dict[str, dict[str, Any]] = {
    "longformer": {"attention_window": [8, 16]},
    "led": {"attention_window": [8, 16]},
    **{key: {"block_size": 4, "num_random_blocks": 1} for key in ("big_bird", "bigbird_pegasus")},
    "funnel": {"block_sizes": [2, 2, 1], "d_head": 16},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 20},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 2, "moe_top_k": 1},
    },
    **dict.fromkeys(("axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32"), MHA),
    **dict.fromkeys(("glm4_moe_lite", "glm_moe_dsa", "longcat_flash", "minicpm3"), MHA),
    **dict.fromkeys(("mistral_large4_text", "youtu"), MHA),
    "dots1": {"n_shared_experts": 1},
    "dots3_note_text": MHA,
    "esmc": MHA,
    "glm5_next_text": MHA
    | {"qk_rope_head_dim": 0, "head_dim": 0, "layer_types": ["linear_attention", "indexed_attention"]}
    | {"indexer_types": ["full"] * 2, "mlp_layer_types": ["dense"] * 2, "index_kpool": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 16},
    "reformer": {"is_decoder": True, "axial_pos_embds": False},
    "zaya": {"num_experts_per_tok": 1},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "perceiver": {"d_latents": 64, "num_latents": 16, "num_self_attends_per_block": 1},
    "gemma3n_text": {"num_hidden_layers": 5, "num_kv_shared_layers": 0, "intermediate_size": [64] * 5},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "t5gemma": {"encoder": STACK, "decoder": STACK, "vocab_size": 64},
    "deepseek_v4": {"index_head_dim": 16, "index_n_heads": 2},
    "gemma4_text": {"global_head_dim": 16},
    "gemma4_unified_text": {"global_head_dim": 32},
    "embedding_gemma2_text": {"global_head_dim": 32},
    "minimax_m3_vl_text": {"rotary_dim": 16},
    "granitemoehybrid": {
        "layer_types": ["linear_attention", "full_attention"],
        "position_embedding_type": "rope",
    },
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"]},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"]},
    "qwen3_5_moe_text": {"layer_types": ["linear_attention", "full_attention"]},
    "qwen4_exp_text": {"layer_types": ["linear_attention", "indexed_attention"], "hc_lowrank": 16}
    | {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 16}
    | {"indexer_budget": 2048, "indexer_compress_ratio": 16},
    "bailing_hybrid": MHA | {"layer_types": ["linear_attention", "full_attention"]},
    "kimi_linear": MHA | {"layer_types": ["linear_attention", "full_attention"]},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 16},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "zamba2": MHA
    | {"layers_block_type": ["linear_attention", "hybrid"], "n_mamba_heads": 8}
    | {"attention_hidden_size": 128, "attention_head_dim": 32, "mamba_headdim": 16, "kv_channels": 16},
    "zamba": {"num_hidden_layers": 4, "layer_types": ["mamba", "hybrid"] * 2},
    "cosmos3_edge_text": {"rope_parameters": ROPE | {"mrope_section": [4, 2, 2]}},
    "hunyuan_vl_text": {"rope_parameters": ROPE | {"xdrope_section": [2, 2, 2, 2]}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    **{
        family: {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]}}
        for family in ("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "glm_image_text", "glm_ocr_text")
    },
    "glm4v_moe_text": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e4,
            "mrope_section": [2, 1, 1],
            "partial_rotary_factor": 0.5,
        }
    },
}


@dataclass(frozen=True)
class Variant:
    """One model to audit.

    Args:
        family: The configuration's `model_type`.
        head: Which of the family's classes.
        rope: Name of the rotary schedule put into it, "" for the family's own.
        dtype: Of its arithmetic.
    """

    family: str
    head: str
    rope: str = ""
    dtype: str = "float32"

    def __str__(self) -> str:
        return "-".join(filter(None, (self.family, self.head, self.rope, self.dtype)))


def families() -> dict[str, str]:
    """Every text family and the head it is built with."""
    heads: dict[str, str] = {}
    for head, names in HEADS.items():
        for family in names:
            if head != "base" or family.endswith("_text"):
                heads.setdefault(family, WHOLE.get(family, head))
    return {family: head for family, head in sorted(heads.items()) if _of_text(family)}


def asked_families(program: str, description: str) -> list[str]:
    """Those that the arguments of a program name; all if they name none."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("family", nargs="*", help="text family of transformers, such as llama (default: all)")
    asked = parser.parse_args().family
    if unknown := sorted({*asked} - {*families()}):
        parser.error(f"no text family of transformers: {', '.join(unknown)}")
    return asked or [*families()]


def _of_text(family: str) -> bool:
    """Whether a configuration has no parts, as those of images and sounds do."""
    try:
        parts = configuration_auto.CONFIG_MAPPING[family].sub_configs
    except (KeyError, AttributeError):
        return False
    return not set(parts) - {"attn_config", "ffn_config"} or family in OWN


def build(variant: Variant) -> torch.nn.Module:
    """The model with random weights, in evaluation mode.

    Raises:
        ValueError: If it is not small.
    """
    config = small_config(variant.family, variant.rope)
    name = HEADS[variant.head][variant.family]
    cls = model_class(config, name if isinstance(name, str) else name[0])
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")  # of the library's own initialisation
        count = sum(weights.numel() for weights in cls(config).parameters())
    if count > MOST:
        raise ValueError(f"{variant.family} has {count} parameters; name its sizes in SIZES or OWN.")
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cls(config).eval()
    for key, weights in model.named_parameters():
        if key.endswith("norm.weight"):  # ones would hide on which side of a rotation they lie
            weights.data.uniform_(0.5, 1.5)
    return in_precision(model, variant.dtype)


def model_class(config: Any, name: str) -> Any:
    """The class of a name; some parts of models are known to the module of their configuration alone."""
    code = type(config).__module__.replace(".configuration_", ".modeling_")
    return getattr(transformers, name, None) or getattr(importlib.import_module(code), name)


def in_precision(model: torch.nn.Module, dtype: str) -> torch.nn.Module:
    """The model in another precision, but for its frequencies, which a loaded checkpoint keeps in float32."""
    tables = ("inv_freq", "freqs_ci")
    kept = {name: buffer for name, buffer in model.named_buffers() if name.endswith(tables)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Tables of complex numbers lose their imaginary part.
        model.to(getattr(torch, dtype))
    for name, buffer in kept.items():
        owner, _, field = name.rpartition(".")
        setattr(model.get_submodule(owner), field, buffer)
    return model


def small_config(family: str, rope: str = "") -> Any:
    """The family's configuration with every size that it knows made small."""
    cls = configuration_auto.CONFIG_MAPPING[family]
    known = cls().to_dict()
    fields = {name: size for name, size in SIZES.items() if name in known}
    fields |= OWN.get(family, {})
    if rope:
        fields["rope_parameters"] = dict(ROPES[rope])
    return cls(**fields)


def variants() -> Iterator[Variant]:
    """Every family in every dtype, and in every rotary schedule where all its layers share one."""
    for family, head in families().items():
        for dtype in DTYPES:
            yield Variant(family, head, dtype=dtype)
        yield from (
            Variant(family, head, rope) for rope in ROPES if rope != "default" and _takes_ropes(family)
        )


def _takes_ropes(family: str) -> bool:
    """Whether all layers share one rotary schedule over heads of 16 coordinates that all turn."""
    try:
        config = small_config(family)
    except Exception:  # the library's validators raise errors of many kinds
        return False
    parameters = getattr(config, "rope_parameters", None) or {}
    flat = "rope_type" in parameters and "mrope_section" not in parameters
    part = parameters.get("partial_rotary_factor", 1.0) if flat else 0
    return flat and part == 1.0 and getattr(config, "head_dim", None) in (16, None)
