"""A museum of faults: each is modelled on a public report and put into a model that passes the audit.

`python -m tests.checkpoints.audit.museum` audits every exhibit and prints those that were missed or misnamed.
"""

import sys
import warnings
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import transformers
from tests.checkpoints.audit.families import ROPES, YARN
from tests.checkpoints.audit.injections import (
    Inject,
    at_kernel,
    attending,
    decaying,
    indexing,
    looked_up,
    masked,
    options,
    placed,
    rotating,
)
from tests.checkpoints.audit.museum_faults import (
    across_heads,
    anew_after_the_end,
    at,
    base_kept,
    biased,
    biased_across,
    both_ways,
    by_head_number,
    causal_from_the_first_key,
    content_hidden,
    decoding_without_the_window,
    dividing,
    drawn_in_evaluation,
    dropped,
    dropping,
    first_group,
    first_key_invalid,
    in_halves,
    interleaved,
    inverted,
    last_block_of_the_longest,
    long_factors_always,
    masked_by,
    memories_apart,
    norms,
    not_apart,
    nothing,
    of_streams,
    of_tables,
    one_key_short,
    other_way,
    padded_pairs,
    places_of_the_call,
    pooled_too_early,
    progression,
    reaching_the_length,
    rolled_early,
    scaled,
    skipped,
    sloped,
    sunk,
    target_of_first,
    uncapped_behind_a_cache,
    unmasked,
    unweighted,
    values_in_turns,
    warmer,
    windows_on_each_side,
)
from tests.checkpoints.audit.sweep import FULL, SLIDING, Edited, build
from torch import nn

from spectrope.checkpoints.audit import Audit, audit
from spectrope.checkpoints.audit.sections import in_order, in_turn

LENGTH = 96
EVERY = (0, 1)
MIXED = {"layer_types": [SLIDING, FULL], "sliding_window": 24}
TWO_BASES = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
}
LINEAR = {"num_hidden_layers": 3, "layer_types": [FULL, *["linear_attention"] * 2]}
LONG = dict(ROPES["longrope"])
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16}


@dataclass(frozen=True)
class Exhibit:
    """One fault.

    Args:
        name: What went wrong.
        thread: The public report that it is modelled on, without the hub's address.
        family: Of the model.
        codes: Of the findings: at least one of these and no other.
        inject: What changes the model.
        declared: What its configuration says.
        applied: What the model is built from instead, where that is the fault.
        layers: Whose findings these are; None where they are not of layers.
        heads: That findings name.
    """

    name: str
    thread: str
    family: str
    codes: frozenset[str]
    inject: Inject = nothing
    declared: dict[str, Any] = field(default_factory=dict)
    applied: dict[str, Any] | None = None
    layers: Collection[int] | None = EVERY
    heads: Collection[int | None] = (None,)

    def sound(self) -> nn.Module:
        """The model without its fault."""
        return build(Edited(self.family, self.name, self.declared))

    def model(self, patch: pytest.MonkeyPatch) -> nn.Module:
        """The model with its fault; its configuration says what was declared."""
        if self.applied is None:
            model = self.sound()
        else:
            model = build(Edited(self.family, self.name, self.declared | self.applied))
            model.whole_config = self.sound().config
        self.inject(model, patch)
        return model

    def judged(self, found: Audit) -> str:
        """ "named", "caught" where a code, a layer or a head is another, or "missed"."""
        records = found.records
        if found.outcome != "differs":
            return "missed"
        codes, layers = {one.code for one in records}, {one.layer for one in records}
        wanted = {None} if self.layers is None else set(self.layers)
        right = codes <= self.codes and layers == wanted and {one.head for one in records} == set(self.heads)
        return "named" if right else "caught"


def of(*codes: str) -> frozenset[str]:
    return frozenset(f"SPE{code}" for code in codes)


def rope(kind: str = "default", **fields: Any) -> dict[str, Any]:
    return {"rope_parameters": ROPES[kind] | fields}


def yarn(**fields: Any) -> dict[str, Any]:
    return {"rope_parameters": YARN | fields}


