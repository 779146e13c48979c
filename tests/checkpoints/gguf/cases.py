"""Conversions of small models to GGUF, right ones and wrong ones, with what the audit must say of each."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from tests.checkpoints.gguf.files import Conversion, permuted
from transformers import (
    Cohere2Config,
    Cohere2ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Ministral3Config,
    Ministral3ForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
)

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,  # With less, attention is almost uniform and positions hardly matter.
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}
PLAIN = {"rope_type": "default", "rope_theta": 500000.0}
ORIGINAL: dict[str, Any] = {"original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0} | ORIGINAL
LLAMA3 |= {"high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
SLOWER = [1.0 + pair for pair in range(8)]
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0} | ORIGINAL


def built(cls: Any, config: Any) -> PreTrainedModel:
    """A model with seeded random weights, also in its biases."""
    torch.manual_seed(0)
    model = cls(config).eval()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight, std=0.5)
    return model


def llama(**rotary: Any) -> PreTrainedModel:
    """A Llama with some rotary parameters."""
    return built(LlamaForCausalLM, LlamaConfig(**SIZES, rope_parameters=rotary))


def mistral() -> PreTrainedModel:
    """A Mistral with a sliding window."""
    return built(MistralForCausalLM, MistralConfig(**SIZES, rope_parameters=PLAIN, sliding_window=32))


def ministral(**rotary: Any) -> PreTrainedModel:
    """A Ministral 3, whose queries grow with the position."""
    return built(Ministral3ForCausalLM, Ministral3Config(**SIZES, rope_parameters=rotary))


def qwen2() -> PreTrainedModel:
    """A Qwen 2, with biases of queries and keys."""
    sizes = {name: value for name, value in SIZES.items() if name != "head_dim"}
    return built(Qwen2ForCausalLM, Qwen2Config(**sizes, rope_parameters=PLAIN))


def qwen3() -> PreTrainedModel:
    """A Qwen 3, with norms of queries and keys."""
    return built(Qwen3ForCausalLM, Qwen3Config(**SIZES, rope_parameters=PLAIN))


def smollm3(interval: int = 4) -> PreTrainedModel:
    """A SmolLM3, one of whose layers in so many is not rotated."""
    config = SmolLM3Config(**SIZES, rope_parameters=PLAIN, no_rope_layer_interval=interval)
    return built(SmolLM3ForCausalLM, config)


def cohere2() -> PreTrainedModel:
    """A Cohere 2, which turns adjacent coordinates, in layers with a window alone."""
    sizes = SIZES | {"tie_word_embeddings": True}
    config = Cohere2Config(**sizes, rope_parameters=PLAIN, sliding_window=32, logit_scale=1.0)
    return built(Cohere2ForCausalLM, config)


def granite() -> PreTrainedModel:
    """A Granite, whose file may switch its rotation off."""
    config = GraniteConfig(**SIZES, rope_parameters=PLAIN, attention_multiplier=0.25)
    return built(GraniteForCausalLM, config)


def gemma2(window: int) -> PreTrainedModel:
    """A Gemma 2, every other layer of which has a sliding window."""
    sizes = SIZES | {"tie_word_embeddings": True}
    config = Gemma2Config(**sizes, rope_parameters=PLAIN, query_pre_attn_scalar=16, sliding_window=window)
    return built(Gemma2ForCausalLM, config)


def glm4() -> PreTrainedModel:
    """A GLM 4, which turns adjacent coordinates of half a head."""
    rotary = PLAIN | {"partial_rotary_factor": 0.5}
    return built(Glm4ForCausalLM, Glm4Config(**SIZES, rope_parameters=rotary))


def olmo3() -> PreTrainedModel:
    """An OLMo 3, whose layers with a window are neither scaled nor given an attention factor."""
    rotary = {"full_attention": YARN, "sliding_attention": PLAIN | {"rope_theta": 10000.0}}
    return built(Olmo3ForCausalLM, Olmo3Config(**SIZES, rope_parameters=rotary, sliding_window=32))


def phi3(short: list[float]) -> PreTrainedModel:
    """A Phi 3 with LongRoPE's factors."""
    rotary = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": short, "long_factor": SLOWER}
    config = Phi3Config(**SIZES, rope_parameters=rotary | ORIGINAL, **ORIGINAL)
    return built(Phi3ForCausalLM, config)


Model = Callable[[], PreTrainedModel]


