"""Faults that a plain forward pass does not show, and the serving mode that first shows each."""

import sys
from dataclasses import dataclass

import torch
from tests.checkpoints.audit.injections import Inject, attending
from tests.checkpoints.audit.museum import COOL, LENGTH
from transformers import masking_utils
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer, StaticCache, StaticLayer


def at(change, single=True):
    """Change the positions that the rotation is given, of single tokens alone or always."""

    def inject(model, patch):
        table = model.model.rotary_emb
        own = table.forward

        def forward(x, position_ids):
            changed = position_ids if single and position_ids.shape[1] > 1 else change(position_ids)
            return own(x, changed)

        patch.setattr(table, "forward", forward)

    return inject


def cached(layer, change):
    """What a layer of a cache returns, changed where it holds earlier tokens."""

    def inject(model, patch):
        own = layer.update

        def update(self, keys, values, *args, **given):
            earlier = int(self.get_seq_length())
            k, v = own(self, keys, values, *args, **given)
            return change(k, v, keys.shape[2]) if earlier else (k, v)

        patch.setattr(layer, "update", update)

    return inject


def of_single(change):
    return lambda k, v, new: change(k, v) if new == 1 else (k, v)


def new_values_turned(k, v, new):
    """A further chunk's values are written one slot off."""
    return k, torch.cat([v[:, :, :-new], v[:, :, -new:].roll(1, 2)], 2)


def not_a_number(own, q, k, v, mask, given):
    """Queries that see no key get no number."""
    out, weights = own(q, k, v, mask)
    if mask is None:
        return out, weights
    blind = (~mask if mask.dtype == torch.bool else mask < -1).all(-1)
    return out.masked_fill(blind[:, 0, :, None, None], torch.nan), weights


def drafted(own, q, k, v, mask, given):
    """A few queries behind a cache see each other."""
    few = 1 < q.shape[2] < 6 and k.shape[2] > q.shape[2]
    return own(q, k, v, torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool) if few else mask)


def unmasked_rows_exchanged(own, q, k, v, mask, given):
    """Rows are exchanged where single tokens are decoded without a mask."""
    swap = mask is None and len(q) > 1 and q.shape[2] == 1
    return own(q, k.flip(0), v.flip(0), mask) if swap else own(q, k, v, mask)


def least_padding(model, patch):
    """All rows are taken to have the least padding of the batch, unless it is none."""

    def hook(module, args, given):
        mask = given.get("attention_mask")
        if isinstance(mask, torch.Tensor) and mask.ndim == 2 and not bool(mask.all(1).any()):
            given = given | {"attention_mask": mask.amax(0, keepdim=True).expand_as(mask)}
        return args, given

    model.base_model.register_forward_pre_hook(hook, with_kwargs=True)


def single_tokens_without_positions(model, patch):
    """Rows of the table are looked up for single tokens, and not added."""
    body, last = model.base_model, {}
    body.wpe.register_forward_hook(lambda _, args, out: last.update(rows=out))
    body.drop.register_forward_pre_hook(
        lambda _, args: (args[0] - last["rows"],) if args[0].shape[1] == 1 else args
    )


def sharper_behind_many(own, q, k, v, mask, given):
    """A kernel for single queries over more than 70 keys scales twice."""
    return own(2 * q if q.shape[2] == 1 and k.shape[2] > 70 else q, k, v, mask)


def exchanged(x):
    """The third slot in the place of the fourth, and the reverse."""
    return x[:, :, [0, 1, 3, 2, *range(4, x.shape[2])]]


def with_embeddings(change):
    """Other arguments of a model's body where it is given embeddings in the place of tokens."""

    def inject(model, patch):
        def hook(module, args, given):
            states = given.get("inputs_embeds")
            return args, given if states is None else given | change(states.shape[1])

        model.base_model.register_forward_pre_hook(hook, with_kwargs=True)

    return inject


