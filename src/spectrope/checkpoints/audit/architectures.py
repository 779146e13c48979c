"""Properties that are fixed by the code of an architecture and not declared in its configuration."""

from spectrope.checkpoints.adapters import is_library_family
from spectrope.checkpoints.adapters.own_fields import LEARNED
from spectrope.checkpoints.audit.fields import Declaration

# Row at which a table of positions, learned or computed, starts: 0, 2, or the row after the padding's.
_FIRST = (
    *("qwen2_audio_encoder", "voxtral_encoder", "audioflamingo3_encoder"),
    *("gpt2", "gpt_neo", "gpt_bigcode", "openai-gpt", "bert", "electra", "albert", "distilbert", "ernie"),
    *("bert-generation", "big_bird", "bigbird_pegasus", "blenderbot", "blenderbot-small", "convbert", "led"),
    *(
        "deberta",
        "deberta-v2",
        "flaubert",
        "xlm",
        "layoutlm",
        "marian",
        "megatron-bert",
        "mobilebert",
        "tapas",
    ),
    *(
        "pegasus",
        "pegasus_x",
        "clip_text_model",
        "rembert",
        "roc_bert",
        "squeezebert",
        "splinter",
        "ctrl",
        "visual_bert",
        "whisper",
    ),
)
_AFTER_PADDING = (
    *(
        "roberta",
        "roberta-prelayernorm",
        "xlm-roberta",
        "xlm-roberta-xl",
        "camembert",
        "data2vec-text",
        "xmod",
    ),
    *("ibert", "luke", "longformer", "lilt", "markuplm", "esm", "fsmt", "m2m_100", "nllb-moe"),
    *("prophetnet", "seamless_m4t", "seamless_m4t_v2"),
)
_SECOND = (
    "opt",
    "bart",
    "mbart",
    "biogpt",
    "mvp",
    "plbart",
    "trocr",
    "xglm",
    "nystromformer",
    "mpnet",
    "mra",
    "yoso",
)
TABLES: dict[str, int | str] = {
    LEARNED: 0,
    **dict.fromkeys(_FIRST, 0),
    **dict.fromkeys(_SECOND, 2),
    **dict.fromkeys(_AFTER_PADDING, "pad"),
}
POSITIONLESS = frozenset(
    {"glm5_next_text", "jamba", "kimi_linear", "nemotron_h", "zamba"}
)  # Whose mixers carry position instead.
ROTATES_IN_WINDOWS_ALONE = frozenset({"afmoe", "cohere2", "exaone4", "exaone_moe", "flint", "kolibri1"})
WINDOWS_EVERYWHERE = frozenset({"minimax"})  # In layers of every type, where a window is declared.
# Whose `rope_scaling` holds for layers of full attention alone, and the base of their sliding layers where a
# file has no `rope_local_base_freq`; None for that of the others.
SCALES_FULL_ALONE: dict[str, float | None] = {
    **dict.fromkeys(("gemma3_text", "gemma3n_text"), 1e4),
    **dict.fromkeys(("t5gemma2_text", "t5gemma2_encoder", "t5gemma2_decoder"), 1e4),
    "olmo3": None,
}
TURNS_LAST = frozenset({"deepseek_v4"})  # Whose last coordinates turn where a part of them does.
MAY_LEAVE_NORMS_OUT = frozenset({"llama4_text"})  # Where `use_qk_norm` is false; others do not read it.
ROTATES_BY_DEFAULT = frozenset({"roformer"})  # Base 10000, of which the configuration says nothing.
# Sides (queries, keys) that are normalised after their rotation.
NORMALISES_AFTER: dict[str, int] = dict.fromkeys(
    ("hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text", "llama4_text", "nanochat"), 2
)
VALUES_VARY = frozenset({"deepseek_v4", "inkling_text", "inkling2_text"})  # By rotation or convolution.
ROUNDED_BIASES = ("falcon",)  # Computed in bfloat16 by the class, whatever the precision of the model is.
KEYS_IN_TURN = frozenset({"jetmoe"})  # Whose experts' queries all meet the same keys.
READS_ROTARY_DIM = frozenset({"gptj", "codegen"})  # Others keep the field for conversion alone.