@dataclass(frozen=True)
class Case:
    """One conversion.

    Args:
        model: Builds the source.
        conversion: How it is written.
        codes: Codes of the findings; empty for a right conversion.
        layers: Layers that must be named; all others must match.
        says: Part of a finding.
    """

    model: Model
    conversion: Conversion
    codes: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    says: str = ""


def _head_left(name: str, weight: np.ndarray) -> np.ndarray:
    """The rows of one head put back into the source's order, as a permutation over too few heads does."""
    if name != "blk.1.attn_q.weight":
        return weight
    changed = weight.copy()
    changed[16:32] = weight[16:32].reshape(8, 2, -1).swapaxes(0, 1).reshape(16, -1)
    return changed


def _permuted_anyway(name: str, weight: np.ndarray) -> np.ndarray:
    """Rows permuted in every layer, as for a Llama."""
    heads = {"attn_q": 4, "attn_k": 2}
    part = name.split(".")[-2]
    return permuted(weight, heads[part]) if part in heads else weight


def _noise(name: str, weight: np.ndarray) -> np.ndarray:
    """Keys of one layer drawn anew."""
    rng = np.random.default_rng(0)
    return rng.normal(size=weight.shape) * weight.std() if name == "blk.2.attn_k.weight" else weight


def _larger(name: str, weight: np.ndarray) -> np.ndarray:
    """Queries of one layer, too large by less than rounding to four bits may move single numbers."""
    return 1.3 * weight if name == "blk.1.attn_q.weight" else weight


def _norms_plus_one(name: str, weight: np.ndarray) -> np.ndarray:
    """Norms as llama.cpp applies them, which a Gemma stores less one."""
    return weight + 1 if "norm" in name else weight


def _halves(name: str, weight: np.ndarray) -> np.ndarray:
    """Rotated rows of adjacent pairs as halves, in the first half of each head."""
    if name.split(".")[-2] not in ("attn_q", "attn_k"):
        return weight
    heads = weight.reshape(-1, 16, *weight.shape[1:])
    return np.concatenate([heads[:, 0:8:2], heads[:, 1:8:2], heads[:, 8:]], 1).reshape(weight.shape)


PLAIN_LLAMA: Model = partial(llama, **PLAIN)
MINISTRAL: Model = lambda: ministral(**YARN, llama_4_scaling_beta=0.3)  # noqa: E731
LLAMA3_MODEL: Model = partial(llama, **LLAMA3)
EVERY = (0, 1, 2, 3)
REVERSED = np.array([8, 8, 8, 8, 2, 1, 1, 1], dtype=np.float32)
LOST = {"rope.scaling.type": None, "rope.scaling.factor": None}
COHERE2 = {"attention.sliding_window": 32, "logit_scale": 1.0}
GRANITE = {"attention.scale": 0.25, "logit_scale": 1.0}
OLMO3 = {"attention.sliding_window": 32}
PARTIAL = {"rope.dimension_count": 8}
SECTIONS = PARTIAL | {"rope.dimension_sections": [2, 1, 1, 0]}
ALL_FACTORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")
TWICE = np.full(8, 2, dtype=np.float32)


def longrope(short: list[float], **metadata: Any) -> Conversion:
    """A Phi 3 with its factors, as llama.cpp's converter writes it: without a type of scaling."""
    stated = {"rope.scaling.attn_factor": math.sqrt(1 + math.log(4) / math.log(64))}
    tensors = {"short": short, "long": SLOWER}
    return Conversion(
        "phi3",
        metadata=stated | metadata,
        tensors={f"rope_factors_{n}.weight": np.array(x, dtype=np.float32) for n, x in tensors.items()},
    )


