"""A museum of faults: each is modelled on a public report and put into a model that passes the audit.

`python -m tests.checkpoints.audit.museum` audits every exhibit and prints those that were missed or misnamed.
"""

import sys
import warnings
from collections.abc import Callable, Collection
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
    table_of_texts,
)
from tests.checkpoints.audit.sweep import FULL, SLIDING, Edited, build
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticSlidingWindowLayer
from transformers.models.big_bird import modeling_big_bird
from transformers.models.bigbird_pegasus import modeling_bigbird_pegasus
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.funnel import modeling_funnel
from transformers.models.led import modeling_led
from transformers.models.longformer import modeling_longformer
from transformers.models.xlnet import modeling_xlnet

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


def nothing(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """For faults that are the configuration that the model was built from."""


def decoding_without_the_window(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The cache keeps all keys, and one token sees them all."""
    for name in ("update", "get_seq_length", "get_mask_sizes"):
        patch.setattr(DynamicSlidingWindowLayer, name, getattr(DynamicLayer, name))

    def all_keys(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
        return own(q, k, v, None if q.shape[2] == 1 else mask)

    attending(all_keys)(model, patch)


def one_key_short(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The place of the oldest key that a window needs holds the key after it."""
    own = DynamicSlidingWindowLayer.update

    def update(self: Any, *args: Any, **given: Any) -> Any:
        out = own(self, *args, **given)
        if self.keys.shape[2] == self.sliding_window - 1:
            self.keys, self.values = self.keys.clone(), self.values.clone()
            self.keys[:, :, 0], self.values[:, :, 0] = self.keys[:, :, 1], self.values[:, :, 1]
        return out

    patch.setattr(DynamicSlidingWindowLayer, "update", update)


def rolled_early(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The token that fills a static cache shifts those before it."""
    own = StaticSlidingWindowLayer.update

    def update(self: Any, keys: Tensor, values: Tensor, *args: Any, **given: Any) -> Any:
        out = own(self, keys, values, *args, **given)
        if keys.shape[2] == 1 and self.cumulative_length_int == self.max_cache_len:
            self.keys[:, :, :-1] = self.keys[:, :, :-1].roll(-1, dims=2)
        return out

    patch.setattr(StaticSlidingWindowLayer, "update", update)


def base_kept(model: Any, patch: pytest.MonkeyPatch) -> None:
    """A schedule takes every text for one beyond the training."""
    patch.setattr(model.model.rotary_emb, "original_max_seq_len", 0)


def long_factors_always(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Short texts turn by the long factors, too."""
    short, long = (torch.tensor(LONG[f"{length}_factor"]) for length in ("short", "long"))
    of_tables(lambda f: f * short / long)(model, patch)


def anew_after_the_end(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Positions are counted from the last token that ended a text, as for packed training."""
    ids: list[Any] = []
    body, own = model.model, model.model.rotary_emb.forward
    body.register_forward_pre_hook(
        lambda _, args, given: ids.append(given.get("input_ids")), with_kwargs=True
    )

    def forward(x: Tensor, position_ids: Tensor) -> Any:
        ends = None if ids[-1] is None else ids[-1] == model.config.eos_token_id
        if ends is not None and ends.shape == position_ids.shape:
            position_ids = position_ids - torch.where(ends, position_ids, 0).cummax(-1).values
        return own(x, position_ids)

    patch.setattr(body.rotary_emb, "forward", forward)


def biased_across(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Cross-attention gets the biases of the decoder's first layer."""
    first = model.decoder.block[0].layer[0].SelfAttention
    for block in model.decoder.block:
        crossing = block.layer[1].EncDecAttention

        def forward(states: Tensor, *args: Any, own: Any = crossing.forward, **given: Any) -> Any:
            keys = given["key_value_states"].shape[1]
            return own(states, *args, **given | {"position_bias": first.compute_bias(states.shape[1], keys)})

        patch.setattr(crossing, "forward", forward)


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


def of_tables(change: Callable[[Tensor], Tensor]) -> Inject:
    """Change the frequencies that rotary modules keep."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for name, buffer in list(model.named_buffers()):
            if name.endswith("inv_freq"):
                buffer.copy_(change(buffer.clone()))

    return inject


def scaled(change: Callable[[float], float], layers: Collection[int] = ()) -> Inject:
    return options(lambda given: {"scaling": change(given["scaling"])}, layers)


def at(places: Callable[[Tensor], Tensor]) -> Inject:
    """Rotate at other positions."""

    def rotate(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
        rows = places(torch.arange(c.shape[-2]))
        return own(q, k, c[..., rows, :], s[..., rows, :])

    return rotating(rotate)


def interleaved(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """Neighbours turn together."""
    half = c.shape[-1] // 2
    c, s = (y[..., :half].repeat_interleave(2, -1)[:, None] for y in (c, s))
    return x * c + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * s


def in_halves(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """Coordinates half a head apart turn together."""
    half = x.shape[-1] // 2
    table = [y[..., :half] if bool((y[..., 0] == y[..., half]).all()) else y[..., ::2] for y in (c, s)]
    c, s = (torch.cat([y, y], -1)[:, None] for y in table)
    return x * c + torch.cat([-x[..., half:], x[..., :half]], -1) * s


def padded_pairs(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
    """A part of the coordinates rotates, but each with a partner half a whole head away."""
    width, part = q.shape[-1] // 2, c.shape[-1] // 2
    ones, zeros = (f(*c.shape[:-1], width - part) for f in (torch.ones, torch.zeros))
    wide = torch.cat([c[..., :part], ones] * 2, -1), torch.cat([s[..., :part], zeros] * 2, -1)
    return own(q, k, *wide)


def by_head_number(own: Any, q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Any:
    """Heads take the place of positions."""

    def turned(x: Tensor) -> Tensor:
        rows = torch.arange(x.shape[1])
        a, b = (y[:, rows][:, :, None] for y in (c, s))
        half = x.shape[-1] // 2
        return x * a + torch.cat([-x[..., half:], x[..., :half]], -1) * b

    return turned(q), turned(k)


def masked_by(allowed: Callable[[Tensor, Tensor], Tensor]) -> Inject:
    """Give all layers the mask drawn from the places of query and key."""

    def drawn(lag: Tensor) -> Tensor:
        places = torch.arange(len(lag))
        return allowed(places[:, None], places[None, :])

    return masked(drawn)


def first_group(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
    return own(q, *(x[:, :1].expand_as(x) for x in (k, v)), mask)


def values_in_turns(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
    groups = q.shape[1] // k.shape[1]
    logits = q @ k.repeat_interleave(groups, 1).mT * given["scaling"]
    hidden = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
    pattern = logits.masked_fill(hidden, -torch.inf).softmax(-1)
    return (pattern @ v.repeat(1, groups, 1, 1)).transpose(1, 2), None


def norms(change: Callable[[nn.Module, Tensor], Tensor], names: Collection[str]) -> Inject:
    """Change what norms of queries or keys compute."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for name, module in model.named_modules():
            if name.rpartition(".")[2] in names:
                module.forward = lambda x, module=module: change(module, x)

    return inject


def skipped(*names: str) -> Inject:
    """Norms of queries or keys are there, but do not run."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        for name, module in model.named_modules():
            if name.rpartition(".")[2] in names:
                patch.setattr(module, "_call_impl", lambda x: x)

    return inject


def across_heads(norm: nn.Module, x: Tensor) -> Tensor:
    size = x.square().mean((-1, -2), keepdim=True).add(1e-6).rsqrt()
    return x * size * norm.weight


def unweighted(norm: nn.Module, x: Tensor) -> Tensor:
    return x * x.square().mean(-1, keepdim=True).add(1e-6).rsqrt()


def sloped(change: Callable[[Tensor], Tensor]) -> Inject:
    """Change the slopes of BLOOM's ALiBi, in the order of the heads."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        code = sys.modules[type(model).__module__]
        own = code._get_alibi_slopes
        patch.setattr(code, "_get_alibi_slopes", lambda *given: change(own(*given)))

    return inject


def progression(heads: int, layer: int) -> Tensor:
    """Decays of so many heads in one of three layers."""
    return 2 ** (-8 / heads * torch.arange(1, heads + 1)) * (1 - layer / 2)


def unmasked(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """A decoder builds the mask of an encoder."""
    code = sys.modules[type(model).__module__]
    patch.setattr(code, "create_causal_mask", code.create_bidirectional_mask)


def biased(change: Callable[[Tensor], Tensor]) -> Inject:
    """Change T5's biases."""

    def changed(given: dict[str, Any]) -> dict[str, Any]:
        bias = given.get("position_bias")
        return {} if bias is None else {"position_bias": change(bias)}

    return options(changed)


def both_ways(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """A decoder of T5 counts its buckets as an encoder does."""
    for name, module in model.named_modules():
        if "decoder" in name and getattr(module, "has_relative_attention_bias", False):
            module.is_decoder = False


def warmer(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    t = torch.arange(q.shape[2])
    return q * (1 + 0.1 * torch.log1p(t // 8))[:, None], k, v


def places_of_the_call(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Rotation counts the tokens of each call, whatever positions they have."""
    table: Any = model.model.rotary_emb
    own = table.forward
    patch.setattr(table, "forward", lambda x, position_ids: own(x, torch.arange(x.shape[1])[None]))


def dividing(axes: Callable[..., Tensor]) -> Inject:
    """Divide the pairs among time, height and width in another way, from the same sections."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        table: Any = table_of_texts(model)
        pairs = table.inv_freq.shape[0]
        axis = axes(tuple(table.mrope_section))[:pairs]

        def recompose(freq: Tensor) -> Tensor:
            angles = freq[axis, ..., torch.arange(pairs)].movedim(0, -1)
            return torch.cat([angles, angles], -1)

        patch.setattr(table, "recomposition_frequencies", recompose)

    return inject


def causal_from_the_first_key(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
    """Query i of a call sees i + 1 keys, whatever lies before it in the cache."""
    n, m = q.shape[2], k.shape[2]
    return own(q, k, v, mask if n == 1 else torch.ones(1, 1, n, m, dtype=torch.bool).tril())


def uncapped_behind_a_cache(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
    return own(q, k, v, mask, softcap=given["softcap"] if q.shape[2] == k.shape[2] else None)


def dropping(own: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, given: Any) -> Any:
    """Dropout of weights also in evaluation."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    logits = q @ k.mT * given["scaling"]
    hidden = torch.ones_like(logits[0, 0], dtype=torch.bool).triu(1)
    weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
    return (nn.functional.dropout(weights, 0.3) @ v).transpose(1, 2), None


LLAMA4 = {"no_rope_layers": [1, 0], "attention_chunk_size": 20}
COOL = LLAMA4 | {"attn_temperature_tuning": True, "floor_scale": 8, "attn_scale": 0.3}
LATENT = yarn(mscale=1.0, mscale_all_dim=1.0)
MROPE = {"rope_type": "default", "rope_theta": 1e4}


def other_way(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Position to content looks up the rows of the negative lags, where content to position does not."""
    own = modeling_deberta_v2.DisentangledSelfAttention.disentangled_attention_bias

    def bias(module: Any, q: Tensor, k: Tensor, lags: Tensor, table: Tensor, factor: int) -> Tensor:
        kinds = module.pos_att_type
        parts = []
        for kind, sign in (("c2p", 1), ("p2c", -1)):
            module.pos_att_type = [kind]
            parts.append(own(module, q, k, sign * lags, table, factor))
        module.pos_att_type = kinds
        return parts[0] + parts[1]

    patch.setattr(modeling_deberta_v2.DisentangledSelfAttention, "disentangled_attention_bias", bias)


def reaching_the_length(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Buckets reach as far as the text is long."""
    own = modeling_deberta_v2.build_relative_position

    def positions(queries: Tensor, keys: Tensor, bucket_size: int, max_position: int) -> Tensor:
        return own(queries, keys, bucket_size, keys.shape[-2])

    patch.setattr(modeling_deberta_v2, "build_relative_position", positions)


def pooled_too_early(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Lags of pooled queries count from keys that have been pooled, too."""
    structure = modeling_funnel.FunnelAttentionStructure
    own = structure.relative_pos

    def lags(given: Any, at: Any, stride: int, pooled: Any = None, **named: Any) -> Tensor:
        return own(given, at if pooled is None else pooled, stride, pooled, **named)

    patch.setattr(structure, "relative_pos", lags)


def of_streams(change: Callable[..., Tensor]) -> Inject:
    """Change what XLNet's attention gets, given its own function."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        attention = modeling_xlnet.XLNetRelativeAttention
        own = attention.rel_attn_core

        def attend(module: Any, *args: Any, **given: Any) -> Tensor:
            return change(own, module, *args, **given)

        patch.setattr(attention, "rel_attn_core", attend)

    return inject


def memories_apart(own: Any, module: Any, *args: Any, **given: Any) -> Tensor:
    """Memories are of another segment than the first one."""
    if given["seg_mat"] is not None:
        memories = given["seg_mat"].shape[1] - given["seg_mat"].shape[0]
        given["seg_mat"] = given["seg_mat"].clone()
        given["seg_mat"][:, :memories] = torch.tensor([0.0, 1.0])
    return own(module, *args, **given)


def target_of_first(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Only the first sequence of a batch has target tokens."""
    attention = modeling_xlnet.XLNetRelativeAttention
    own = attention.forward

    def forward(module: Any, *args: Any, target_mapping: Any = None, **given: Any) -> Any:
        if target_mapping is not None:
            target_mapping = target_mapping * (torch.arange(target_mapping.shape[-1]) == 0)
        return own(module, *args, target_mapping=target_mapping, **given)

    patch.setattr(attention, "forward", forward)


def content_hidden(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The first stream gets the mask of the second, under which no token sees itself."""
    attention = modeling_xlnet.XLNetRelativeAttention
    own = attention.forward

    def forward(module: Any, h: Any, g: Any, first: Any, second: Any, *rest: Any, **given: Any) -> Any:
        return own(module, h, g, second, second, *rest, **given)

    patch.setattr(attention, "forward", forward)


def not_apart(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The first token gets relative terms like the others."""
    structure = modeling_funnel.FunnelAttentionStructure
    own = structure.init_attention_inputs
    patch.setattr(structure, "init_attention_inputs", lambda *args, **given: (*own(*args, **given)[:3], None))


def windows_on_each_side(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The window of the first layer is that of one side."""
    attention: Any = model.base_model.encoder.layer[0].attention.self
    attention.one_sided_attn_window_size *= 2


def first_key_invalid(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The first key of every window counts as one beyond the text."""
    attention = modeling_longformer.LongformerSelfAttention
    own = attention._sliding_chunks_query_key_matmul

    def scores(module: Any, q: Tensor, k: Tensor, reach: int) -> Tensor:
        found = own(module, q, k, reach)
        found[..., 0] = -torch.inf
        return found

    patch.setattr(attention, "_sliding_chunks_query_key_matmul", scores)


def inverted(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Inverting the mask makes global tokens of value 2 others."""
    own = modeling_led._prepare_4d_attention_mask_inverted
    patch.setattr(
        modeling_led, "_prepare_4d_attention_mask_inverted", lambda mask, dtype: own(mask.clamp(max=1), dtype)
    )


def drawn_in_evaluation(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Random blocks are drawn outside training, too."""
    attention = modeling_big_bird.BigBirdBlockSparseAttention
    own = attention._bigbird_block_rand_mask_with_head

    def drawn(module: Any, **given: Any) -> Any:
        before, module.training = module.training, True
        try:
            return own(module, **given)
        finally:
            module.training = before

    patch.setattr(attention, "_bigbird_block_rand_mask_with_head", drawn)


def last_block_of_the_longest(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """The last block that all see is that of the longest sequence, which is not there."""
    attention = modeling_bigbird_pegasus.BigBirdPegasusBlockSparseAttention
    own = attention.bigbird_block_sparse_attention

    def attend(module: Any, *args: Any, **given: Any) -> Any:
        before, seen, after = args[:5], args[5].clone(), args[6:]
        seen[..., -module.block_size :] = 0
        return own(module, *before, seen, *after, **given)

    patch.setattr(attention, "bigbird_block_sparse_attention", attend)


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
            options(lambda given: {"s_aux": given["s_aux"].flip(0)}), heads=(0, 1, 2, 3)),
    Exhibit("sinks that the fused kernel does not take", "HabanaAI/vllm-hpu-extension/pull/339",
            "granite_swa", of("406"), options(lambda _: {"s_aux": None}, [1]), layers=(1,)),
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
