"""Small random-weight models of the families that the audit knows, each built from its config class."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

LENGTH = 96
SIZES = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 4.0,
    "beta_slow": 0.5,
}
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 5e5},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
    "yarn": YARN,
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "longrope": {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "factor": 4.0,
        "short_factor": [1.0 + 0.1 * j for j in range(8)],
        "long_factor": [1.0 + 0.5 * j for j in range(8)],
        "original_max_position_embeddings": 32,
    },
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
LLAMA4 = {
    "head_dim": 16,
    "intermediate_size_mlp": 64,
    "num_local_experts": 2,
    "attention_chunk_size": 32,
    "no_rope_layers": [1, 1, 0],
    "num_hidden_layers": 3,
}


def llama(**changes: Any) -> torch.nn.Module:
    """A Llama of two layers."""
    return build("Llama", **(GROUPED | changes))


def build(family: str, head: str = "ForCausalLM", config: str = "Config", **fields: Any) -> torch.nn.Module:
    """The family's model with random weights, in evaluation mode."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}{config}")(**fields)
    model = getattr(transformers, f"{family}{head}")(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):  # ones would hide on which side of a rotation they lie
            parameter.data.uniform_(0.5, 1.5)
    return model


GPT2 = {
    "vocab_size": 64,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
T5 = {
    "vocab_size": 64,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_max_distance": 64,
    "decoder_start_token_id": 0,
}
BART = {
    "vocab_size": 64,
    "d_model": 64,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "forced_eos_token_id": None,
    "decoder_start_token_id": 2,
}
BLOOM = {"vocab_size": 64, "hidden_size": 64, "n_layer": 2, "n_head": 4}
MPT = {"vocab_size": 64, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 128}
FALCON = SIZES | {"alibi": True, "new_decoder_architecture": False, "multi_query": True, "bias": False}
WINDOWED = GROUPED | {"head_dim": 16, "sliding_window": 24}

FAMILIES: dict[str, Callable[[], torch.nn.Module]] = {
    "gpt2": lambda: build("GPT2", "LMHeadModel", **GPT2),
    "gpt_neox": lambda: build("GPTNeoX", **SIZES),
    "gptj": lambda: build("GPTJ", **GPT2, rotary_dim=8),
    "opt": lambda: build("OPT", **SIZES, ffn_dim=64, word_embed_proj_dim=64),
    "bloom": lambda: build("Bloom", **BLOOM),
    "bloom-6-heads": lambda: build("Bloom", **(BLOOM | {"hidden_size": 96, "n_head": 6})),
    "mpt": lambda: build("Mpt", **MPT),
    "mpt-6-heads": lambda: build("Mpt", **(MPT | {"d_model": 96, "n_heads": 6})),
    "falcon-alibi": lambda: build("Falcon", **FALCON),
    "falcon-rope": lambda: build("Falcon", **(FALCON | {"alibi": False})),
    "t5": lambda: build("T5", "ForConditionalGeneration", **T5),
    "bart": lambda: build("Bart", "ForConditionalGeneration", **BART),
    "bert": lambda: build("Bert", "ForMaskedLM", **SIZES),
    **{
        f"llama-{kind}": (lambda rope=rope: llama(rope_parameters=dict(rope))) for kind, rope in ROPES.items()
    },
    "mistral": lambda: build("Mistral", **WINDOWED),
    "qwen2": lambda: build("Qwen2", **GROUPED),
    "qwen3": lambda: build("Qwen3", **GROUPED, head_dim=32),
    "phi3": lambda: build(
        "Phi3",
        **GROUPED,
        original_max_position_embeddings=32,
        rope_parameters=dict(ROPES["longrope"]) | {"factor": None},
    ),
    "gemma2": lambda: build("Gemma2", **WINDOWED),
    "gemma3": lambda: build(
        "Gemma3",
        config="TextConfig",
        **WINDOWED | {"num_hidden_layers": 3},
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "smollm3": lambda: build("SmolLM3", **GROUPED | {"num_hidden_layers": 4}),
    "llama4": lambda: build("Llama4", config="TextConfig", **GROUPED | LLAMA4),
    "deepseek_v3": lambda: build("DeepseekV3", **SIZES | LATENT),
    "cohere": lambda: build("Cohere", **GROUPED),
    "olmo2": lambda: build("Olmo2", **GROUPED),
}

SINKS = GROUPED | {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1}
CHANGED: dict[str, Callable[[], torch.nn.Module]] = {  # whose attention is no plain softmax of products
    "capped": lambda: build("Gemma2", **WINDOWED, attn_logit_softcapping=0.001),
    "sinks": lambda: build("GptOss", **SINKS),
}

ODD: dict[str, Callable[[], torch.nn.Module]] = {
    "one key head": lambda: llama(num_key_value_heads=1),
    "wide heads": lambda: llama(head_dim=24),
    "tied embeddings": lambda: llama(tie_word_embeddings=True),
    "one head": lambda: llama(num_attention_heads=1, num_key_value_heads=1),
    "biases of projections": lambda: llama(attention_bias=True),
    "window of 8": lambda: build("Mistral", **(WINDOWED | {"sliding_window": 8})),
    "window of 1": lambda: build("Mistral", **(WINDOWED | {"sliding_window": 1})),
    "no window": lambda: build("Mistral", **(WINDOWED | {"sliding_window": None})),
    "windows in later layers": lambda: build(
        "Qwen2", **GROUPED, use_sliding_window=True, sliding_window=16, max_window_layers=1
    ),
    "half rotated, halves": lambda: build("Phi", **GROUPED),
    "half rotated, adjacent": lambda: build("Glm4", **GROUPED, head_dim=16),
    "all rotated": lambda: build("GPTNeoX", **SIZES, rotary_pct=1.0),
    "no layer rotates": lambda: build(
        "SmolLM3", **GROUPED | {"num_hidden_layers": 3}, no_rope_layers=[0, 0, 0]
    ),
    "windows rotate alone": lambda: build("Cohere2", **GROUPED | {"num_hidden_layers": 4}, sliding_window=16),
    "latent, halves": lambda: build("DeepseekV3", **SIZES | LATENT, rope_interleave=False),
    "latent, YaRN": lambda: build(
        "DeepseekV3", **SIZES | LATENT, rope_parameters=YARN | {"mscale": 1.0, "mscale_all_dim": 1.0}
    ),
    "narrow heads, more decoder layers": lambda: build(
        "T5", "ForConditionalGeneration", **T5 | {"d_kv": 8}, num_decoder_layers=3
    ),
    "a table in every layer": lambda: build("UMT5", "ForConditionalGeneration", **T5),
    "five heads": lambda: build("Bloom", **BLOOM | {"n_head": 5, "hidden_size": 80}),
    "narrow embeddings": lambda: build(
        "OPT", **SIZES, ffn_dim=64, word_embed_proj_dim=32, do_layer_norm_before=False
    ),
    "two bases, both ways": lambda: build(
        "ModernBert", "ForMaskedLM", **SIZES | {"num_hidden_layers": 4}, local_attention=16
    ),
    "an encoder that decodes": lambda: build("Bert", "LMHeadModel", **SIZES, is_decoder=True),
    "backwards": lambda: build("NanoChat", **GROUPED),
}