def unexercised(declaration: Declaration) -> tuple[str, ...]:
    """Passes that change the kernels of a model and that its audit does not have, in words."""
    repeated = max(declaration.get("block_repeats") or [1]) > 1
    return ("further passes through layers that run several times (block_repeats)",) if repeated else ()


def first_row(declaration: Declaration) -> int | None:
    """Row of the table at which positions start; None where no table is declared."""
    kind, family = declaration.get("position_embedding_type"), declaration.model_type
    if kind not in (None, "absolute") or declaration.get("position_biased_input") is False:
        return None
    row = TABLES.get(family)
    return declaration.number("pad_token_id") + 1 if row == "pad" else row  # pyright: ignore[reportReturnType]


def rotates(declaration: Declaration, layer: int, layer_type: str) -> bool:
    """Whether a layer of a rotary model rotates at all."""
    if pattern := declaration.get("no_rope_layers"):
        return bool(pattern[layer])
    if (bases := declaration.get("layer_rope_theta")) is not None:
        return bool(bases[layer])
    if declaration.get("use_mem_rope") is False:
        return False
    family = declaration.model_type
    if family == "granitemoehybrid":
        return declaration.get("position_embedding_type") == "rope"
    if family in ROTATES_IN_WINDOWS_ALONE and declaration.get("sliding_window"):
        return layer_type == "sliding_attention"
    parameters = declaration.get("rope_parameters") or {}
    return not (layer_type in parameters and parameters[layer_type] is None)


def declared_gain(declaration: Declaration, gain: float) -> float:
    """The factor on logits of rotated coordinates: the schedule's, as far as no norm after it takes it away.

    Args:
        declaration: The configuration.
        gain: Of the schedule, on queries and keys together.
    """
    return gain ** (1 - sides_normalised_after(declaration) / 2) * query_factor(declaration)


def normalises_after(declaration: Declaration) -> bool | None:
    """Whether queries and keys are normalised after their rotation; None for an architecture not known."""
    if not is_library_family(declaration.model_type):
        return None
    return sides_normalised_after(declaration) > 0


def sides_normalised_after(declaration: Declaration) -> int:
    """How many of queries and keys the architecture normalises after their rotation."""
    family = declaration.model_type
    if family in MAY_LEAVE_NORMS_OUT and declaration.get("use_qk_norm") is False:
        return 0
    return NORMALISES_AFTER.get(family, 0)


def query_factor(declaration: Declaration) -> float:
    """What the architecture multiplies normalised queries by before they turn."""
    if declaration.model_type == "longcat_flash":
        return (declaration.width / declaration.number("q_lora_rank")) ** 0.5
    return float(declaration.get("qk_scale_factor") or 1.0)


def ambiguity(declaration: Declaration, layer_type: str) -> str:
    """Why the configuration is ambiguous; "" if it is not."""
    pattern, layers = declaration.get("no_rope_layers"), declaration.get("num_hidden_layers")
    if pattern and (set(pattern) - {0, 1} or (layers is not None and len(pattern) < layers)):
        return (
            f"no_rope_layers {list(pattern)} may list layers, or hold a flag per layer (1 where it rotates); "
            "give a 0 or 1 per layer"
        )
    width, head_dim = declaration.get("rotary_dim"), declaration.get("head_dim")
    parameters = declaration.get("rope_parameters") or {}
    silent = "partial_rotary_factor" not in parameters and declaration.get("partial_rotary_factor") is None
    if width and head_dim and silent and width != head_dim and declaration.model_type not in READS_ROTARY_DIM:
        return (
            f"rotary_dim {width} declares a part of the width {head_dim}, rope_parameters without "
            "partial_rotary_factor all of it; keep one of them"
        )
    return ""
