"""Checks of the numbers in a checkpoint's configuration before it is loaded."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spectrope.core import ConfigError

ROTARY = ("rope_parameters", "rope_scaling")
BASES = ("rope_theta", "rotary_emb_base", "rope_local_base_freq")
PER_LAYER = "step3p"  # Begins the names of architectures whose base may be a list with an entry per layer.
POSITIVE = (
    *("factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor"),
    *("original_max_position_embeddings", "partial_rotary_factor"),
)
WHOLE = (
    *("num_attention_heads", "num_key_value_heads", "hidden_size", "head_dim", "max_position_embeddings"),
    *("sliding_window", "attention_chunk_size"),
)
FACTORS = ("short_factor", "long_factor")
REQUIRED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "longrope": FACTORS,
}


def check_values(file: Path, parts: list[dict[str, Any]]) -> None:
    """Raise an error for values that give infinite frequencies or invalid layer sizes.

    Args:
        file: The configuration.
        parts: Its object, and every object within it.

    Raises:
        ConfigError: If one is no positive number, or a rotary schedule lacks a parameter.
    """
    for part in parts:
        for name in WHOLE:
            if name == "sliding_window" and part.get("use_sliding_window") is False:
                continue
            value = part.get(name)
            if isinstance(value, int | float) and not (isinstance(value, int) and value > 0):
                raise ConfigError(f"{file}: {name} must be a positive whole number; got {value!r}.")
        for name in BASES:
            _check_positive(file, name, part.get(name))
            if isinstance(part.get(name), list) and not str(part.get("model_type")).startswith(PER_LAYER):
                raise ConfigError(f"{file}: {name} must be one positive number; got {part[name]!r}.")
        for owner in ROTARY:
            for where, schedule in _schedules(owner, part.get(owner)):
                _check_schedule(file, where, schedule, part)


def _schedules(owner: str, value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rotary parameters under a name, or those of each type of layer."""
    if not isinstance(value, dict):
        return
    yield owner, value
    yield from ((f"{owner}.{kind}", one) for kind, one in value.items() if isinstance(one, dict))


def _check_positive(file: Path, name: str, value: Any) -> None:
    if value is None or isinstance(value, dict | list):
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 0 < value < math.inf):
        raise ConfigError(
            f"{file}: {name} must be a positive number; got {value!r}, with which no frequency is finite."
        )


def _check_schedule(file: Path, where: str, schedule: dict[str, Any], part: dict[str, Any]) -> None:
    kind = schedule.get("rope_type") or schedule.get("type") or "default"
    if missing := [name for name in REQUIRED.get(str(kind), ()) if name not in schedule]:
        raise ConfigError(
            f"{file}: {where} of rope_type {kind!r} must have {' and '.join(missing)}; got none. Add what "
            "the model was trained with."
        )
    for name in POSITIVE:
        _check_positive(file, f"{where}.{name}", schedule.get(name))
    sections = schedule.get("mrope_section")
    whole = isinstance(sections, list) and all(type(size) is int and size >= 0 for size in sections)
    if sections is not None and not (whole and any(sections)):
        raise ConfigError(
            f"{file}: {where}.mrope_section must list how many pairs turn with each of time, height and "
            f"width, in whole numbers; got {sections!r}."
        )
    pairs = _pairs(schedule, part)
    for name in FACTORS:
        factors = schedule.get(name)
        if isinstance(factors, list) and pairs and len(factors) != pairs:
            raise ConfigError(
                f"{file}: {where}.{name} must hold {pairs} factors, one per pair of coordinates; got "
                f"{len(factors)}."
            )


def _pairs(schedule: dict[str, Any], part: dict[str, Any]) -> int | None:
    """Pairs that rotate, where the configuration states all that they follow from."""
    width = part.get("qk_rope_head_dim") or part.get("head_dim")
    heads, hidden = part.get("num_attention_heads"), part.get("hidden_size")
    if width is None and isinstance(heads, int) and isinstance(hidden, int) and heads > 0:
        width = hidden // heads
    share = schedule.get("partial_rotary_factor") or part.get("partial_rotary_factor") or 1.0
    if part.get("qk_rope_head_dim"):
        share = 1.0
    return int(width * share) // 2 if isinstance(width, int) else None