def slots_counted(model, patch):
    """A token's position is the number of slots that the cache has taken, padding included."""

    def hook(module, args, given):
        past = given.get("past_key_values")
        if past is not None and past.get_seq_length() > 0:
            tokens = args[0] if args else given["input_ids"]
            given = given | {"position_ids": past.get_seq_length() + torch.arange(tokens.shape[1])[None]}
        return args, given

    model.base_model.register_forward_pre_hook(hook, with_kwargs=True)


def whole_blocks(own, q, k, v, mask, given):
    """One query over more than 128 keys loses those behind the last whole block of 64."""
    m = k.shape[2]
    if q.shape[2] == 1 and m > 128 and m % 64:
        k, v, mask = k[:, :, : m - m % 64], v[:, :, : m - m % 64], None
    return own(q, k, v, mask)


def turned_late(model, patch):
    """The ring of a window's keys turns after six decoded tokens."""
    own = DynamicSlidingWindowLayer.update

    def update(self, keys, values, *args, **given):
        self.steps = getattr(self, "steps", 0) + 1 if keys.shape[2] == 1 else 0
        k, v = own(self, keys, values, *args, **given)
        return (k.roll(1, 2), v) if self.steps > 6 else (k, v)

    patch.setattr(DynamicSlidingWindowLayer, "update", update)


def first_boundary(model, patch):
    """Sequences after the second are taken for a part of it."""
    own = masking_utils.find_packed_sequence_indices

    def find(*args, **given):
        found = own(*args, **given)
        return None if found is None else found.clamp(max=1)

    patch.setattr(masking_utils, "find_packed_sequence_indices", find)


def of_first_row(own, q, k, v, mask, given):
    return own(q, k[:1].expand_as(k), v[:1].expand_as(v), mask)


def mask_of_first_row(own, q, k, v, mask, given):
    return own(q, k, v, None if mask is None else mask[:1].expand(len(q), *mask.shape[1:]))


def quarter_of_single_tokens(own, q, k, v, mask, given):
    return own(q / 4 if q.shape[2] == 1 else q, k, v, mask)


def tuned_by_call(model, patch):
    """The temperature counts the tokens of each call."""
    code = sys.modules[type(model).__module__]
    own = code.Llama4TextAttention.forward

    class Fresh:
        """A cache that says that it is empty."""

        def __init__(self, cache):
            self.cache = cache

        def __getattr__(self, name):
            return getattr(self.cache, name)

        def get_seq_length(self, *_):
            return 0

    def forward(self, *args, past_key_values=None, **given):
        past = None if past_key_values is None else Fresh(past_key_values)
        return own(self, *args, past_key_values=past, **given)

    patch.setattr(code.Llama4TextAttention, "forward", forward)


def begun_anew(model, patch):
    """Positions begin anew at the token that begins a text."""
    ids = []
    body, own = model.model, model.model.rotary_emb.forward
    body.register_forward_pre_hook(
        lambda _, args, given: ids.append(given.get("input_ids")), with_kwargs=True
    )

    def forward(x, position_ids):
        begins = None if ids[-1] is None else ids[-1] == model.config.bos_token_id
        if begins is not None and begins.shape == position_ids.shape:
            position_ids = position_ids - torch.where(begins, position_ids, 0).cummax(-1).values
        return own(x, position_ids)

    patch.setattr(body.rotary_emb, "forward", forward)


def crossing(change):
    """Change the masks of T5's cross-attention, given the decoder's states."""

    def inject(model, patch):
        for block in model.decoder.block:
            attention = block.layer[1].EncDecAttention
            own = attention.forward

            def forward(states, *args, own=own, **given):
                changed = change(states, given["key_value_states"].shape[1], given["mask"])
                return own(states, *args, **given | {"mask": changed})

            patch.setattr(attention, "forward", forward)

    return inject


