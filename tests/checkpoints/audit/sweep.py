"""Unmodified models under other valid configurations: `python -m tests.checkpoints.audit.sweep` tries all.

An edit is what a configuration of a family may say instead: heads, groups, windows, schedules, parts of the
coordinates that turn, biases, norms, factors. None of them may raise a finding, or anything but a
refusal that names what is missing.
"""

import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from tests.checkpoints.audit.families import ROPES, YARN
from tests.checkpoints.audit.zoo import HEADS, LENGTH, OWN, families, model_class, small_config

from spectrope.checkpoints.audit import Audit, audit
from spectrope.core import SpectropeError

PER_EDIT = 7  # Families that a general edit is tried on.
SLIDING, FULL = "sliding_attention", "full_attention"


def yarn(**fields: Any) -> dict[str, Any]:
    return {"rope_parameters": YARN | fields}


def of_kind(name: str, **fields: Any) -> dict[str, Any]:
    return {"rope_parameters": ROPES[name] | fields}


# Edits that are tried on a seeded sample of the families whose configuration has every one of their fields.
GENERAL: dict[str, dict[str, Any]] = {
    "eight heads of eight": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 8,
        "hidden_size": 64,
    },
    "one key-value head": {"num_key_value_heads": 1, "num_attention_heads": 4},
    "a key-value head per head": {"num_key_value_heads": 4, "num_attention_heads": 4},
    "wide heads": {"head_dim": 32, "hidden_size": 64},
    "three layers": {"num_hidden_layers": 3},
    "biases": {"attention_bias": True},
    "no biases": {"attention_bias": False},
    "epsilon of 1e-2": {"rms_norm_eps": 1e-2},
    "tied embeddings": {"tie_word_embeddings": True},
    "base 50": of_kind("default", rope_theta=50.0),
    "base 1e7": of_kind("default", rope_theta=1e7),
    "linear by 1.5": of_kind("linear", factor=1.5),
    "dynamic beyond training": of_kind("dynamic") | {"max_position_embeddings": 24},
    "YaRN untruncated": yarn(truncate=False),
    "YaRN, factor 0.7": yarn(attention_factor=0.7),
    "YaRN, two mscales": yarn(mscale=0.8, mscale_all_dim=0.5),
    "YaRN, factor derived": yarn(original_max_position_embeddings=64, beta_fast=16.0),
    "Llama 3, narrow ramp": of_kind("llama3", low_freq_factor=2.0, high_freq_factor=3.0),
    "LongRoPE within training": of_kind("longrope", original_max_position_embeddings=64),
    "LongRoPE, factor given": of_kind("longrope", attention_factor=1.3),
    "half rotates": {"partial_rotary_factor": 0.5},
    "window of 7": {"sliding_window": 7},
    "no window": {"sliding_window": None},
    "windows in turn": {"layer_types": [SLIDING, FULL], "sliding_window": 9},
    "full layers alone": {"layer_types": [FULL, FULL], "sliding_window": 9},
    "short training": {"max_position_embeddings": 50},
    "not gated by dropout": {"attention_dropout": 0.3},
    "two heads": {"num_attention_heads": 2, "num_key_value_heads": 1},
    "eager": {"attn_implementation": "eager"},
    "initial range 0.2": {"initializer_range": 0.2},
}
BIG = {"hidden_size": 96, "num_attention_heads": 6}
# Findings on unmodified code that are true, and why.
TRUE = {
    "mpt: range 16": "the library's code takes 8 whatever alibi_bias_max says",
    "roberta: decodes": "the library's `generate` counts rows from 0, not from the one after the padding's",
}
# Edits of single families.
SPECIAL: dict[str, dict[str, dict[str, Any]]] = {
    "gpt2": {
        "factor by layer": {"scale_attn_by_inverse_layer_idx": True},
        "no factor": {"scale_attn_weights": False},
        "upcast": {"reorder_and_upcast_attn": True},
        "one head": {"n_head": 1},
    },
    "gpt_bigcode": {
        "a group per head": {"multi_query": False},
        "no factor": {"scale_attn_weights": False},
        "softmax in float32": {"attention_softmax_in_fp32": False},
    },
    "gpt_neo": {
        "global alone": {"attention_types": [[["global"], 2]], "window_size": 16},
        "local alone": {"attention_types": [[["local"], 2]], "window_size": 9},
    },
    "gpt_neox": {
        "all rotates": {"rotary_pct": 1.0},
        "half rotates": {"rotary_pct": 0.5},
        "no biases": {"attention_bias": False},
        "sequential": {"use_parallel_residual": False},
        "base 500": {"rotary_emb_base": 500},
    },
    "gptj": {"all rotates": {"rotary_dim": 16}, "four coordinates": {"rotary_dim": 4}},
    "codegen": {"all rotates": {"rotary_dim": 16}, "four coordinates": {"rotary_dim": 4}},
    "opt": {
        "norm after": {"do_layer_norm_before": False},
        "narrow embeddings": {"word_embed_proj_dim": 32, "do_layer_norm_before": False},
        "no biases": {"enable_bias": False, "layer_norm_elementwise_affine": False},
    },
    "bloom": {
        "five heads": {"hidden_size": 80, "n_head": 5},
        "twelve heads": {"hidden_size": 96, "n_head": 12},
        "norm of embeddings": {"apply_residual_connection_post_layernorm": True},
    },
    "mpt": {
        "three heads": {"d_model": 48, "n_heads": 3},
        "range 16": {"attn_config": {"alibi": True, "alibi_bias_max": 16}},
        "factor 0.3": {"attn_config": {"alibi": True, "softmax_scale": 0.3}},
        "clipped": {"attn_config": {"alibi": True, "clip_qkv": 1.0}},
        "norms": {"attn_config": {"alibi": True, "qk_ln": True}},
    },
    "falcon": {
        "ALiBi": {"alibi": True},
        "ALiBi, six heads": {"alibi": True} | BIG,
        "new decoder": {"new_decoder_architecture": True, "num_kv_heads": 2},
        "a group per head": {"multi_query": False, "new_decoder_architecture": False},
        "sequential": {"parallel_attn": False, "new_decoder_architecture": False},
        "biases": {"bias": True},
    },
    "t5": {
        "eight buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
        "64 buckets": {"relative_attention_num_buckets": 64},
        "gated": {"feed_forward_proj": "gated-gelu"},
        "narrow heads": {"d_kv": 8},
        "more decoder layers": {"num_decoder_layers": 3},
    },
    "umt5": {"eight buckets": {"relative_attention_num_buckets": 8}},
    "longt5": {
        "global": {"encoder_attention_type": "transient-global", "global_block_size": 4},
        "local radius 5": {"local_radius": 5},
    },
    "bart": {"scaled embeddings": {"scale_embedding": True}},
    "marian": {"shared": {"share_encoder_decoder_embeddings": False}, "scaled": {"scale_embedding": True}},
    "m2m_100": {"not scaled": {"scale_embedding": False}},
    "pegasus": {"scaled": {"scale_embedding": True}},
    "bert": {"decodes": {"is_decoder": True}, "two heads": {"num_attention_heads": 2}},
    "roberta": {"decodes": {"is_decoder": True}, "padding 3": {"pad_token_id": 3}},
    "electra": {"narrow embeddings": {"embedding_size": 32}},
    "albert": {"two groups": {"num_hidden_groups": 2}},
    "deberta": {
        "no relative positions": {"relative_attention": False},
        "relative positions of no kind": {"pos_att_type": None},
        "content to position alone": {"pos_att_type": ["c2p"]},
        "a string of kinds": {"pos_att_type": "p2c|c2p", "max_relative_positions": -1},
        "no absolute": {"position_biased_input": False},
        "talking heads": {"talking_head": True},
        "talking heads alone": {"talking_head": True, "relative_attention": False},
    },
    "deberta-v2": {
        "no relative positions": {"relative_attention": False},
        "position to content alone": {"pos_att_type": ["p2c"]},
        "projections shared": {"share_att_key": True},
        "rows normalised": {"norm_rel_ebd": "layer_norm", "max_relative_positions": 40},
        "no buckets": {"position_buckets": -1, "max_relative_positions": 20},
        "as many rows as twice the length": {"position_buckets": LENGTH // 2},
        "no absolute": {"position_biased_input": False},
    },
    "xlnet": {
        "past alone": {"attn_type": "uni"},
        "past alone, of equal length": {"attn_type": "uni", "same_length": True},
        "clamped": {"clamp_len": 7},
        "read both ways": {"bi_data": True},
    },
    "longformer": {
        "one window": {"attention_window": 12},
        "windows beyond the length": {"attention_window": [128, 64]},
        "padding 3": {"pad_token_id": 3},
    },
    "led": {"one window": {"attention_window": 12}, "windows of 4 and 24": {"attention_window": [4, 24]}},
    "big_bird": {
        "full attention": {"attention_type": "original_full"},
        "two random blocks": {"num_random_blocks": 2},
        "blocks of 2": {"block_size": 2, "num_random_blocks": 3},
        "blocks of 5": {"block_size": 5},
        "blocks too large": {"block_size": 16},
        "decodes": {"is_decoder": True, "attention_type": "original_full"},
    },
    "bigbird_pegasus": {
        "full attention": {"attention_type": "original_full"},
        "blocks of 2": {"block_size": 2, "num_random_blocks": 3},
        "scaled": {"scale_embedding": True},
    },
    "funnel": {
        "<cls> pooled with others": {"separate_cls": False},
        "last token kept": {"truncate_seq": False},
        "keys pooled, too": {"pool_q_only": False},
        "factorized": {"attention_type": "factorized"},
        "factorized, everything pooled": {
            "attention_type": "factorized",
            "separate_cls": False,
            "pool_q_only": False,
        },
        "largest of each pair": {"pooling_type": "max"},
        "four blocks": {"block_sizes": [1, 2, 1, 1], "block_repeats": [1, 1, 1, 1]},
        "one block": {"block_sizes": [2], "block_repeats": [1]},
        "layers repeated": {"block_repeats": [2, 1, 2]},
    },
    "prophetnet": {
        "eight buckets": {"num_buckets": 8, "relative_max_distance": 30},
        "one stream more": {"ngram": 3},
    },
    "distilbert": {"sinusoids": {"sinusoidal_pos_embds": True}},
    "modernbert": {
        "global every second": {"global_attn_every_n_layers": 2, "local_attention": 10},
        "local of 7": {"local_attention": 7},
        "biases": {"attention_bias": True},
    },
    "modernbert-decoder": {"local of 10": {"local_attention": 10}},
    "qwen2": {
        "windows later": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        "window unused": {"use_sliding_window": False, "sliding_window": 16},
    },
    "qwen3": {"windows": {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 0}},
    "hunyuan_v1_moe": {"alpha": {"rope_parameters": ROPES["dynamic"] | {"alpha": 10.0}}},
    "gemma": {"heads of 24": {"head_dim": 24}},
    "gemma2": {
        "scalar 100": {"query_pre_attn_scalar": 100},
        "no cap": {"attn_logit_softcapping": None},
        "cap 5": {"attn_logit_softcapping": 5.0},
    },
    "gemma3_text": {
        "one base": {"layer_types": [FULL, FULL]},
        "global scaled": {
            "layer_types": [SLIDING, FULL],
            "sliding_window": 9,
            "rope_parameters": {
                SLIDING: {"rope_type": "default", "rope_theta": 1e4},
                FULL: {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
        "both ways": {"use_bidirectional_attention": True},
    },
    "cohere": {"norms": {"use_qk_norm": True}},
    "cohere2": {
        "pattern": {"layer_types": [SLIDING, FULL, SLIDING], "num_hidden_layers": 3, "sliding_window": 8}
    },
    "stablelm": {
        "norms": {"qk_layernorm": True},
        "half rotates": {"partial_rotary_factor": 0.5},
        "biases": {"use_qkv_bias": True},
        "parallel": {"use_parallel_residual": True},
    },
    "persimmon": {"norms": {"qk_layernorm": True}, "no norms": {"qk_layernorm": False}},
    "phi": {"norms": {"qk_layernorm": True}, "all rotates": {"partial_rotary_factor": 1.0}},
    "phi3": {
        "part rotates": {"partial_rotary_factor": 0.75},
        "long factors": {
            "original_max_position_embeddings": 32,
            "rope_parameters": dict(ROPES["longrope"]) | {"factor": None},
        },
        "short factors": {
            "original_max_position_embeddings": 64,
            "rope_parameters": {**ROPES["longrope"], "factor": None, "original_max_position_embeddings": 64},
        },
    },
    "olmo": {"clipped": {"clip_qkv": 0.5}},
    "olmoe": {"clipped": {"clip_qkv": 0.5}},
    "olmo3": {"pattern": {"layer_types": [SLIDING, FULL], "sliding_window": 9}},
    "llama4_text": {
        "pattern": {"no_rope_layers": [1, 0, 1], "num_hidden_layers": 3, "attention_chunk_size": 20},
        "no norms": {"use_qk_norm": False},
        "temperature": {"attn_temperature_tuning": True, "floor_scale": 8, "attn_scale": 0.3},
        "no temperature": {"attn_temperature_tuning": False},
    },
    "smollm3": {
        "interval 2": {"no_rope_layer_interval": 2, "num_hidden_layers": 4},
        "all rotate": {"no_rope_layers": [1, 1]},
        "windows": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0},
    },
    "granite": {"multiplier": {"attention_multiplier": 0.05}},
    "granitemoehybrid": {
        "no positions": {"position_embedding_type": "nope", "layer_types": [FULL, FULL]},
        "rotates": {"position_embedding_type": "rope", "layer_types": [FULL, FULL]},
    },
    "deepseek_v2": {
        "plain queries": {"q_lora_rank": None},
        "narrow rotation": {"qk_rope_head_dim": 8},
        "mscale": yarn(mscale=0.7, mscale_all_dim=0.7),
    },
    "deepseek_v3": {
        "halves": {"rope_interleave": False},
        "plain queries": {"q_lora_rank": None},
        "narrow values": {"v_head_dim": 8},
        "wide rotation": {"qk_rope_head_dim": 32},
        "mscale": yarn(mscale=1.0, mscale_all_dim=1.0),
    },
    "glm4_moe": {"norms": {"use_qk_norm": True}, "all rotates": {"partial_rotary_factor": 1.0}},
    "gpt_oss": {
        "full alone": {"layer_types": [FULL, FULL]},
        "window 5": {"sliding_window": 5},
        "default rope": of_kind("default"),
    },
    "nemotron": {"all rotates": {"partial_rotary_factor": 1.0}},
    "exaone4": {
        "no windows": {"sliding_window": None, "layer_types": [FULL, FULL]},
        "pattern": {"sliding_window": 8, "layer_types": [SLIDING, FULL]},
    },
    "nanochat": {"base 50": of_kind("default", rope_theta=50.0)},
    "diffllama": {"four layers": {"num_hidden_layers": 4}},
    "dbrx": {"base 500": {"attn_config": {"kv_n_heads": 4, "rope_theta": 500.0, "clip_qkv": 1.0}}},
    "mixtral": {"window": {"sliding_window": 11}},
    "starcoder2": {"window": {"sliding_window": 11}, "no biases": {"use_bias": False}},
    "ministral3": {"temperature": yarn(llama_4_scaling_beta=0.1)},
    "minimax_m2": {"narrow rotation": {"rotary_dim": 4}},
    "hunyuan_v1_dense": {
        "no norms": {"use_qk_norm": False},
        "alpha": {"rope_parameters": ROPES["dynamic"] | {"alpha": 100.0}},
    },
    "apertus": {"default rope": of_kind("default")},
    "xglm": {"not scaled": {"scale_embedding": False}},
    "ctrl": {"six heads": {"n_embd": 96, "n_head": 6}},
    "openai-gpt": {"two heads": {"n_head": 2}},
    "zamba2": {
        "attention turns": {"use_mem_rope": True},
        "attention turns, long": {"use_mem_rope": True, "use_long_context": True},
    },
    "roformer": {"values turn": {"rotary_value": True}},
    "esmc": {"two heads": {"num_attention_heads": 2}},
    "eurobert": {"grouped": {"num_key_value_heads": 1}},
    "helium": {"heads of 32": {"head_dim": 32}},
    "ernie4_5": {"biases": {"use_bias": True}},
    "recurrent_gemma": {"window 9": {"attention_window_size": 9}},
    "jamba": {"attention first": {"attn_layer_period": 2, "attn_layer_offset": 0}},
    "bamba": {"half rotates": {"partial_rotary_factor": 1.0}},
    "seed_oss": {"biases": {"attention_out_bias": True}},
}


@dataclass(frozen=True)
class Edited:
    """One configuration of one family.

    Args:
        family: Its `model_type`.
        name: Of the edit.
        fields: What the configuration says instead.
    """

    family: str
    name: str
    fields: dict[str, Any] = field(hash=False)

    def __str__(self) -> str:
        return f"{self.family}: {self.name}"


def variants(seed: int = 30) -> list[Edited]:
    """All special edits, and each general one on a seeded sample of the families that have its fields."""
    special = [Edited(f, name, fields) for f, edits in SPECIAL.items() for name, fields in edits.items()]
    return [*special, *_general(random.Random(seed))]


def _general(stream: random.Random) -> Iterator[Edited]:
    known = {family: _fields(family) for family in families()}
    for name, fields in GENERAL.items():
        wanted = fields.keys() - {"attn_implementation"}
        able = [family for family, has in known.items() if wanted <= has]
        for family in sorted(stream.sample(able, min(PER_EDIT, len(able)))):
            yield Edited(family, name, fields)


def _fields(family: str) -> set[str]:
    """What a family's own small configuration has, without those whose rotation is by type of layer."""
    try:
        config = small_config(family).to_dict()
    except Exception:  # the library's validators raise errors of many kinds
        return set()
    rope = config.get("rope_parameters") or {}
    flat = "rope_type" in rope and "mrope_section" not in rope and rope.get("partial_rotary_factor", 1) == 1
    return set(config) - (set() if flat else {"rope_parameters"})


def build(one: Edited) -> torch.nn.Module:
    """The unmodified model of that configuration, in evaluation mode."""
    config = small_config(one.family).to_dict()
    own = OWN.get(one.family, {})
    given = {key: value for key, value in config.items() if key in own or not isinstance(value, dict)}
    for derived in ("model_type", "transformers_version", "layer_types", "no_rope_layers", "architectures"):
        if derived not in own:
            given.pop(derived, None)
    fields = {key: value for key, value in one.fields.items() if key != "attn_implementation"}
    cls = type(small_config(one.family))
    name = HEADS[families()[one.family]][one.family]
    model = model_class(small_config(one.family), name if isinstance(name, str) else name[0])
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = model(cls(**given | fields)).eval()
    if (attention := one.fields.get("attn_implementation")) is not None:
        made.set_attn_implementation(attention)
    for key, weights in made.named_parameters():
        if key.endswith("norm.weight"):
            weights.data.uniform_(0.5, 1.5)
    return made


def word(one: Edited) -> tuple[str, str]:
    """How the audit of an unmodified model ends: "ok", "partly", "refused", "false alarm", "not built"."""
    try:
        model = build(one)
    except Exception as error:  # the library's validators raise errors of many kinds
        return "not built", f"{type(error).__name__}: {str(error)[:120]}"
    try:
        found = audit(model, length=LENGTH)
    except SpectropeError as error:
        return "refused", str(error)
    told, why = ended(found)
    return ("true finding", TRUE[str(one)]) if told == "false alarm" and str(one) in TRUE else (told, why)


def ended(found: Audit) -> tuple[str, str]:
    """The word for one audit, and what it found or could not tell."""
    if found.outcome == "matches":
        return "ok", ""
    if found.outcome == "differs":
        return "false alarm", "; ".join(sorted({f"{where}: {one}" for where, one in found.findings}))
    reasons = [layer.reason for layer in found.layers if layer.reason]
    return "partly", "; ".join(dict.fromkeys(reasons)) or "embeddings or modules that are not read"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    counts: Counter[str] = Counter()
    for variant in variants():
        told, why = word(variant)
        counts[told] += 1
        if told != "ok":
            sys.stdout.write(f"{told}: {variant}: {why}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{sum(counts.values())} variants: {dict(counts)}\n")
