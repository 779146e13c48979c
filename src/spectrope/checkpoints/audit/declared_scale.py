"""The factor on dot products, the cap and the sinks that a configuration and its architecture declare."""

import math

from spectrope.checkpoints.adapters import is_library_family
from spectrope.checkpoints.audit.declared_rope import rope_parameters
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.relative import declared_relative, n_terms

# Architectures whose code scales no dot products.
UNSCALED = frozenset(
    {"gpt_neo", "longt5", "mt5", "pop2piano", "switch_transformers", "t5", "udop", "umt5"}
    | {"diffusion_gemma", "embedding_gemma2_text", "gemma3n_text", "gemma4_text", "gemma4_unified_text"}
)
LATENT_SCALED = frozenset(  # Whose code squares YaRN's mscale into the factor.
    {"axk1", "axk2", "bailing_hybrid", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"}
    | {"glm_moe_dsa", "hy_v4", "longcat_flash", "minicpm3", "mistral4", "mistral_large4_text", "youtu"}
)
MULTIPLIES = frozenset(
    {"granite", "granite_docling_text", "granite_swa", "granitemoe", "granitemoe_swa", "hyperclovax"}
    | {"granitemoehybrid", "granitemoeshared", "granite4_vision_text"}
)
SQUARES = frozenset({"inkling_text"})  # 1 / d in the place of its root.
HALVED = frozenset({"zamba", "zamba2"})  # Of heads twice as wide as those that the factor is of.


def declared_scale(declaration: Declaration, layer: int, layer_type: str, width: int) -> float | None:
    """The factor on dot products of queries and keys as projected; None where the architecture is not known.

    Args:
        declaration: The configuration.
        layer: Number of the layer in its stack.
        layer_type: What the configuration calls its kind.
        width: Coordinates of a head's queries.
    """
    family = declaration.model_type
    if not is_library_family(family):
        return None
    if talking_alone(declaration):
        return None
    if family in UNSCALED:
        return 1.0
    if family in MULTIPLIES:
        return float(declaration.get("attention_multiplier"))
    if (scalar := declaration.get("query_pre_attn_scalar")) is not None:
        return float(scalar) ** -0.5
    if (scale := (declaration.get("attn_config") or {}).get("softmax_scale")) is not None:
        return float(scale)
    if declaration.get("scale_attn_weights") is False:
        factor = 1.0
    else:
        factor = (1 / width) if family in SQUARES else (width / (2 if family in HALVED else 1)) ** -0.5
    if declaration.get("scale_attn_by_inverse_layer_idx"):
        factor /= layer + 1
    factor *= n_terms(declaration) ** -0.5
    return factor * (_mscale(rope_parameters(declaration, layer_type)) if family in LATENT_SCALED else 1.0)


def talking_alone(declaration: Declaration) -> bool:
    """Whether heads mix their products, of which no relative term is told apart: no head's factor is seen."""
    talks = declaration.model_type == "deberta" and bool(declaration.get("talking_head"))
    return talks and declared_relative(declaration, "") is None


def declared_softcap(declaration: Declaration) -> float:
    """The cap of attention logits, 0 for none."""
    return float(declaration.get("attn_logit_softcapping") or 0.0)


def _mscale(parameters: dict[str, object]) -> float:
    r"""YaRN's factor :math:`(0.1\,m \log s + 1)^2` on logits, with m = `mscale_all_dim`."""
    weight, factor = parameters.get("mscale_all_dim"), parameters.get("factor")
    if parameters.get("rope_type", "default") == "default" or not weight or not factor:
        return 1.0
    s = float(str(factor))
    return 1.0 if s <= 1 else (0.1 * float(str(weight)) * math.log(s) + 1) ** 2
