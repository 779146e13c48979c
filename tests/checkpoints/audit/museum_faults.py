"""The faults of the museum: what is changed in a model that is right."""

import sys
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.checkpoints.audit.families import ROPES
from tests.checkpoints.audit.injections import (
    Inject,
    attending,
    masked,
    options,
    rotating,
    table_of_texts,
)
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer, StaticSlidingWindowLayer
from transformers.models.big_bird import modeling_big_bird
from transformers.models.bigbird_pegasus import modeling_bigbird_pegasus
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.funnel import modeling_funnel
from transformers.models.led import modeling_led
from transformers.models.longformer import modeling_longformer
from transformers.models.xlnet import modeling_xlnet


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
    short, long = (torch.tensor(ROPES["longrope"][f"{length}_factor"]) for length in ("short", "long"))
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


def sunk(change: Callable[[Tensor], Tensor], layers: Collection[int] = (0, 1)) -> Inject:
    """The attention function of layers takes other sinks than theirs."""

    def inject(model: nn.Module, patch: pytest.MonkeyPatch) -> None:
        code = sys.modules[type(model).__module__]
        own = code.eager_attention_forward

        def attend(module: Any, *args: Any, **given: Any) -> Any:
            if module.layer_idx in layers:
                groups, changed = module.num_key_value_groups, change(module.sinks)
                module = SimpleNamespace(sinks=changed, num_key_value_groups=groups, training=False)
            return own(module, *args, **given)

        patch.setattr(code, "eager_attention_forward", attend)

    return inject


def dropped(sinks: Tensor) -> Tensor:
    """Sinks that take nothing."""
    return torch.full_like(sinks, -torch.inf)


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