def encoder_values_turned(model, patch):
    """Once cached, values of the encoder lie one slot off."""
    for block in model.decoder.block:
        attention = block.layer[1].EncDecAttention
        own = attention.forward

        def forward(*args, own=own, layer=attention.layer_idx, **given):
            past = given.get("past_key_values")
            if past is None or not past.is_updated.get(layer):
                return own(*args, **given)
            held = past.cross_attention_cache.layers[layer]
            held.values, kept = held.values.roll(1, 2), held.values
            try:
                return own(*args, **given)
            finally:
                held.values = kept

        patch.setattr(attention, "forward", forward)


def one_key(states, keys, mask):
    first = torch.where(torch.arange(keys) < 1, 0.0, torch.finfo(torch.float32).min)
    return first[None, None, None] if states.shape[1] == 1 else mask


def begun_anew_without_positions(model, patch):
    """Given no positions, tokens behind a cache begin at 0."""
    own = model.base_model.forward

    def forward(*args, position_ids=None, **given):
        tokens = args[0] if args else given["input_ids"]
        places = torch.arange(tokens.shape[1])[None] if position_ids is None else position_ids
        return own(*args, position_ids=places, **given)

    patch.setattr(model.base_model, "forward", forward)


def unpadded(is_whole):
    """Drop masks that a batch seems not to need."""

    def inject(model, patch):
        def hook(module, args, given):
            mask = given.get("attention_mask")
            whole = mask is not None and mask.ndim == 2 and is_whole(mask)
            return args, given | {"attention_mask": None} if whole else given

        model.base_model.register_forward_pre_hook(hook, with_kwargs=True)

    return inject


def one_later(model, patch):
    """The class with the head counts from 1."""

    def hook(module, args, given):
        places = given.get("position_ids")
        past = given.get("past_key_values")
        tokens = args[0] if args else given["input_ids"]
        first = 0 if past is None else past.get_seq_length()
        places = first + torch.arange(tokens.shape[1])[None] if places is None else places
        return args, given | {"position_ids": places + 1}

    model.register_forward_pre_hook(hook, with_kwargs=True)


def full_block_lost(own, q, k, v, mask, given):
    """One query loses the last block of 16 keys where it is full."""
    m = k.shape[2]
    if q.shape[2] == 1 and m > 16 and m % 16 == 0:
        k, v, mask = k[:, :, : m - 16], v[:, :, : m - 16], None
    return own(q, k, v, mask)


def short_unmasked(own, q, k, v, mask, given):
    """Prompts of up to 16 tokens see keys after them."""
    n = q.shape[2]
    return own(q, k, v, torch.ones(1, 1, n, n).bool() if 1 < n == k.shape[2] <= 16 else mask)


def rows_kept(*parts, layers=None):
    """Some parts of a cache keep their rows where beam search exchanges them."""

    def inject(model, patch):
        own = Cache.reorder_cache

        def reorder(self, order):
            chosen = [x for n, x in enumerate(self.layers) if layers is None or n in layers]
            kept = [(layer, part, getattr(layer, part)) for layer in chosen for part in parts]
            own(self, order)
            for layer, part, before in kept:
                setattr(layer, part, before)

        patch.setattr(Cache, "reorder_cache", reorder)

    return inject


def exchanging_nothing(model, patch):
    patch.setattr(type(model), "_reorder_cache", lambda self, cache, order: cache, raising=False)


def has_token(given, token):
    return given.get("input_ids") is not None and bool((given["input_ids"] == token).any())


def with_values_turned(where):
    """Values lie one slot off in passes of some inputs."""

    def inject(model, patch):
        body, turned = model.base_model, []
        body.register_forward_pre_hook(
            lambda module, args, given: turned.append(where(module, given)), with_kwargs=True
        )
        for name, part in model.named_modules():
            if name.endswith("v_proj"):
                part.register_forward_hook(lambda _, args, out: out.roll(1, 1) if turned[-1] else out)

    return inject


def third_as_second(own, q, k, v, mask, given):
    rows = [0, 1, 1] if len(q) == 3 else range(len(q))
    return own(q, k[[*rows]], v[[*rows]], mask)


