"""Read the declared encoding of each layer from a configuration, in old and new layouts."""

import math
from dataclasses import replace

from spectrope.checkpoints.adapters import is_library_family
from spectrope.checkpoints.audit.architectures import (
    POSITIONLESS,
    ROTATES_BY_DEFAULT,
    TABLES,
    WINDOWS_EVERYWHERE,
    declared_gain,
    first_row,
    rotates,
)
from spectrope.checkpoints.audit.bias import Buckets
from spectrope.checkpoints.audit.declared_rope import declared_turning, rope_parameters
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.local import BANDED, BLOCKED, declared_pattern, pattern_mask
from spectrope.checkpoints.audit.relative import declared_relative
from spectrope.checkpoints.audit.twice_declared import entry_conflicts, rotary_conflicts
from spectrope.encodings import alibi_slopes

ROTARY_KEYS = ("rope_parameters", "rope_theta", "rope_scaling", "rotary_dim", "rotary_emb_base", "rotary_pct")

LOCAL = frozenset({"longt5", "pegasus_x"})  # Of blocks, under fields of their own.
# Types of layers that have the window, and "full_attention" for those of `WINDOWS_EVERYWHERE`.
WINDOWED_TYPES = frozenset(
    {"", "sliding_attention", "full_attention", "compressed_sparse_attention", "heavily_compressed_attention"}
)
WINDOW_NAMES = {"gpt_neo": "window_size", "recurrent_gemma": "attention_window_size"}
GPT_NEO_TYPES = {"global": "full_attention", "local": "sliding_attention"}


def declared_layer(declaration: Declaration, stack: str, layer: int, length: int) -> LayerEncoding:
    """What the configuration says of one layer.

    Args:
        declaration: The configuration.
        stack: "encoder", "decoder" or "".
        layer: Number of the layer in its stack.
        length: Positions of the measurement, on which some schedules depend.
    """
    mask, kind = declared_mask(declaration, layer), layer_type(declaration, layer)
    if declaration.model_type in BANDED | BLOCKED:
        pattern = declared_pattern(declaration, stack, layer, length)
        mask = Mask("unlimited") if pattern is None else pattern_mask(pattern)
    if declaration.model_type == "doge" and length > (declaration.get("keep_window_size") or length):
        mask = None  # Which then depends on the content.
    if (buckets := _buckets(declaration, stack)) is not None:
        return LayerEncoding("bucketed bias", buckets=buckets, mask=mask)
    if (term := declared_relative(declaration, stack)) is not None:
        return LayerEncoding("relative term", relative=term, mask=mask)
    if (slopes := declared_slopes(declaration)) is not None:
        return LayerEncoding("linear bias", slopes=slopes, mask=mask)
    named = declaration.get("position_embedding_type") in ("rotary", "rope")
    if declaration.model_type in TABLES and not named:
        return LayerEncoding("none", mask=mask)
    if not (
        named or declaration.model_type in ROTATES_BY_DEFAULT or declaration.get(*ROTARY_KEYS) is not None
    ):
        none = declaration.model_type in POSITIONLESS or _declines_alibi(declaration)
        return LayerEncoding("none" if none else None, mask=mask)
    if not rotates(declaration, layer, kind):
        return LayerEncoding("none", mask=mask, query_scale=_cooling(declaration, length))
    turning = declared_turning(declaration, rope_parameters(declaration, kind), length)
    if turning.gain is not None:
        turning = replace(turning, gain=declared_gain(declaration, turning.gain))
    return LayerEncoding(
        "rotary", turning=turning, mask=mask, query_scale=_llama4_growth(declaration, kind, length)
    )


def contradictions(declaration: Declaration, layer: int) -> list[tuple[str, str]]:
    """What a checkpoint's file says in two ways of a layer: the respect, and both values."""
    kind, conflicts = layer_type(declaration, layer), entry_conflicts(declaration, layer)
    if declared_slopes(declaration) is None and rotates(declaration, layer, kind):
        conflicts += rotary_conflicts(declaration, kind)
    return conflicts


def layer_type(declaration: Declaration, layer: int) -> str:
    """What the configuration calls the kind of a layer, "" if it does not."""
    types = declaration.get("layer_types", "attention_layers") or ()
    name = types[layer] if layer < len(types) else ""
    return GPT_NEO_TYPES.get(name) or name


