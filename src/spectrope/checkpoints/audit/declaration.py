"""What a configuration says that each layer applies, in old and new layouts."""

import math

from spectrope.checkpoints.adapters.own_fields import LEARNED
from spectrope.checkpoints.audit.bias import Buckets
from spectrope.checkpoints.audit.declared_rope import contradictions as twice_declared
from spectrope.checkpoints.audit.declared_rope import declared_turning, rope_parameters
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.encodings import alibi_slopes

# Families whose learned table of positions starts at a row other than 0, or at the row after the padding's.
TABLES: dict[str, int | str] = {
    **dict.fromkeys(
        ("gpt2", "gpt_neo", "gpt_bigcode", "openai-gpt", "bert", "electra", "albert", "distilbert"), 0
    ),
    LEARNED: 0,
    **dict.fromkeys(("opt", "bart", "mbart", "biogpt"), 2),
    **dict.fromkeys(("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "data2vec-text"), "pad"),
}
ROTATES_IN_WINDOWS_ALONE = frozenset({"cohere2", "exaone4"})
ROTARY_KEYS = ("rope_parameters", "rope_theta", "rope_scaling", "rotary_dim", "rotary_emb_base", "rotary_pct")


def declared_layer(declaration: Declaration, stack: str, layer: int, length: int) -> LayerEncoding:
    """What the configuration says of one layer.

    Args:
        declaration: The configuration.
        stack: "encoder", "decoder" or "".
        layer: Number of the layer in its stack.
        length: Positions of the measurement, on which some schedules depend.
    """
    mask, kind = declared_mask(declaration, layer), layer_type(declaration, layer)
    if (buckets := _buckets(declaration, stack)) is not None:
        return LayerEncoding("bucketed bias", buckets=buckets, mask=mask)
    if (slopes := declared_slopes(declaration)) is not None:
        return LayerEncoding("linear bias", slopes=slopes, mask=mask)
    if declaration.model_type in TABLES:
        return LayerEncoding("none", mask=mask)
    if declaration.get(*ROTARY_KEYS) is None:
        return LayerEncoding("none" if _declines_alibi(declaration) else None, mask=mask)
    if not _rotates(declaration, layer):
        return LayerEncoding("none", mask=mask, query_scale=_temperature(declaration, length))
    turning = declared_turning(declaration, rope_parameters(declaration, kind), length)
    return LayerEncoding("rotary", turning=turning, mask=mask)


def contradictions(declaration: Declaration, layer: int) -> list[tuple[str, str]]:
    """What a checkpoint's file says in two ways of the rotation of a layer: the respect, and both values."""
    if declared_slopes(declaration) is not None or not _rotates(declaration, layer):
        return []
    return twice_declared(declaration, layer_type(declaration, layer))


def layer_type(declaration: Declaration, layer: int) -> str:
    """What the configuration calls the kind of a layer, "" if it does not."""
    types = declaration.get("layer_types") or ()
    return types[layer] if layer < len(types) else ""


def declared_mask(declaration: Declaration, layer: int) -> Mask | None:
    """The mask that the configuration gives a layer, or None where it says nothing of one."""
    kind, window = layer_type(declaration, layer), declaration.get("sliding_window")
    if kind == "chunked_attention":
        return Mask("causal chunk", declaration.get("attention_chunk_size"))
    if kind == "full_attention":
        return Mask("unlimited")
    if window is None or declaration.get("use_sliding_window") is False:
        return None
    return Mask("causal window", int(window)) if kind in ("", "sliding_attention") else None


def declared_offset(declaration: Declaration) -> int | None:
    """Row of the learned table at which positions start; None where no table is declared."""
    offset = TABLES.get(declaration.model_type)
    if declaration.get("position_embedding_type") not in (None, "absolute"):
        return None
    return declaration.number("pad_token_id") + 1 if offset == "pad" else offset  # pyright: ignore[reportReturnType]


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


def _declines_alibi(declaration: Declaration) -> bool:
    """Whether the configuration of a family that knows ALiBi switches it off."""
    inner = declaration.get("attn_config") or {}
    return False in (inner.get("alibi"), declaration.get("alibi"))


def _buckets(declaration: Declaration, stack: str) -> Buckets | None:
    n_buckets = declaration.get("relative_attention_num_buckets")
    if n_buckets is None:
        return None
    reach = declaration.get("relative_attention_max_distance") or 128
    return Buckets(stack != "decoder", int(n_buckets), int(reach))


def _rotates(declaration: Declaration, layer: int) -> bool:
    """Whether a layer of a rotary model rotates at all."""
    pattern = declaration.get("no_rope_layers")
    if pattern:
        return bool(pattern[layer])
    if declaration.model_type in ROTATES_IN_WINDOWS_ALONE and declaration.get("sliding_window"):
        return layer_type(declaration, layer) == "sliding_attention"
    return True


def _temperature(declaration: Declaration, length: int) -> float | None:
    """Llama 4's factor on the queries of unrotated layers, at the last position."""
    if not declaration.get("attn_temperature_tuning"):
        return None
    floor, scale = declaration.get("floor_scale") or 8192, declaration.get("attn_scale") or 0.1
    return 1 + scale * math.log1p(length // floor)
