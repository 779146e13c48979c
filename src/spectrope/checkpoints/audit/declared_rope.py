"""Rotary parameters of a configuration, in old and new layouts, as frequencies."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import HEAD_WIDTHS
from spectrope.checkpoints.audit.architectures import (
    READS_ROTARY_DIM,
    SCALES_FULL_ALONE,
    TURNS_LAST,
)
from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.pair_layouts import declared_pairing, declared_sense
from spectrope.core import ConfigError
from spectrope.encodings import (
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    Proportional,
    YaRN,
    geometric,
    ntk_slowdown,
)

_NUMBERS = ("factor", "low_freq_factor", "high_freq_factor", "attention_factor", "beta_fast", "beta_slow")
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
LOCAL_BASES = ("rope_local_base_freq", "local_rope_theta")  # Of sliding layers.
COMPRESSED_BASES = ("compress_rope_theta",)  # Of DeepSeek-V4's layers with compressed keys.
FRACTIONS = ("partial_rotary_factor", "rotary_pct")
OLD_KEYS = ("rope_theta", "rope_scaling", "rotary_emb_base", "rope_local_base_freq")


def rope_parameters(fields: Declaration, layer_type: str) -> dict[str, Any]:
    """Base, kind of scaling and its parameters for layers of a type, in the new layout.

    A checkpoint's file that is written in the old layout (`rope_theta`, `rope_scaling`, and
    `rope_local_base_freq` for sliding layers) wins over what the library made of it. Where its
    `rope_parameters` lack a base or a fraction, those of the old layout beside them hold. Of lists with an
    entry per layer, which Step-3.7 has, what the library made holds. There are architectures whose
    `rope_scaling` holds for layers of full attention alone.
    """
    file = {name: value for name, value in fields.file.items() if not _is_per_layer(name, value)}
    read = of_type(fields.library.get("rope_parameters") or {}, layer_type)
    if whole := file.get("rope_parameters"):
        return _completed(of_type(whole, layer_type), read, file, base_names(file, layer_type))
    if not any(file.get(key) is not None for key in OLD_KEYS):
        return read
    kept = _fraction_of(read, file)
    base = file.get("rope_theta") or file.get("rotary_emb_base") or read.get("rope_theta")
    local = file.get("rope_local_base_freq")
    if layer_type == "sliding_attention" and (local is not None or fields.model_type in SCALES_FULL_ALONE):
        local = local or SCALES_FULL_ALONE.get(fields.model_type) or base
        return kept | {"rope_type": "default", "rope_theta": local}
    scaling = file.get("rope_scaling") or {}
    return kept | scaling | {"rope_type": scaling_kind(scaling), "rope_theta": base}


def _is_per_layer(name: str, value: Any) -> bool:
    return name in OLD_KEYS and isinstance(value, list)


def _completed(
    parameters: dict[str, Any], read: dict[str, Any], file: dict[str, Any], names: tuple[str, ...]
) -> dict[str, Any]:
    """Parameters in the new layout, with what they lack from the old one beside them, or from the class.

    Args:
        parameters: Of a file.
        read: What the library made of them, with the defaults of its class.
        file: The whole file.
        names: Fields of the old layout that hold the base.
    """
    beside = next((file[name] for name in names if file.get(name) is not None), read.get("rope_theta"))
    base = parameters.get("rope_theta") or beside
    stated = {} if base is None else {"rope_theta": base}
    return _fraction_of(read, file) | parameters | {"rope_type": scaling_kind(parameters)} | stated


def base_names(file: dict[str, Any], layer_type: str) -> tuple[str, ...]:
    """Old fields that hold the base of layers of a type.

    Sliding layers have one of their own where `rope_parameters` are stated by their type, or a field says so.
    """
    whole = file.get("rope_parameters") or {}
    if "compressed" in layer_type:
        return COMPRESSED_BASES
    apart = isinstance(whole.get("sliding_attention"), dict)
    local = apart or any(file.get(name) is not None for name in LOCAL_BASES)
    return LOCAL_BASES if layer_type == "sliding_attention" and local else BASES


def _fraction_of(read: dict[str, Any], file: dict[str, Any]) -> dict[str, Any]:
    """The rotated fraction that the file states by itself; else the one that the library read or has."""
    beside = (file[name] for name in FRACTIONS if file.get(name) is not None)
    part = next(beside, read.get("partial_rotary_factor"))
    return {} if part is None else {"partial_rotary_factor": part}


def scaling_kind(parameters: dict[str, Any]) -> str:
    """The kind of scaling, under its new or its old name."""
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    is_sectioned = kind == "mrope" and parameters.get("mrope_section")  # As Qwen2-VL's files say.
    return "default" if is_sectioned else kind


def of_type(parameters: dict[str, Any], layer_type: str) -> dict[str, Any]:
    """Rotary parameters of layers of a type, where they are stated by type."""
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
        base=_base(parameters),
        sense=declared_sense(fields),
        position=0,
    )


def _base(parameters: dict[str, Any]) -> float:
    base = parameters.get("rope_theta") or 10000.0
    try:
        return float(base)
    except (TypeError, ValueError):
        raise ConfigError(f"rope_theta must be a number; got {base!r}.") from None


def _coordinates(fields: Declaration, parameters: dict[str, Any]) -> tuple[int, int, int]:
    """First rotated coordinate, how many there are, and the width of queries and keys."""
    if (latent := fields.get("qk_rope_head_dim")) is not None:
        beside = fields.number("head_dim") - latent if fields.model_type in TURNS_LAST else 0
        still = fields.get("qk_nope_head_dim") or beside
        return still, latent, still + latent
    head_dim = fields.get(*HEAD_WIDTHS) or fields.width // fields.n_heads
    width = fields.get("rotary_dim")
    if width is not None and fields.model_type in READS_ROTARY_DIM:
        return 0, width, head_dim
    if parameters.get("rope_type") == "proportional":
        return 0, head_dim, head_dim
    part = parameters.get("partial_rotary_factor") or fields.get(*FRACTIONS)
    if part is None and width is not None:
        part = width / head_dim
    return 0, int(head_dim * (part or 1.0)), head_dim


def schedule_of(
    fields: Declaration, parameters: dict[str, Any], width: int, length: int
) -> tuple[Float[Tensor, " m"], float]:
    """Frequencies of the pairs and the factor on queries and keys."""
    base, kind = _base(parameters), parameters.get("rope_type") or "default"
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