def declared_mask(declaration: Declaration, layer: int) -> Mask | None:
    """The mask that the configuration gives a layer, or None where it may be of any kind."""
    kind = layer_type(declaration, layer)
    if kind == "chunked_attention":
        size = declaration.get("attention_chunk_size")
        return Mask("causal window" if size == 1 else "causal chunk", size)  # Which are then the same.
    if kind == "full_attention" and declaration.model_type not in WINDOWS_EVERYWHERE:
        return Mask("unlimited")
    if declaration.get("use_sliding_window") is False or kind not in WINDOWED_TYPES:
        return _whole(declaration)
    if declaration.model_type == "t5gemma2_text":  # Whose windows reach further ahead than back.
        return None
    return _window(declaration) or _whole(declaration)


def _whole(declaration: Declaration) -> Mask | None:
    """No window, which an architecture of the library has where it declares none."""
    if (
        declaration.model_type == "xlnet"
        and declaration.get("attn_type") == "uni"
        and declaration.get("same_length")
    ):
        return Mask("causal window", 1)  # As many keys as memories hold, of which there are none, and itself.
    known = is_library_family(declaration.model_type) and declaration.model_type not in LOCAL
    return Mask("unlimited") if known else None


def _window(declaration: Declaration) -> Mask | None:
    """The window of the layers that have one, in keys that its family counts in its own way."""
    if declaration.model_type == "modernbert":  # Half of the width on either side of the query.
        return Mask("bidirectional window", declaration.number("local_attention") // 2)
    window = declaration.get("sliding_window", WINDOW_NAMES.get(declaration.model_type, ""))
    if window is not None and declaration.model_type == "embedding_gemma2_text":  # Which calls it a radius.
        return Mask("bidirectional window", int(window))
    return None if window is None else Mask("causal window", int(window))


def declared_offset(declaration: Declaration) -> int | None:
    """Row of the learned table at which positions start; None where no table is declared."""
    return first_row(declaration)


def declared_slopes(declaration: Declaration) -> tuple[float, ...] | None:
    """ALiBi's slopes by head, in logit units per position; None where it is not declared."""
    family, inner = declaration.model_type, declaration.get("attn_config") or {}
    if not (family == "bloom" or inner.get("alibi") or declaration.get("alibi")):
        return None
    heads = declaration.n_heads
    if family == "mpt":
        return tuple((alibi_slopes(heads) ** (inner.get("alibi_bias_max", 8) / 8)).tolist())
    scale = math.sqrt(declaration.width // heads) if family == "falcon" else 1.0  # added before scaling
    return tuple((alibi_slopes(heads) / scale).tolist())


def declared_clip(declaration: Declaration) -> float | None:
    """The size at which queries, keys and values are cut off as projected; None where it is not declared."""
    inner = declaration.get("attn_config") or {}
    return declaration.get("clip_qkv") or inner.get("clip_qkv")


def _declines_alibi(declaration: Declaration) -> bool:
    """Whether the configuration of a family that knows ALiBi switches it off."""
    inner = declaration.get("attn_config") or {}
    return False in (inner.get("alibi"), declaration.get("alibi"))


def _buckets(declaration: Declaration, stack: str) -> Buckets | None:
    n_buckets = declaration.get("relative_attention_num_buckets")
    if n_buckets is None:
        return None
    reach = declaration.get("relative_attention_max_distance") or 128
    decodes = stack == "decoder" or bool(declaration.get("is_decoder"))
    buckets = Buckets(not decodes, int(n_buckets), int(reach))
    return buckets if buckets.has_scale else None


def _llama4_growth(declaration: Declaration, kind: str, length: int) -> float | None:
    """The factor on rotated queries at the last position: Ministral 3's, after Llama 4's."""
    parameters = rope_parameters(declaration, kind)
    beta, trained = parameters.get("llama_4_scaling_beta"), parameters.get("original_max_position_embeddings")
    return 1 + beta * math.log1p((length - 1) // trained) if beta and trained else None


def _cooling(declaration: Declaration, length: int) -> float | None:
    """The temperature's factor at the last position over that at the first; None where there is none."""
    if declaration.model_type != "beam" and not declaration.get("attn_temperature_tuning"):
        return None
    return temperature(declaration, length - 1) / temperature(declaration, 0)


def temperature(declaration: Declaration, position: int) -> float:
    """The factor on the queries of unrotated layers at a position: Llama 4's, Beam's, or 1."""
    if declaration.model_type == "beam":
        return (1 + position / 2048) ** 0.1
    if not declaration.get("attn_temperature_tuning"):
        return 1.0
    floor, scale = declaration.get("floor_scale") or 8192, declaration.get("attn_scale")
    scale = 0.1 if scale is None else scale
    return 1 + scale * math.log1p((position + 1) // floor)