RIGHT = {
    "cohere2": Case(cohere2, Conversion("cohere2", metadata=COHERE2)),
    "glm4 with sections of one axis": Case(
        glm4, Conversion("glm4", metadata=PARTIAL | {"rope.dimension_sections": [4, 0, 0, 0]})
    ),
    "granite": Case(granite, Conversion("granite", metadata=GRANITE)),
    "gemma2, window by default": Case(partial(gemma2, 4096), Conversion("gemma2", change=_norms_plus_one)),
    "gemma2": Case(
        partial(gemma2, 32),
        Conversion("gemma2", change=_norms_plus_one, metadata={"attention.sliding_window": 32}),
    ),
    "glm4": Case(glm4, Conversion("glm4", metadata=PARTIAL)),
    "glm4 with sections, rows in halves": Case(glm4, Conversion("glm4", change=_halves, metadata=SECTIONS)),
    "olmo2 with windows": Case(olmo3, Conversion("olmo2", metadata=OLMO3)),
    "llama in Q4_0": Case(PLAIN_LLAMA, Conversion(kind="Q4_0")),
    "ministral, with its temperature": Case(
        MINISTRAL, Conversion("mistral3", metadata={"attention.temperature_scale": 0.3})
    ),
    "llama": Case(PLAIN_LLAMA, Conversion()),
    "llama in F16": Case(PLAIN_LLAMA, Conversion(kind="F16")),
    "llama in Q8_0": Case(PLAIN_LLAMA, Conversion(kind="Q8_0")),
    "llama, Llama 3's scaling": Case(LLAMA3_MODEL, Conversion()),
    "llama, linear scaling": Case(partial(llama, **LINEAR), Conversion()),
    "llama, YaRN": Case(partial(llama, **YARN), Conversion()),
    "llama as qwen2, rows as they are": Case(PLAIN_LLAMA, Conversion("qwen2")),
    "qwen2": Case(qwen2, Conversion("qwen2")),
    "qwen3": Case(qwen3, Conversion("qwen3")),
    "smollm3": Case(smollm3, Conversion("smollm3")),
}
# Right ones that fuse queries and keys, so that the order of their rows is not compared.
UNCOMPARED = {
    "phi3, one set of factors": Case(partial(phi3, SLOWER), longrope(SLOWER)),
}
WRONG = {
    "rows of keys of a layer without rotation": Case(
        smollm3,
        Conversion("smollm3", leave=((3, "attn_k"),)),
        ("SPE711",),
        (3,),
        "queries permuted to adjacent pairs, keys as in the source",
    ),
    "cohere2 with frequency factors": Case(
        cohere2,
        Conversion("cohere2", metadata=COHERE2, tensors={"rope_freqs.weight": TWICE}),
        ("SPE602",),
        (),
        "no frequency factors required",
    ),
    "phi3 with factors of Llama 3": Case(
        partial(phi3, SLOWER),
        replace(longrope(SLOWER), tensors=longrope(SLOWER).tensors | {"rope_freqs.weight": TWICE}),
        ("SPE602",),
        EVERY,  # In which the order of rows is not compared.
        "no factors but rope_factors_long.weight and rope_factors_short.weight required",
    ),
    "granite of type longrope with factors of Llama 3": Case(
        granite,
        Conversion(
            "granite",
            metadata=GRANITE | {"rope.scaling.type": "longrope"},
            tensors={f"{name}.weight": TWICE / 2 for name in ALL_FACTORS},
        ),
        ("SPE602",),
        (),
        "it loads no such tensor in 'granite', where rope.scaling.type is longrope",
    ),
    "granite, rotation switched off": Case(
        granite,
        Conversion("granite", metadata=GRANITE | {"rope.scaling.finetuned": False}),
        ("SPE110",) * 4,
        EVERY,
        "rope.scaling.finetuned is false, which switches it off in 'granite'",
    ),
    "gemma2, window lost": Case(
        partial(gemma2, 32),
        Conversion("gemma2", change=_norms_plus_one),
        ("SPE202",) * 2,
        (0, 2),
    ),
    "glm4 with sections, rows as they are": Case(
        glm4, Conversion("glm4", metadata=SECTIONS), ("SPE104",) * 4, EVERY
    ),
    "glm4 without sections, rows in halves": Case(
        glm4, Conversion("glm4", change=_halves, metadata=PARTIAL), ("SPE711",) * 4, EVERY
    ),
    "olmo2, attention factor": Case(
        olmo3,
        Conversion("olmo2", metadata=OLMO3 | {"rope.scaling.attn_factor": 2.0}),
        ("SPE103",),
        (3,),
    ),
    "qwen2 with frequency factors": Case(
        qwen2,
        Conversion("qwen2", tensors={"rope_freqs.weight": TWICE}),
        ("SPE602",),
        (),
        "llama.cpp refuses the file: it loads no such tensor in 'qwen2'",
    ),
    "llama with factors of LongRoPE and no type": Case(
        PLAIN_LLAMA,
        Conversion(tensors={"rope_factors_long.weight": TWICE}),
        ("SPE602",),
        (),
        "loads no such tensor in 'llama', where rope.scaling.type is not stated",
    ),
    "phi3, two sets of factors": Case(
        partial(phi3, [1.0] * 8),
        longrope([1.0] * 8),
        ("SPE102",) * 4,
        EVERY,
        "sequences up to 64 positions: short factors declared, long factors effective",
    ),
    "phi3, factors reversed": Case(
        partial(phi3, SLOWER),
        replace(
            longrope(SLOWER), tensors=longrope(SLOWER[::-1]).tensors | {"rope_factors_long.weight": REVERSED}
        ),
        ("SPE102",) * 4,
        EVERY,
    ),
    "a temperature that the source lacks": Case(
        partial(llama, **YARN),
        Conversion("mistral3", metadata={"attention.temperature_scale": 0.3}),
        ("SPE403",) * 4,
        EVERY,
        "query scale",
    ),
    "a temperature that is lost": Case(
        MINISTRAL, Conversion("mistral3"), ("SPE403",) * 4, EVERY, "query scale"
    ),
    "queries too large, in Q4_0": Case(
        PLAIN_LLAMA,
        Conversion(kind="Q4_0", change=_larger),
        ("SPE711",),
        (1,),
        "rows of queries",
    ),
    "rows of one layer": Case(
        PLAIN_LLAMA,
        Conversion(leave=((2, "attn_q"), (2, "attn_k"))),
        ("SPE104",),
        (2,),
        "pairing: halves declared, adjacent effective",
    ),
    "rows of one layer in Q8_0": Case(
        PLAIN_LLAMA, Conversion(kind="Q8_0", leave=((2, "attn_q"), (2, "attn_k"))), ("SPE104",), (2,)
    ),
    "rows of the keys of one layer": Case(
        PLAIN_LLAMA, Conversion(leave=((1, "attn_k"),)), ("SPE711",), (1,), "rows of keys"
    ),
    "rows of one head": Case(PLAIN_LLAMA, Conversion(change=_head_left), ("SPE711",), (1,), "in heads 1"),
    "rows permuted that should not be": Case(
        qwen2, Conversion("qwen2", change=_permuted_anyway), ("SPE711",) * 4, EVERY, "neither layout"
    ),
    "keys of one layer lost": Case(
        PLAIN_LLAMA, Conversion(change=_noise), ("SPE711",), (2,), "in every known order"
    ),
    "Llama 3's factors lost": Case(
        LLAMA3_MODEL,
        Conversion(factors=False),
        ("SPE102",) * 4,
        EVERY,
        "ramp by 8 declared, base 500000 effective",
    ),
    "Llama 3's factors reversed": Case(
        LLAMA3_MODEL,
        Conversion(factors=False, tensors={"rope_freqs.weight": REVERSED}),
        ("SPE102",) * 4,
        EVERY,
    ),
    "linear scaling lost": Case(
        partial(llama, **LINEAR), Conversion(metadata=LOST), ("SPE102",) * 4, EVERY, "linear by 4 declared"
    ),
    "factor of the scaling lost": Case(
        partial(llama, **LINEAR),
        Conversion(metadata={"rope.scaling.factor": None}),
        ("SPE602", *("SPE102",) * 4),
        EVERY,
        "the scaling is lost",
    ),
    "scaled twice": Case(
        LLAMA3_MODEL,
        Conversion(metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
        ("SPE602", *("SPE102",) * 4),
        EVERY,
        "llama.cpp applies both",
    ),
    "YaRN with another original length": Case(
        partial(llama, **YARN),
        Conversion(metadata={"rope.scaling.original_context_length": 256}),
        ("SPE102",) * 4,
        EVERY,
    ),
    "YaRN's attention factor": Case(
        partial(llama, **YARN, attention_factor=1.5),
        Conversion(metadata={"rope.scaling.yarn_attn_factor": 1.5}),
        ("SPE103",) * 4,
        EVERY,
        "attention factor: 1.5 declared",
    ),
    "base lost": Case(PLAIN_LLAMA, Conversion(metadata={"rope.freq_base": None}), ("SPE101",) * 4, EVERY),
    "step of layers without rotation": Case(
        partial(smollm3, 2),
        Conversion("smollm3"),
        ("SPE110",),
        (1,),
        "GGUF has no key for layers without rotation; llama.cpp leaves out every fourth layer",
    ),
    "smollm3 as llama": Case(
        smollm3, Conversion("llama"), ("SPE110",), (3,), "llama.cpp rotates every layer in 'llama'"
    ),
    "sliding window": Case(
        mistral, Conversion(), ("SPE202",) * 4, EVERY, "llama.cpp reads no sliding window in 'llama'"
    ),
}
