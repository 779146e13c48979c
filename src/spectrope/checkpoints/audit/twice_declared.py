"""Where a checkpoint's file declares one property in an old and a new layout, and differently."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spectrope.checkpoints.audit.declared_rope import (
    BASES,
    COMPRESSED_BASES,
    FRACTIONS,
    LOCAL_BASES,
    base_names,
    of_type,
    scaling_kind,
)
from spectrope.checkpoints.audit.fields import Declaration

Conflict = tuple[str, str]  # As "the configuration declares two bases", "500000 (a field) and 10000 (...)".

_PLAIN = (str, int, float, bool, list)
_RENAMED = {"su": "longrope", "mrope": "default"}  # Kinds of scaling that have another name now.
_ORIGINAL = "original_max_position_embeddings"
# Parameters in the new layout, what two of them are called, and fields that held them before.
_MOVED = {
    "rope_theta": ("bases", BASES),
    "partial_rotary_factor": ("rotated fractions", FRACTIONS),
    _ORIGINAL: ("original lengths", (_ORIGINAL,)),
}
_SCALES_BY_LENGTH = frozenset({"llama3", "yarn", "longrope"})


@dataclass(frozen=True)
class Succession:
    """A field from which an entry per layer once followed, and the list that holds the entries now.

    Args:
        old: The field.
        new: The list.
        follows: The entry of a layer, from the old field's value, the layer and the configuration.
        default: Value that the class writes by itself, beside any list; None if it writes none.
    """

    old: str
    new: str
    follows: Callable[[int, int, Declaration], Any]
    default: int | None = None


def _full_at(is_full: bool) -> str:
    return "full_attention" if is_full else "sliding_attention"


def _ends_full(period: int, layer: int, _: Declaration) -> str:
    return _full_at(period > 0 and (layer + 1) % period == 0)


def _ends_attending(period: int, layer: int, _: Declaration) -> str:
    return "full_attention" if period > 0 and (layer + 1) % period == 0 else "linear_attention"


def _starts_full(period: int, layer: int, _: Declaration) -> str:
    return _full_at(period > 0 and layer % period == 0)


def _full_below(limit: int, layer: int, fields: Declaration) -> str:
    slides = fields.get("use_sliding_window") is not False and fields.get("sliding_window") is not None
    return _full_at(not slides or layer < limit)


def _ends_unrotated(period: int, layer: int, _: Declaration) -> int:
    return int(period == 0 or (layer + 1) % period != 0)


_ENDS_FULL = Succession("sliding_window_pattern", "layer_types", _ends_full)
_ENDS_GLOBAL = Succession("global_attn_every_n_layers", "layer_types", _ends_full, default=4)
_ENDS_ATTENDING = Succession("full_attention_interval", "layer_types", _ends_attending)
_STARTS_FULL = Succession("global_attn_every_n_layers", "layer_types", _starts_full)
_FIRST_FULL = Succession("max_window_layers", "layer_types", _full_below)
_ENDS_UNROTATED = Succession("no_rope_layer_interval", "no_rope_layers", _ends_unrotated)
SUCCESSIONS: Mapping[str, Succession] = {
    **dict.fromkeys(("cohere2", "cohere_compass_text", "embedding_gemma2_text", "gemma3_text"), _ENDS_FULL),
    **dict.fromkeys(("t5gemma2_text", "t5gemma2_encoder", "t5gemma2_decoder"), _ENDS_FULL),
    "afmoe": _ENDS_GLOBAL,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _ENDS_ATTENDING),
    **dict.fromkeys(("modernbert", "modernbert-decoder"), _STARTS_FULL),
    **dict.fromkeys(("qwen2", "qwen3"), replace(_FIRST_FULL, default=28)),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text"), replace(_FIRST_FULL, default=80)),
    **dict.fromkeys(("llama4_text", "smollm3"), replace(_ENDS_UNROTATED, default=4)),
    "mistral_large4_text": _ENDS_UNROTATED,
}
SUPERSEDED = (  # Fields of the old layout, each of which a new one replaces.
    *("rope_scaling", *BASES, *LOCAL_BASES, *COMPRESSED_BASES, *FRACTIONS, _ORIGINAL),
    *dict.fromkeys(one.old for one in SUCCESSIONS.values()),
)


def entry_conflicts(fields: Declaration, layer: int) -> list[Conflict]:
    """Entries of a layer in a list, of which another field of the file says something else."""
    one = SUCCESSIONS.get(fields.model_type)
    if one is None:
        return []
    value, entries = fields.file.get(one.old), fields.file.get(one.new) or ()
    if not isinstance(value, int) or value == one.default or layer >= len(entries):
        return []
    wanted = one.follows(value, layer, fields)
    if wanted == entries[layer]:
        return []
    both = f"{wanted} ({one.old} {value}) and {entries[layer]} ({one.new})"
    return [(f"the configuration declares two entries of {one.new}", both)]


def rotary_conflicts(fields: Declaration, layer_type: str) -> list[Conflict]:
    """What the file says twice and differently of the rotation of layers of a type."""
    file = fields.file
    scaling, whole = file.get("rope_scaling") or {}, file.get("rope_parameters") or {}
    new = of_type(whole, layer_type)
    apart = layer_type == "sliding_attention" and new is not whole
    conflicts = [*_kinds("rope_scaling", {} if apart else scaling), *_kinds("rope_parameters", new)]
    if not whole:
        return conflicts
    for name, (what, olds) in _MOVED.items():
        names = base_names(file, layer_type) if name == "rope_theta" else olds
        conflicts += _moved(name, what, names, new, file)
    return conflicts + _scalings({} if apart else scaling, new)


def _as_of_now(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of a scaling, with the names that its kind has now."""
    named = {"rope_type" if key == "type" else key: value for key, value in parameters.items()}
    kind = named.get("rope_type")
    return named if kind is None else named | {"rope_type": _RENAMED.get(str(kind), kind)}


def _kinds(owner: str, parameters: Mapping[str, Any]) -> Iterator[Conflict]:
    """Two kinds of scaling under the new and the old name."""
    new, old = (_RENAMED.get(str(kind), kind) for kind in map(parameters.get, ("rope_type", "type")))
    if new is not None and old is not None and new != old:
        both = f"{new} ({owner}.rope_type) and {old} ({owner}.type)"
        yield "the configuration declares two kinds of scaling", both


def _moved(
    name: str, what: str, olds: tuple[str, ...], new: dict[str, Any], file: Mapping[str, Any]
) -> Iterator[Conflict]:
    """A number that the rotary parameters and a field of the old layout hold."""
    if name == _ORIGINAL and scaling_kind(new) not in _SCALES_BY_LENGTH:
        return
    value = new.get(name)
    for old in olds:
        beside = file.get(old)
        if not isinstance(value, int | float) or not isinstance(beside, int | float):
            continue  # Such as a list with an entry per layer.
        if not math.isclose(beside, value):
            both = f"{float(beside):g} ({old}) and {float(value):g} (rope_parameters)"
            yield f"the configuration declares two {what}", both


def _scalings(scaling: Mapping[str, Any], new: Mapping[str, Any]) -> list[Conflict]:
    """Parameters of `rope_scaling` that differ from those of the new layout."""
    old, now = _as_of_now(scaling), _as_of_now(new)
    off = sorted(key for key, value in old.items() if isinstance(value, _PLAIN) and now.get(key) != value)
    if not off:
        return []
    one, other = (", ".join(f"{key} {known.get(key)}" for key in off) for known in (old, now))
    both = f"{one} (rope_scaling) and {other} (rope_parameters)"
    return [("the configuration declares two scalings", both)]