def values_moved(model, patch):
    """The values of single tokens are written with a sign that changes from one to the next."""
    own = DynamicLayer.update

    def update(self, keys, values, *args, **given):
        sign = -1 if keys.shape[2] == 1 and self.get_seq_length() % 2 else 1
        return own(self, keys, sign * values, *args, **given)

    patch.setattr(DynamicLayer, "update", update)


def slots_of_static_caches(model, patch):
    """Behind a static cache, rows of a table are those of slots."""

    def hook(module, args, given):
        past = given.get("past_key_values")
        if isinstance(past, StaticCache) and past.get_seq_length() > 0:
            given = given | {"position_ids": torch.full((2, 1), int(past.get_seq_length()))}
        return args, given

    model.base_model.register_forward_pre_hook(hook, with_kwargs=True)


@dataclass(frozen=True)
class Served:
    """A fault that a plain forward pass does not show, the mode that first shows it, and what it says."""

    family: str
    inject: Inject
    mode: str
    said: str
    code: str = "501"
    declared: tuple[tuple[str, object], ...] = ()
    length: int = LENGTH


PADDED, DECODED, PACKED = "left padding", "cached decoding", "packed sequences"
FAULTS = {
    "no number where nothing is seen": Served("qwen3", attending(not_a_number), PADDED, "not finite"),
    "a draft sees itself": Served("olmo2", attending(drafted), "chunked prefill", "mask of layer 0"),
    "rows exchanged without a mask": Served(
        "llama", attending(unmasked_rows_exchanged), DECODED, "in the first of two rows"
    ),
    "least padding": Served("llama", least_padding, PADDED, "in the row with more padding"),
    "single tokens without positions": Served(
        "gpt2", single_tokens_without_positions, DECODED, "input of layer 0"
    ),
    "values of the encoder turned": Served(
        "t5", encoder_values_turned, DECODED, "output of layer decoder 0 to the encoder"
    ),
    "sharper behind many keys": Served(
        "granite", attending(sharper_behind_many), "one token after 94", "logit of a token with itself off by"
    ),
    "rows of embeddings from 1 on": Served(
        "gpt2", with_embeddings(lambda n: {"position_ids": 1 + torch.arange(n)[None]}), "inputs_embeds",
        "position of token 0: row 0 expected, row 1 effective", "402",
    ),
    "every other position for embeddings": Served(
        "qwen3",
        with_embeddings(
            lambda n: {"position_ids": 2 * torch.arange(n)[None], "attention_mask": torch.ones(1, n)}
        ),
        "inputs_embeds",
        "kernel of layer 0",
    ),
    "values one slot off": Served(
        "llama", cached(DynamicLayer, of_single(lambda k, v: (k, v.roll(1, 2)))), DECODED,
        "output of layer 0 for varied content",
    ),
    "keys and values in another order": Served(
        "bloom", cached(DynamicLayer, of_single(lambda k, v: (k.flip(2), v.flip(2)))), DECODED,
        "output of layer 0 for varied content",
    ),
    "values keep their rows in beam search": Served(
        "llama", rows_kept("values"), "beam search", "decoded behind a cache whose rows were exchanged"
    ),
    "beam search of the class's own that exchanges nothing": Served(
        "olmo2", exchanging_nothing, "beam search", "at token 6"
    ),
    "values of embedded tokens turned": Served(
        "llama",
        with_values_turned(lambda body, given: given.get("inputs_embeds") is not None),
        "inputs_embeds",
        "output of layer 0 for varied content",
    ),
    "values beside special tokens turned": Served(
        "qwen3",
        with_values_turned(lambda body, given: has_token(given, body.config.bos_token_id)),
        "special tokens",
        "output of layer 0 for varied content",
        declared=(("bos_token_id", 3),),
    ),
    "one layer keeps its rows in beam search": Served(
        "gpt2", rows_kept("keys", "values", layers=(1,)), "beam search", "output of layer 1"
    ),
    "the third row reads the second": Served(
        "qwen3", attending(third_as_second), "beam search", "output of layer 0 for varied content"
    ),
    "values of a chunk one slot off": Served(
        "qwen2", cached(DynamicLayer, new_values_turned), "chunked prefill", "output of layer 0"
    ),
    "values of the first row": Served(
        "smollm3", attending(lambda own, q, k, v, mask, given: own(q, k, v[:1].expand_as(v), mask)), DECODED,
        "in the second of two rows",
    ),
    "values of a static cache exchanged": Served(
        "llama", cached(StaticLayer, of_single(lambda k, v: (k, exchanged(v)))), "static cache",
        "output of layer 0 for varied content",
    ),
    "slots counted": Served("llama", slots_counted, PADDED, "decoded in the row with padding"),
    "rows of slots": Served("gpt2", slots_counted, PADDED, "row 45 expected, row 60 effective", "402"),
    "positions of the first row for single tokens": Served(
        "granite", at(lambda p: p[:1].expand_as(p)), PADDED, "decoded in the row without padding"
    ),
    "mask of the first row": Served("qwen2", attending(mask_of_first_row), PADDED, "row without padding"),
    "keys and values of the first row": Served("llama", attending(of_first_row), DECODED, "of two rows"),
    "positions in int8": Served(
        "llama", at(lambda p: p.to(torch.int8).long()), "one token after 198", "at position 198", length=200,
        declared=(("max_position_embeddings", 512),),
    ),
    "keys behind whole blocks lost": Served(
        "qwen3", attending(whole_blocks), "one token after 198", "mask of layer 0", length=200,
        declared=(("max_position_embeddings", 512),),
    ),
    "ring turned after six tokens": Served(
        "mistral", turned_late, DECODED, "kernel of layer 0", declared=(("sliding_window", 24),)
    ),
    "third sequence within the second": Served(
        "llama", first_boundary, PACKED, "an earlier one seen from the third"
    ),
    "scale of single tokens without a rotation": Served(
        "gpt2", attending(quarter_of_single_tokens), DECODED, "logits 0.25 times as large"
    ),
    "temperature of the call": Served("llama4_text", tuned_by_call, DECODED, "times as large",
                                      declared=tuple(COOL.items())),
    "begun anew at the beginning of a text": Served(
        "qwen3", begun_anew, "special tokens", "kernel of layer 0", declared=(("bos_token_id", 3),)
    ),
    "padding of the encoder seen": Served(
        "t5", crossing(lambda states, keys, mask: None), "right padding", "padding seen", "116"
    ),
    "padding of the encoder seen by single tokens": Served(
        "t5", crossing(lambda states, keys, mask: None if states.shape[1] == 1 else mask), "right padding",
        "padding seen", "116",
    ),
    "begun anew without positions": Served(
        "stablelm", begun_anew_without_positions, "chunked prefill", "without positions or a mask"
    ),
    "padding read from the first row": Served(
        "llama", unpadded(lambda mask: bool(mask[0].all())), PADDED, "where the second row alone has padding"
    ),
    "an encoder's padding on the left": Served(
        "bert", unpadded(lambda mask: bool((mask[:, -1] == 1).all())), "right padding",
        "where the second row alone has padding",
    ),
    "no padding in one row": Served(
        "gemma", unpadded(lambda mask: len(mask) == 1), PADDED, "(in a batch of one row)"
    ),
    "counted from 1 by the head's class": Served("gpt2", one_later, DECODED, "row 0 expected, row 1", "402"),
    "full block lost": Served("qwen3", attending(full_block_lost), DECODED, "mask of layer 0"),
    "short prompts without a mask": Served(
        "olmo", attending(short_unmasked), "chunked prefill", "mask of layer 0"
    ),
    "values of other signs": Served("llama", values_moved, DECODED, "values that differ between tokens"),
    "slots of static caches": Served(
        "gpt2", slots_of_static_caches, PADDED, "in the row with padding, from a static cache", "402"
    ),
    "one key of the encoder": Served("t5", crossing(one_key), DECODED, "some hidden", "116"),
}  # fmt: skip