def gemma3(**fields: Any) -> dict[str, Any]:
    """Gemma 3's two rotations, with other parameters for one type of layer."""
    parts = {kind: TWO_BASES[kind] | fields.get(kind.partition("_")[0], {}) for kind in TWO_BASES}
    return MIXED | {"rope_parameters": parts}


LLAMA4 = {"no_rope_layers": [1, 0], "attention_chunk_size": 20}
COOL = LLAMA4 | {"attn_temperature_tuning": True, "floor_scale": 8, "attn_scale": 0.3}
LATENT = yarn(mscale=1.0, mscale_all_dim=1.0)
MROPE = {"rope_type": "default", "rope_theta": 1e4}


MUSEUM = (
    Exhibit("base of a launch script", "radixark/miles/issues/742", "qwen3_moe", of("101"),
            declared=rope(rope_theta=1e7), applied=rope(rope_theta=1e6)),
    Exhibit("new layout not read by an older loader", "Open-Athena/MarinFold/pull/198", "arcee", of("102"),
            declared=rope("llama3"), applied=rope(rope_theta=1e4)),
    Exhibit("base fixed in a converter", "princeton-nlp/LLM-Shearing/issues/66", "olmo2", of("101"),
            declared=rope(rope_theta=1e6), applied=rope(rope_theta=1e4)),
    Exhibit("base stale in a class default", "THUDM/slime/pull/1720", "solar_open", of("101"),
            declared=rope(rope_theta=5e5), applied=rope(rope_theta=1e4)),
    Exhibit("one constant base for all layers", "google/gemma.cpp/issues/986", "gemma3_text", of("101"),
            declared=gemma3(full={"rope_type": "default"}),
            applied=gemma3(full={"rope_type": "default", "rope_theta": 1e4}), layers=(1,)),
    Exhibit("no local base", "Lightning-AI/litgpt/pull/1993", "gemma3_text", of("101"),
            declared=gemma3(), applied=gemma3(sliding={"rope_theta": 1e6}), layers=(0,)),
    Exhibit("global scaling on sliding layers", "antonellof/ferrox/issues/39", "gemma3_text", of("102"),
            declared=gemma3(), applied=gemma3(sliding={"rope_type": "linear", "factor": 8.0}), layers=(0,)),
    Exhibit("linear factor lost on global layers", "lablup/mlxcel/issues/1340", "gemma3_text", of("102"),
            declared=gemma3(), applied=gemma3(full={"rope_type": "default"}), layers=(1,)),
    Exhibit("scale by the number of layers", "ollama/ollama/pull/13452", "gemma3_text", of("102"),
            declared=gemma3(), applied=gemma3(full={"factor": 4.0}), layers=(1,)),
    Exhibit("declared scaling dropped", "Blaizzy/mlx-vlm/pull/1710", "seed_oss", of("102"),
            declared=rope("llama3"), applied=rope(rope_theta=5e5)),
    Exhibit("constants of Llama 3.1 in the code", "trholding/llama2.c/pull/14", "mistral", of("102"),
            declared=rope("llama3", low_freq_factor=2.0, high_freq_factor=8.0), applied=rope("llama3")),
    Exhibit("no scaling in a reimplementation", "felafax/felafax/issues/59", "apertus", of("102"),
            declared=rope("linear"), applied=rope(rope_theta=1e4)),
    Exhibit("dynamic scaling divides positions", "huggingface/text-generation-inference/issues/816",
            "stablelm", of("102"),
            declared=rope("dynamic", partial_rotary_factor=1.0) | {"max_position_embeddings": 64},
            applied=rope("linear", factor=2.0, partial_rotary_factor=1.0)),
    Exhibit("explicit attention factor ignored", "ml-explore/mlx-lm/pull/1507", "qwen2_moe", of("103"),
            declared=yarn(attention_factor=0.7), applied=yarn()),
    Exhibit("attention factor where none is wanted", "Avarok-Cybersecurity/atlas/pull/342", "qwen3",
            of("103"), declared=yarn(attention_factor=1.0), applied=yarn()),
    Exhibit("attention factor applied twice", "ggml-org/llama.cpp/pull/17945", "exaone4", of("103"),
            rotating(lambda own, q, k, c, s: own(q, k, 1.1386 * c, 1.1386 * s)),
            declared=yarn() | {"layer_types": [SLIDING, SLIDING], "sliding_window": 24}),
    Exhibit("mscale left out of the logits", "onnxruntime/mobius/pull/548", "youtu", of("404"),
            scaled(lambda _: 32**-0.5), declared=LATENT),
    Exhibit("mscale missing in an attention module", "huggingface/transformers/pull/47435",
            "mistral_large4_text", of("404"), scaled(lambda s: s / 1.3)),
    Exhibit("scale of the absorbed width", "ollama/ollama/pull/13893", "glm4_moe_lite", of("404"),
            scaled(lambda _: 40**-0.5)),
    Exhibit("part of the width dropped with M-RoPE", "AI-Hypercomputer/maxtext/issues/4616",
            "glm4v_moe_text", of("105"),
            applied={"rope_parameters": MROPE | {"mrope_section": [4, 2, 2], "partial_rotary_factor": 1.0}}),
    Exhibit("part of the width taken twice", "vllm-project/vllm/pull/30384", "glm", of("105"),
            declared=rope(partial_rotary_factor=0.5), applied=rope(partial_rotary_factor=0.25)),
    Exhibit("whole width rotated", "ml-explore/mlx-lm/pull/1698", "glm4", of("105"),
            declared=rope(partial_rotary_factor=0.5), applied=rope(partial_rotary_factor=1.0)),
    Exhibit("rotary_dim falls back to the head's width", "vllm-project/vllm/pull/43770", "phi", of("105"),
            declared=rope(partial_rotary_factor=0.5), applied=rope(partial_rotary_factor=1.0)),
    Exhibit("part read from rope_scaling alone", "InternLM/lmdeploy/pull/3861", "nemotron", of("105"),
            declared=rope(partial_rotary_factor=0.5), applied=rope(partial_rotary_factor=1.0)),
    Exhibit("partners half a whole head away", "labscommunity/cascadia/pull/69", "glm4_moe", of("105", "104"),
            rotating(padded_pairs), declared=rope(partial_rotary_factor=0.5)),
    Exhibit("weights in halves, code in neighbours", "ooples/AiDotNet/pull/2074", "olmoe", of("104"),
            rotating(lambda own, q, k, c, s: (interleaved(q, c, s), interleaved(k, c, s)))),
    Exhibit("weights in neighbours, code in halves", "warpfront/hipfire/pull/241", "ernie4_5", of("104"),
            rotating(lambda own, q, k, c, s: (in_halves(q, c, s), in_halves(k, c, s)))),
    Exhibit("latent heads without their permutation", "huggingface/transformers/issues/39687",
            "deepseek_v3", of("104"), applied={"rope_interleave": False}),
    Exhibit("queries alone permuted", "huggingface/nanotron/pull/427", "qwen2", of("104", "109"),
            rotating(lambda own, q, k, c, s: (interleaved(q, c, s), own(q, k, c, s)[1]))),
    Exhibit("rotation along the heads", "mlfoundations/open_lm/issues/4", "gemma", of("110"),
            rotating(by_head_number)),
    Exhibit("rotation in a layer without one", "airockchip/rknn-llm/issues/501", "smollm3", of("110"),
            declared={"no_rope_layers": [1, 0]}, applied={"no_rope_layers": [1, 1]}, layers=(1,)),
    Exhibit("flags read the other way", "huggingface/transformers/issues/43756", "smollm3", of("110"),
            declared={"no_rope_layers": [1, 0]}, applied={"no_rope_layers": [0, 1]}),
    Exhibit("no schedule of layers", "timtoole02/Camelid/pull/535", "llama4_text", of("110", "202"),
            declared=LLAMA4, applied=LLAMA4 | {"no_rope_layers": [1, 1]}, layers=(1,)),
    Exhibit("windows in the other layers", "huggingface/transformers/issues/35896", "qwen2", of("202"),
            declared=MIXED | {"use_sliding_window": True},
            applied={"layer_types": [FULL, SLIDING]}),
    Exhibit("even layers slide in the code", "vllm-project/vllm/pull/33594", "gpt_oss", of("202"),
            declared=MIXED | {"layer_types": [FULL, SLIDING]}, applied={"layer_types": [SLIDING, FULL]}),
    Exhibit("window without its last key", "zml/zml/pull/763", "starcoder2", of("202"),
            declared={"sliding_window": 24}, applied={"sliding_window": 25}),
    Exhibit("window on both sides of the query", "huggingface/transformers/issues/39408", "mixtral",
            of("201"), masked(lambda n: n.abs() < 24), declared={"sliding_window": 24}),
    Exhibit("window counted without the query", "vllm-project/vllm/issues/3385", "mistral", of("202"),
            declared={"sliding_window": 24}, applied={"sliding_window": 23}),
    Exhibit("window dropped for some layers", "vllm-project/vllm/pull/17772", "olmo3", of("202"),
            declared={"layer_types": [SLIDING, SLIDING], "sliding_window": 24},
            applied={"layer_types": [FULL, SLIDING]}, layers=(0,)),
    Exhibit("decoder of an encoder's family sees ahead", "huggingface/transformers/issues/48745",
            "megatron-bert", of("201"), unmasked, declared={"is_decoder": True}),
    Exhibit("boolean mask inverted", "rasbt/LLMs-from-scratch/pull/1062", "gpt2", of("201", "202"),
            masked(lambda n: n < 0)),
    Exhibit("rest of a block of 32 keys seen", "tenstorrent/tt-metal/issues/41215", "qwen3", of("201"),
            masked_by(lambda i, j: j < 32 * (i // 32 + 1))),
    Exhibit("no causal mask beside dynamic ones", "huggingface/transformers/issues/48748", "granite",
            of("201"), masked(lambda n: n < 9999)),
    Exhibit("chunk of another length", "ggml-org/llama.cpp/pull/12791", "llama4_text", of("202"),
            declared=LLAMA4, applied={"attention_chunk_size": 64}, layers=(0,)),
    Exhibit("sinks of other heads", "tenstorrent/tt-metal/pull/31115", "gpt_oss", of("406"),
            sunk(lambda sinks: sinks.flip(0)), heads=(0, 1, 2, 3)),
    Exhibit("sinks that the fused kernel does not take", "HabanaAI/vllm-hpu-extension/pull/339",
            "granite_swa", of("406"), sunk(dropped, [1]), layers=(1,)),
    Exhibit("cap lost between two interfaces", "sgl-project/sglang/issues/33915", "gemma2", of("405"),
            options(lambda _: {"softcap": None}, [1]), declared={"attn_logit_softcapping": 5.0}, layers=(1,)),
    Exhibit("cap of logits that are not scaled", "NVIDIA/TransformerEngine/pull/3391", "gemma2", of("405"),
            options(lambda given: {"softcap": given["softcap"] * given["scaling"]}),
            declared={"attn_logit_softcapping": 5.0}),
    Exhibit("scalar of another size of the model", "ggml-org/llama.cpp/pull/8444", "gemma3_text", of("404"),
            declared={"query_pre_attn_scalar": 256}, applied={"query_pre_attn_scalar": 224}),
    Exhibit("scale by the head's width in every size", "antonellof/ferrox/issues/40", "gemma2", of("404"),
            declared={"query_pre_attn_scalar": 144}, applied={"query_pre_attn_scalar": 16}),
    Exhibit("every query head reads group 0", "PSAL-POSTECH/ONNXim/pull/34", "qwen2", of("407"),
            attending(first_group), heads=(2, 3)),
    Exhibit("groups of values in turns", "apple/axlearn/pull/842", "olmo2", of("407"),
            attending(values_in_turns), declared={"num_key_value_heads": 2}, heads=(1, 2)),
    Exhibit("one norm across all heads", "vllm-project/vllm/pull/16311", "qwen3_moe", of("114"),
            norms(across_heads, ["q_norm", "k_norm"])),
    Exhibit("weights of the norms not applied", "lucidrains/x-transformers/issues/352", "hy_v3", of("114"),
            norms(unweighted, ["q_norm"])),
    Exhibit("keys and values normalised, not queries", "kyegomez/MegaVIT/issues/17", "qwen3", of("114"),
            skipped("q_norm")),
    Exhibit("norms built and never called", "Cerebras/modelzoo/pull/85", "olmoe", of("114"),
            skipped("q_norm", "k_norm")),
    Exhibit("temperature switched off", "vllm-project/vllm/pull/19997", "llama4_text", of("403"),
            declared=COOL, applied={"attn_temperature_tuning": False}, layers=(1,)),
    Exhibit("floor of the temperature fixed in the code", "NVIDIA/TensorRT-LLM/pull/3491", "llama4_text",
            of("403"), declared=COOL, applied={"floor_scale": 16}, layers=(1,)),
    Exhibit("temperature in rotated layers", "AI-Hypercomputer/maxtext/pull/1611", "cohere2", of("403"),
            at_kernel(warmer, [0]), declared=MIXED, layers=(0,)),
    Exhibit("positions stay at the end of the table", "pegainfer-project/pegainfer/issues/220",
            "starcoder2", of("111"), at(lambda t: t.clamp(max=63)), declared={"sliding_window": None}),
    Exhibit("parts of the sequence in zigzag", "NVIDIA/Megatron-LM/issues/560", "olmo", of("111"),
            at(lambda t: torch.cat([t[:24], t[72:], t[24:72]]))),
    Exhibit("buckets of another distance", "huggingface/transformers/pull/16155", "umt5", of("302"),
            declared={"relative_attention_max_distance": 64},
            applied={"relative_attention_max_distance": 128}),
    Exhibit("biases scaled with the logits", "tenstorrent/tt-metal/pull/56406", "mt5", of("303"),
            biased(lambda b: 0.25 * b)),
    Exhibit("buckets both ways in a decoder", "huggingface/transformers/pull/8518", "t5", of("302"),
            both_ways),
    Exhibit("slopes from exponent 0 on", "paiml/aprender/pull/2143", "bloom", of("301"),
            sloped(lambda m: 4 * m)),
    Exhibit("one progression for six heads", "ml-explore/mlx/issues/343", "bloom", of("301"),
            sloped(lambda m: 2.0 ** (-8 / 6 * torch.arange(1, 7))),
            declared={"hidden_size": 96, "n_head": 6}),
    Exhibit("slopes sorted", "antofuller/CROMA/issues/12", "bloom", of("301"),
            sloped(lambda m: m.sort(descending=True).values), declared={"hidden_size": 96, "n_head": 6}),
    Exhibit("decays of the layer before", "sgl-project/sglang-jax/pull/928", "minimax", of("304"),
            decaying(lambda rates, layer: progression(4, layer - 1), (1, 2)), declared=LINEAR, layers=(1, 2)),
    Exhibit("decays by the heads of one rank", "bigscience-workshop/Megatron-DeepSpeed/issues/227", "minimax",
            of("304"), decaying(lambda rates, layer: progression(2, layer).repeat(2), (1,)), declared=LINEAR,
            layers=(1,), heads=(0, 1, 2)),
    Exhibit("rows from 0 instead of after the padding's", "huggingface/transformers/issues/5285", "roberta",
            of("402"), looked_up(lambda rows: rows - 1), layers=None),
    Exhibit("frequencies cast with the model", "NVIDIA/Megatron-LM/issues/744", "mixtral", of("102", "106"),
            of_tables(lambda f: f.bfloat16().float())),
    Exhibit("sines and cosines kept in bfloat16", "KellerJordan/modded-nanogpt/issues/39", "phimoe",
            of("106"),
            rotating(lambda own, q, k, c, s: own(q, k, c.bfloat16().float(), s.bfloat16().float()))),
    Exhibit("last frequencies never written", "huggingface/transformers/issues/45902", "qwen3", of("102"),
            of_tables(lambda f: f * (torch.arange(len(f)) < 6))),
    Exhibit("table of frequencies left empty", "huggingface/transformers/issues/34234", "jais2", of("110"),
            of_tables(lambda f: 0 * f)),
    Exhibit("short factors beyond the training", "mlc-ai/mlc-llm/pull/3375", "phi3", of("102"),
            declared={"rope_parameters": LONG | {"factor": None}, "original_max_position_embeddings": 32},
            applied={"rope_parameters": LONG | {"factor": None, "long_factor": LONG["short_factor"]}}),
    Exhibit("long factors at the very end of the training", "unslothai/unsloth/pull/10681", "phi3", of("102"),
            declared={"rope_parameters": LONG | {"factor": None, "original_max_position_embeddings": 96},
                      "original_max_position_embeddings": 96},
            applied={"rope_parameters": LONG | {"factor": None, "original_max_position_embeddings": 96,
                                                "short_factor": LONG["long_factor"]}}),
    Exhibit("one factor on the rotation for both lists", "lablup/mlxcel/issues/1358", "minicpm3",
            of("103"), rotating(lambda own, q, k, c, s: own(q, k, c / 1.1, s / 1.1)),
            declared={"rope_parameters": LONG}),
    Exhibit("half of the local window", "huggingface/transformers/issues/29623", "modernbert", of("202"),
            declared={"local_attention": 20}, applied={"local_attention": 10}, layers=(1,)),
    Exhibit("alpha of a fixed stretch ignored", "onnxruntime/mobius/pull/293", "hunyuan_v1_dense", of("101"),
            declared={"rope_parameters": ROPES["dynamic"] | {"alpha": 100.0}},
            applied=rope(rope_theta=1e4)),
    Exhibit("sines for cosines", "rasbt/LLMs-from-scratch/pull/381", "gpt_neox", of("107"),
            rotating(lambda own, q, k, c, s: own(q, k, s, c), [1]), layers=(1,)),
    Exhibit("position_ids not read", "NVIDIA/Megatron-LM/issues/453", "llama", of("111"),
            places_of_the_call),
    Exhibit("height and width of M-RoPE discarded", "sgl-project/sglang/pull/34446", "qwen3_vl_moe_text",
            of("115"), placed(lambda p: p[:1].expand(len(p), -1, -1))),
    Exhibit("sections in blocks that come in turn", "alibaba/MNN/pull/4133", "qwen3_vl_text", of("115"),
            dividing(in_order), declared={"rope_parameters": MROPE | {"mrope_section": [4, 2, 2]}}),
    Exhibit("sections in turn that come in blocks", "Blaizzy/mlx-vlm/pull/576", "qwen2_5_vl_text", of("115"),
            dividing(in_turn)),
    Exhibit("text of a vision model without its causal mask", "huggingface/candle/issues/3505",
            "qwen2_vl_text", of("201"), masked(lambda n: n < 9999)),
    Exhibit("dropout in evaluation", "NVIDIA/torch-harmonics/pull/221", "stablelm", of("407"),
            attending(dropping)),
    Exhibit("causal from the first key behind a cache", "pytorch/pytorch/issues/144858", "qwen3", of("501"),
            attending(causal_from_the_first_key), layers=None),
    Exhibit("padding seen by the function", "AnswerDotAI/ModernBERT/pull/40", "bert", of("501"),
            attending(lambda own, q, k, v, mask, given: own(q, k, v, None)), layers=None),
    Exhibit("no cap behind a cache", "vllm-project/vllm-metal/pull/666", "gemma2", of("501"),
            attending(uncapped_behind_a_cache), declared={"attn_logit_softcapping": 5.0}, layers=None),
    Exhibit("frequencies cast to float16", "huggingface/transformers/issues/25681", "gemma2", of("102"),
            of_tables(lambda f: f.half().float())),
    Exhibit("position to content of the negative lags", "nntrainer/nntrainer/pull/3982", "deberta-v2",
            of("302"), other_way, declared=DISENTANGLED),
    Exhibit("buckets that reach to the length of the text", "NVIDIA/TensorRT/issues/3370", "deberta-v2",
            of("302"), reaching_the_length, declared=DISENTANGLED | {"max_relative_positions": 512}),
    Exhibit("indexer rotated like latent heads", "vllm-project/vllm/pull/28968", "deepseek_v32", of("104"),
            indexing(lambda own, q, k, c, s: (interleaved(q, c, s), interleaved(k, c, s)))),
    Exhibit("interleaving of the indexer ignored", "huggingface/transformers/pull/46842", "glm_moe_dsa",
            of("104"), indexing(lambda own, q, k, c, s: (in_halves(q, c, s), in_halves(k, c, s)))),
    Exhibit("positions pooled too early", "laiguokun/Funnel-Transformer/issues/8", "funnel", of("302"),
            pooled_too_early, layers=(2, 4)),
    Exhibit("window counted on each side", "allenai/longformer/issues/194", "longformer", of("202"),
            windows_on_each_side, layers=(0,)),
    Exhibit("first key of a window as beyond the text", "huggingface/transformers/pull/4352", "longformer",
            of("202"), first_key_invalid),
    Exhibit("global tokens lost with an inverted mask", "allenai/longformer/issues/254", "led", of("202"),
            inverted),
    Exhibit("random blocks in evaluation", "huggingface/transformers/pull/23056", "big_bird", of("202"),
            drawn_in_evaluation),
    Exhibit("last block of the longest sequence", "google-research/bigbird/issues/35", "bigbird_pegasus",
            of("202"), last_block_of_the_longest),
    Exhibit("memories of another segment", "zihangdai/xlnet/issues/62", "xlnet", of("303"),
            of_streams(memories_apart)),
    Exhibit("target tokens in the first sequence alone", "huggingface/transformers/pull/7267", "xlnet",
            of("303"), target_of_first),
    Exhibit("content stream that does not see itself", "huggingface/transformers/pull/711", "xlnet",
            of("202"), content_hidden),
    Exhibit("window forgotten by the kernel of single tokens", "karpathy/nanochat/issues/452", "mistral",
            of("202"), decoding_without_the_window, declared={"sliding_window": 64}),
    Exhibit("cache one key short of the window", "ml-explore/mlx-lm/pull/390", "mistral", of("501"),
            one_key_short, declared={"sliding_window": 64}, layers=None),
    Exhibit("static cache rolled before it is full", "huggingface/transformers/issues/37574", "mistral",
            of("501"), rolled_early, declared={"sliding_window": 80}, layers=None),
    Exhibit("base kept after a longer text", "huggingface/transformers/issues/27226", "qwen2", of("101"),
            base_kept, declared=rope("dynamic") | {"max_position_embeddings": 64}),
    Exhibit("long factors whatever the text", "vllm-project/vllm/pull/27431", "phi3", of("102"),
            long_factors_always, declared={"rope_parameters": LONG | {"factor": None},
                                           "original_max_position_embeddings": 32}),
    Exhibit("positions begin anew after the end of a text", "swiss-ai/Megatron-LM/pull/40", "llama",
            of("501"), anew_after_the_end, layers=None),
    Exhibit("bias of self-attention in cross-attention", "guillaume-be/rust-bert/pull/171", "t5", of("116"),
            biased_across),
    Exhibit("<cls> not kept apart", "huggingface/transformers/pull/6908", "funnel", of("303"),
            not_apart, layers=range(5)),
)  # fmt: skip
NAMES = {one.name: one for one in MUSEUM}


def judged(one: Exhibit) -> tuple[str, str]:
    """How the audit of an exhibit ends, and what it found; the sound model must pass."""
    with pytest.MonkeyPatch.context() as patch:
        found = audit(one.model(patch), length=LENGTH)
    word = one.judged(found)
    seen = [f"{record.where} head {record.head}: {record.code} {record.message}" for record in found.records]
    return word, "; ".join(seen) or "; ".join({layer.reason for layer in found.layers})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    counts: dict[str, int] = {}
    for exhibit in MUSEUM:
        try:
            sound = audit(exhibit.sound(), length=LENGTH)
            told, why = judged(exhibit) if sound.ok else ("unsound", "; ".join(map(str, sound.records)))
        except Exception as error:
            told, why = "broken", f"{type(error).__name__}: {str(error)[:200]}"
        counts[told] = counts.get(told, 0) + 1
        if told != "named":
            sys.stdout.write(f"{told}: {exhibit.name} ({exhibit.family}): {why[:600]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{sum(counts.values())} exhibits: {counts}\n")
