"""Rotary parameters of a configuration, in old and new layouts, as frequencies."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.architectures import READS_ROTARY_DIM, SCALES_FULL_ALONE, TURNS_LAST
from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.core import ConfigError
from spectrope.encodings import (
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Pairing,
    Proportional,
    YaRN,
    geometric,
    ntk_slowdown,
)

# Architectures whose weights lay out rotary pairs side by side; no configuration says so.
ADJACENT = frozenset(
    [
        "axk1",
        "axk2",
        "bailing_hybrid",
        "codegen",
        "cohere",
        "cohere2",
        "cohere2_moe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "dots3_note_text",
        "ernie4_5",
        "ernie4_5_moe",
        "glm",
        "glm4",
        "glm4_moe_lite",
        "glm4v_text",
        "glm_moe_dsa",
        "glm_ocr_text",
        "gptj",
        "helium",
        "llama4_text",
        "longcat_flash",
        "mistral_large4_text",
        "moonshine",
        "pe_audio_encoder",
        "roformer",
        "youtu",
    ]
)
# Architectures whose weights lay out a pair's coordinates half a head apart.
HALVES = frozenset(
    [
        "afmoe",
        "apertus",
        "arcee",
        "aria_text",
        "bamba",
        "beam",
        "bitnet",
        "cohere_compass_text",
        "cosmos3_edge_text",
        "cwm",
        "dbrx",
        "diffllama",
        "doge",
        "dots1",
        "embedding_gemma2_text",
        "esmc",
        "eurobert",
        "exaone4",
        "exaone_moe",
        "falcon",
        "falcon_h1",
        "flex_olmo",
        "gemma",
        "gemma2",
        "gemma3_text",
        "gemma3n_text",
        "gemma4_text",
        "gemma4_unified_text",
        "glm4_moe",
        "glm4v_moe_text",
        "glm_image_text",
        "glmasr_encoder",
        "gpt_neox",
        "gpt_neox_japanese",
        "gpt_oss",
        "granite",
        "granite_docling_text",
        "granite_swa",
        "granitemoe",
        "granitemoe_swa",
        "granitemoehybrid",
        "granitemoeshared",
        "gte",
        "hrm_text",
        "hunyuan_v1_dense",
        "hunyuan_v1_moe",
        "hunyuan_vl_text",
        "hy_v3",
        "hy_v4",
        "hyperclovax",
        "internlm3",
        "iquestcoder",
        "jais2",
        "jetmoe",
        "jina_embeddings_v3",
        "kolibri1",
        "laguna",
        "lfm2",
        "lfm2_moe",
        "lfm3",
        "llama",
        "mellum",
        "mimo_v2_flash",
        "minicpm3",
        "minimax",
        "minimax_m2",
        "minimax_m3_vl_text",
        "ministral",
        "ministral3",
        "mistral",
        "mixtral",
        "modernbert",
        "modernbert-decoder",
        "molmo2_text",
        "muse_glimmer_text",
        "muse_spark_text",
        "nanochat",
        "nemotron",
        "neomme",
        "nomic_bert",
        "olmo",
        "olmo2",
        "olmo3",
        "olmo_hybrid",
        "olmoe",
        "persimmon",
        "phi",
        "phi3",
        "phimoe",
        "qwen2",
        "qwen2_5_vl_text",
        "qwen2_moe",
        "qwen2_vl_text",
        "qwen3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
        "qwen4_exp_text",
        "recurrent_gemma",
        "seed_oss",
        "smollm3",
        "solar_open",
        "stablelm",
        "starcoder2",
        "t5_gemma_module",
        "ultrabert",
        "vaultgemma",
        "voxtral_realtime_encoder",
    ]
)
BACKWARDS = frozenset({"nanochat"})
_PLAIN = (str, int, float, bool, list)
_NUMBERS = ("factor", "low_freq_factor", "high_freq_factor", "attention_factor", "beta_fast", "beta_slow")
OLD_KEYS = ("rope_theta", "rope_scaling", "rotary_emb_base", "rope_local_base_freq")


def rope_parameters(fields: Declaration, layer_type: str) -> dict[str, Any]:
    """Base, kind of scaling and its parameters for layers of a type, in the new layout.

    A checkpoint's file that is written in the old layout (`rope_theta`, `rope_scaling`, and
    `rope_local_base_freq` for sliding layers) wins over what the library made of it. There are architectures
    whose `rope_scaling` holds for layers of full attention alone.
    """
    parameters = _of_type(fields.get("rope_parameters") or {}, layer_type)
    file = fields.file
    if "rope_parameters" in file or not any(file.get(key) is not None for key in OLD_KEYS):
        return parameters
    kept = {key: value for key, value in parameters.items() if key == "partial_rotary_factor"}
    base = file.get("rope_theta") or file.get("rotary_emb_base") or parameters.get("rope_theta")
    local = file.get("rope_local_base_freq")
    if layer_type == "sliding_attention" and (local is not None or fields.model_type in SCALES_FULL_ALONE):
        local = local or SCALES_FULL_ALONE.get(fields.model_type) or base
        return kept | {"rope_type": "default", "rope_theta": local}
    scaling = file.get("rope_scaling") or {}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "mrope" and scaling.get("mrope_section"):  # As Qwen2-VL's files say.
        kind = "default"
    return kept | scaling | {"rope_type": kind, "rope_theta": base}


def contradictions(fields: Declaration, layer_type: str) -> list[tuple[str, str]]:
    """What a checkpoint's file says twice and differently, in the old layout and the new.

    Returns:
        Respect and both values, as "config.json declares two bases", "500000 (rope_theta) and ...".
    """
    file = fields.file
    if not (whole := file.get("rope_parameters")):
        return []
    new, sliding = _of_type(whole, layer_type), layer_type == "sliding_attention"
    conflicts: list[tuple[str, str]] = []
    name = next((key for key in ("rope_theta", "rotary_emb_base") if file.get(key) is not None), "")
    if sliding and (new is not whole or file.get("rope_local_base_freq") is not None):
        name = "rope_local_base_freq" if file.get("rope_local_base_freq") is not None else ""
    base = new.get("rope_theta")
    if name and base is not None and not math.isclose(float(file[name]), float(base)):
        bases = f"{float(file[name]):g} ({name}) and {float(base):g} (rope_parameters)"
        conflicts.append(("config.json declares two bases", bases))
    scaling = {} if sliding and new is not whole else file.get("rope_scaling") or {}
    old = {"rope_type" if key == "type" else key: value for key, value in scaling.items()}
    off = sorted(key for key, value in old.items() if isinstance(value, _PLAIN) and new.get(key) != value)
    if off:
        one, other = (", ".join(f"{key} {known.get(key)}" for key in off) for known in (old, new))
        conflicts.append(
            ("config.json declares two scalings", f"{one} (rope_scaling) and {other} (rope_parameters)")
        )
    return conflicts


def _of_type(parameters: dict[str, Any], layer_type: str) -> dict[str, Any]:
    nested = [value for value in parameters.values() if isinstance(value, dict)]
    if not nested:
        return parameters
    chosen = parameters.get(layer_type, parameters.get("compress" if "compressed" in layer_type else "main"))
    return chosen if isinstance(chosen, dict) else nested[0]


def declared_turning(fields: Declaration, parameters: dict[str, Any], length: int) -> Turning:
    """The rotation that rotary parameters stand for.

    Args:
        fields: The whole configuration.
        parameters: Of the layer, in the new layout.
        length: Positions of the measurement.
    """
    start, width, head_dim = _coordinates(fields, parameters)
    frequencies, gain = schedule_of(fields, parameters, width, length)
    return Turning(
        start=start,
        width=width + width % 2,  # an odd width has a last pair all the same
        head_dim=head_dim,
        frequencies=tuple(frequencies.tolist()),
        errors=(0.0,) * len(frequencies),
        gain=gain**2,
        pairing=declared_pairing(fields),
        base=float(parameters.get("rope_theta") or 10000.0),
        sense=_sense(fields),
        position=0,
    )


def declared_pairing(fields: Declaration) -> Pairing | None:
    """How the architecture lays out pairs, or None where it is not known."""
    if fields.get("rope_interleave") is not None:
        return "adjacent" if fields.get("rope_interleave") else "halves"
    family = fields.get("model_type")
    if family in ADJACENT:
        return "adjacent"
    return "halves" if family in HALVES else None


def _sense(fields: Declaration) -> int | None:
    """Which way the architecture turns, or None where it is not known."""
    if fields.get("model_type") in BACKWARDS:
        return -1
    return None if declared_pairing(fields) is None else 1


def _coordinates(fields: Declaration, parameters: dict[str, Any]) -> tuple[int, int, int]:
    """First rotated coordinate, how many there are, and the width of queries and keys."""
    if (latent := fields.get("qk_rope_head_dim")) is not None:
        beside = fields.number("head_dim") - latent if fields.model_type in TURNS_LAST else 0
        still = fields.get("qk_nope_head_dim") or beside
        return still, latent, still + latent
    head_dim = (
        fields.get("head_dim", "attention_head_dim", "d_kv", "kv_channels") or fields.width // fields.n_heads
    )
    width = fields.get("rotary_dim")
    if width is not None and fields.model_type in READS_ROTARY_DIM:
        return 0, width, head_dim
    if parameters.get("rope_type") == "proportional":
        return 0, head_dim, head_dim
    part = parameters.get("partial_rotary_factor") or fields.get("partial_rotary_factor", "rotary_pct")
    if part is None and width is not None:
        part = width / head_dim
    return 0, int(head_dim * (part or 1.0)), head_dim


def schedule_of(
    fields: Declaration, parameters: dict[str, Any], width: int, length: int
) -> tuple[Float[Tensor, " m"], float]:
    """Frequencies of the pairs and the factor on queries and keys."""
    base, kind = float(parameters.get("rope_theta") or 10000.0), parameters.get("rope_type") or "default"
    if kind not in KINDS:
        raise ConfigError(f"rope_type {kind!r} is not known here; known: {', '.join(KINDS)}.")
    given = {name: float(value) for name in _NUMBERS if (value := parameters.get(name)) is not None}
    return KINDS[kind](fields, parameters | given, base, width, length)


def trained_before(fields: Declaration, parameters: dict[str, Any]) -> int:
    """Positions of the training before any extension."""
    original = parameters.get("original_max_position_embeddings")
    return int(
        fields.get("original_max_position_embeddings") or original or fields.get("max_position_embeddings")
    )


def _default(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    return geometric(base, width), 1.0


def _linear(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    return Linear(base=base, factor=p["factor"]).frequencies(width), 1.0


def _dynamic(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    if p.get("alpha"):  # with which HunYuan stretches the base at every length
        return geometric(base * p["alpha"] ** (width / (width - 2)), width), 1.0
    trained = int(fields.get("max_position_embeddings"))
    schedule = DynamicNTK(base=base, factor=p["factor"], trained_length=trained)
    scale = schedule.factor * max(length, trained) / trained - (schedule.factor - 1)
    slowdown = ntk_slowdown(width, torch.tensor(scale, dtype=torch.float64))
    return schedule.frequencies(width) * slowdown, 1.0


def _yarn(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    trained = trained_before(fields, p)
    factor = p.get("factor") or fields.get("max_position_embeddings") / trained
    attention = p.get("attention_factor")
    if attention is None and p.get("mscale") and p.get("mscale_all_dim"):
        attention = _mscale(factor, p["mscale"]) / _mscale(factor, p["mscale_all_dim"])
    schedule = YaRN(
        base=base,
        factor=factor,
        trained_length=trained,
        beta_fast=p.get("beta_fast") or 32.0,
        beta_slow=p.get("beta_slow") or 1.0,
        attention_factor=attention,
        truncate=p.get("truncate", True),
    )
    return schedule.frequencies(width), schedule.gain


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def _llama3(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    schedule = Llama3(
        base=base,
        factor=p["factor"],
        low_freq_factor=p["low_freq_factor"],
        high_freq_factor=p["high_freq_factor"],
        trained_length=trained_before(fields, p),
    )
    return schedule.frequencies(width), 1.0


def _longrope(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    trained = trained_before(fields, p)
    factor = p.get("factor") or fields.get("max_position_embeddings") / trained
    schedule = LongRoPE(
        base=base,
        short_factors=tuple(map(float, p["short_factor"])),
        long_factors=tuple(map(float, p["long_factor"])),
        factor=max(float(factor), 1.0),
        trained_length=trained,
    )
    beyond = length > trained
    frequencies = schedule.long_frequencies(width) if beyond else schedule.frequencies(width)
    attention = p.get("attention_factor")
    return frequencies, schedule.gain if attention is None else float(attention)


def _proportional(
    fields: Declaration, p: dict[str, Any], base: float, width: int, length: int
) -> tuple[Tensor, float]:
    schedule = Proportional(base=base, fraction=p.get("partial_rotary_factor") or 1.0)
    return schedule.frequencies(width) / (p.get("factor") or 1.0), 1.0


KINDS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
    "proportional": _proportional,
}
