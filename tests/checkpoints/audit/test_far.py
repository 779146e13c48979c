"""Positions and windows beyond an audit's length: faults there are found, and sound models pass."""

import json
import re
import sys

import pytest
import torch
from tests.checkpoints.audit.families import BLOOM, GPT2, GROUPED, LLAMA4, ROPES, build, llama
from tests.checkpoints.audit.injections import attending
from tests.checkpoints.audit.zoo import in_precision
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.text import closing, not_checked
from spectrope.checkpoints.probes.far import MOST, WHOLE, chosen_positions, whole_length

LENGTH = 64
LLAMA3 = ROPES["llama3"] | {"original_max_position_embeddings": 8192}
LONG = ROPES["longrope"] | {"factor": None, "original_max_position_embeddings": 4096}
CHUNKED = GROUPED | LLAMA4 | {"max_position_embeddings": 131072, "attention_chunk_size": 8192}


def mistral(**changes):
    return build("Mistral", **GROUPED | {"max_position_embeddings": 32768, "sliding_window": 4096} | changes)


def phi3():
    return build(
        "Phi3",
        **GROUPED | {"max_position_embeddings": 131072},
        original_max_position_embeddings=4096,
        rope_parameters=dict(LONG),
    )


def roformer():
    """A rotary model whose code takes no positions."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return build("RoFormer", vocab_size=64, is_decoder=True, max_position_embeddings=1536, **sizes)


SOUND = {
    "a million positions": lambda: llama(max_position_embeddings=1048576),
    "Llama 3": lambda: llama(max_position_embeddings=131072, rope_parameters=dict(LLAMA3)),
    "two lists of factors": phi3,
    "a long window": mistral,
    "chunks and a temperature": lambda: build("Llama4", config="TextConfig", **CHUNKED),
    "no positions taken": roformer,
    "both kinds of layers": lambda: build(
        "Gemma3",
        config="TextConfig",
        **GROUPED | {"max_position_embeddings": 32768, "head_dim": 16, "sliding_window": 1024},
        layer_types=["sliding_attention", "full_attention"],
    ),
}


def placed(change):
    """Rotary modules get other positions."""

    def inject(model, patch):
        for module in model.modules():
            if type(module).__name__.endswith("RotaryEmbedding"):
                own = module.forward
                module.forward = lambda x, position_ids, own=own, **k: own(x, change(position_ids), **k)

    return inject


def windowless(model, patch):
    code = sys.modules[type(model).__module__]
    patch.setattr(code, "create_sliding_window_causal_mask", code.create_causal_mask)


def other_floor(model, patch):
    for module in model.modules():
        if hasattr(module, "floor_scale"):
            module.floor_scale = 16384


FAULTS = {
    "a table that ends": ("Llama 3", placed(lambda p: p.clamp(max=4095)), "SPE111", "stay at 4095"),
    "restarts": ("a million positions", placed(lambda p: p % 512), "SPE111", "restart every 512 tokens"),
    "wraps within the window": ("a long window", placed(lambda p: p % 4096), "SPE111", "restart every 4096"),
    "positions in low precision": (
        "Llama 3",
        placed(lambda p: p.bfloat16()),
        "SPE106",
        "as when computed in low precision: bfloat16 positions rounded",
    ),
    "window dropped": (
        "a long window",
        windowless,
        "SPE202",
        "causal window 4096 declared, causal effective",
    ),
    "floor of a temperature": (
        "chunks and a temperature",
        other_floor,
        "SPE403",
        "grows 1.0693 times declared",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", SOUND)
def test_sound_models_pass_up_to_their_declared_length(name):
    model = SOUND[name]()
    found = audit(model, length=LENGTH)
    assert found.findings == []
    assert found.far.unchecked == ()
    assert found.far.positions[-1] == model.config.max_position_embeddings - 1
    assert len(found.far.positions) <= 2 * MOST


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_beyond_the_audited_length_is_named(name, monkeypatch):
    family, inject, code, text = FAULTS[name]
    model = SOUND[family]()
    inject(model, monkeypatch)
    assert audit(model, length=LENGTH, reach=False).findings == []
    found = audit(model, length=LENGTH)
    assert {one.code for one in found.records} == {code}
    assert text in str(found)
    assert found.records[0].impact.reason == "no plain pass over the audited length shows it"


def test_a_restart_is_named_where_no_positions_are_taken():
    model = roformer()
    table = model.roformer.encoder.embed_positions
    own = table.forward
    table.forward = lambda *a, **k: own(*a, **k)[torch.arange(a[0][1]) % 512]
    assert audit(model, length=LENGTH, reach=False).findings == []
    found = audit(model, length=LENGTH)
    assert {one.code for one in found.records} == {"SPE111"}
    assert "restart every 512 tokens" in str(found)


BART = {"d_model": 64, "decoder_layers": 2, "decoder_attention_heads": 4, "max_position_embeddings": 128}
TABLES = {
    "learned": lambda: build("GPT2", "LMHeadModel", **GPT2),
    "learned, from row 2": lambda: build("Bart", vocab_size=64, **BART),
    "computed": lambda: build("Marian", vocab_size=64, pad_token_id=0, decoder_start_token_id=1, **BART),
}


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_tables_are_looked_at_up_to_the_declared_length(table):
    found = audit(TABLES[table](), length=LENGTH)
    assert found.ok
    assert [one.length for one in found.absolutes] == [128]
    seen = "except in the embeddings' tables, up to position 127;"
    assert f"Not checked: positions from 64 on, {seen}" in closing(found)


def test_a_table_with_rows_for_fewer_positions_than_declared_is_read_to_its_end_and_differs():
    model = build("GPT2", "LMHeadModel", **GPT2 | {"n_positions": 100})
    model.config.n_positions = 128
    found = audit(model, length=LENGTH)
    assert [(one.length, one.verdict) for one in found.absolutes] == [(100, "differs")]
    (record,) = found.records
    assert (record.code, record.declared, record.effective) == (
        "SPE401",
        "a table of 128 positions",
        "rows of 100 positions",
    )
    assert record.impact.reason == "no plain pass over the audited length shows it"
    model.config.n_positions = 100
    assert audit(model, length=LENGTH).ok


@pytest.mark.parametrize("position", [0, 60, 99])
def test_a_later_row_that_is_wrong_is_told_before_the_rows_that_are_missing(position):
    model = build("GPT2", "LMHeadModel", **GPT2 | {"n_positions": 100})
    model.config.n_positions = 128
    own = model.transformer.wpe.forward
    model.transformer.wpe.forward = lambda rows: own(rows.where(rows != position, 30))
    (record,) = audit(model, length=LENGTH).records
    assert record.code == "SPE111"


def test_rows_that_stay_beyond_the_audited_length_are_named():
    model = build("GPT2", "LMHeadModel", **GPT2)
    own = model.transformer.wpe.forward
    model.transformer.wpe.forward = lambda positions: own(positions.clamp(max=99))
    assert audit(model, length=LENGTH, reach=False).ok
    found = audit(model, length=LENGTH)
    assert [one.code for one in found.records] == ["SPE111"]
    assert "stay at 99 from token 99 on" in str(found)


def test_a_pass_over_all_positions_is_shorter_where_attention_is_computed():
    assert whole_length(llama(), 10**6) == WHOLE
    assert whole_length(llama(), 100) == 100
    mpt = build("Mpt", d_model=64, n_layers=2, n_heads=8, vocab_size=64)
    assert 1024 < whole_length(mpt, 10**6) < WHOLE


def test_ends_of_windows_are_looked_at_behind_a_cache():
    assert audit(SOUND["a long window"](), length=LENGTH).far.windows == (4096,)
    assert audit(SOUND["chunks and a temperature"](), length=LENGTH).far.windows == (8192,)


@pytest.mark.parametrize("window", [1024, 4096])
def test_a_window_that_the_function_forgets_for_single_tokens_is_named(window, monkeypatch):
    """It gets the mask, and leaves it out."""
    model = mistral(sliding_window=window)

    def forgetful(own, q, k, v, mask, given):
        return own(q, k, v, None if q.shape[2] == 1 else mask)

    attending(forgetful)(model, monkeypatch)
    found = audit(model, length=LENGTH, serving_modes=False)
    said = f"mask: causal window {window} declared, causal effective (looked at behind {window + 2} tokens"
    assert [where for where, _ in found.findings] == ["layer 0", "layer 1"]
    assert all(str(finding).startswith(said) for _, finding in found.findings)


def test_what_was_not_looked_at_is_said():
    found = audit(mistral(sliding_window=20000, max_position_embeddings=4096), length=LENGTH)
    assert found.far.unchecked == ("what changes after 20000 tokens",)
    assert audit(build("Bloom", **BLOOM), length=LENGTH).far.positions == ()


def test_the_closing_line_counts_what_was_looked_at_beyond():
    found = audit(mistral(), length=LENGTH)
    beyond = sum(position >= LENGTH for position in found.far.positions)
    said = f"positions from 64 on, except {beyond} chosen ones up to 32767; passes of more than 64 tokens;"
    assert f"Not checked: {said}" in closing(found)
    assert "Not checked: positions from 64 on;" in closing(audit(mistral(), length=LENGTH, reach=False))


def test_json_holds_what_was_looked_at():
    values = json.loads(json.dumps(audit(mistral(), length=LENGTH).to_dict()))
    assert values["far"]["windows"] == [4096]
    assert "findings" not in values["far"]


def test_positions_are_few_and_lie_around_boundaries():
    positions = chosen_positions([4096, 8192], 512, 131072)
    assert {0, 4095, 4096, 4097, 8191, 131071} <= set(positions)
    assert len(positions) <= MOST
    assert positions == sorted(set(positions))
    assert torch.tensor(positions).max() < 131072


def turned(change, reach=128):
    """Queries and keys turn otherwise in calls that reach a position."""

    def inject(model, patch):
        own, last = modeling_llama.apply_rotary_pos_emb, []
        rotary = model.model.rotary_emb
        forward = rotary.forward

        def noted(x, position_ids, *args, **options):
            last[:] = [position_ids]
            return forward(x, position_ids, *args, **options)

        def apply(q, k, cos, sin, *args, **options):
            right = own(q, k, cos, sin, *args, **options)
            return change(*right, q, k, last[0]) if int(last[0].max()) >= reach else right

        rotary.forward = noted
        patch.setattr(modeling_llama, "apply_rotary_pos_emb", apply)

    return inject


def adjacent(x, positions):
    frequencies = 1e4 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = positions[:, None, :, None] * frequencies
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(z).flatten(-2)


def one_ahead(x, positions):
    d = x.shape[-1]
    frequencies = 1e4 ** (-torch.arange(0, d, 2) / d)
    angles = ((positions + 1)[:, None, :, None] * frequencies).repeat(1, 1, 1, 2)
    other = torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1)
    return x * angles.cos() + other * angles.sin()


def longer(q, positions):
    return q * ((positions + 1).clamp(min=128).log() / torch.tensor(128.0).log())[:, None, :, None]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (lambda q, k, a, b, p: (adjacent(a, p), adjacent(b, p)), "SPE104", "halves declared, adjacent"),
        (lambda q, k, a, b, p: (1.5 * q, 1.5 * k), "SPE103", "attention factor: 1 declared, 1.5 effective"),
        (
            lambda q, k, a, b, p: (1.5 * q, k),
            "SPE403",
            "query scale: that of a short sequence",
        ),
        (lambda q, k, a, b, p: (q, 1.5 * k), "SPE403", "1.5 times that effective"),
        (lambda q, k, a, b, p: (q, one_ahead(b, p)), "SPE108", "position of keys: those of the tokens"),
        (
            lambda q, k, a, b, p: (longer(q, p), k),
            "SPE403",
            "grows 1.0016 times effective (from",
        ),
    ],
)
def test_a_rotation_that_changes_in_longer_sequences_is_named(change, code, said, monkeypatch):
    model = llama(max_position_embeddings=512)
    turned(change)(model, monkeypatch)
    assert audit(model, length=LENGTH, reach=False).ok
    found = audit(model, length=LENGTH).records
    assert [(one.code, one.layer) for one in found] == [(code, 0), (code, 1)]
    assert said in found[0].message


def from_position(at, x, other, positions):
    return torch.where((positions >= at)[:, None, :, None], other, x)


def one_head(x, other):
    return torch.cat([x[:, :1], other[:, 1:2], x[:, 2:]], 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, a, b, p: (q, from_position(100, k, b, p)), "positions of keys alone: .* are 0 from"),
        (
            lambda q, k, a, b, p: (one_head(q, from_position(100, q, a, p)), k),
            "positions of queries of head 1: .* are 0 from token",
        ),
        (
            lambda q, k, a, b, p: (q, one_head(k, from_position(100, k, one_ahead(b, p), p))),
            "positions of keys of key-value head 1: .* are 1 ahead from token",
        ),
        (
            lambda q, k, a, b, p: tuple(
                from_position(100, x, one_ahead(y, p), p) for x, y in ((q, a), (k, b))
            ),
            "positions: those of the tokens declared, are 1 ahead from token",
        ),
    ],
)
def test_the_heads_that_turn_otherwise_beyond_a_position_are_named(change, said, monkeypatch):
    model = llama(max_position_embeddings=512)
    turned(change)(model, monkeypatch)
    found = audit(model, length=LENGTH).records
    assert [(one.code, one.layer) for one in found] == [("SPE111", 0), ("SPE111", 1)]
    assert re.match(said, found[0].message)


MANY = {"hidden_size": 512, "num_attention_heads": 32, "num_key_value_heads": 8}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, a, b, p: (q, one_head(k, from_position(256, k, b, p))), "keys of key-value head 1"),
        (lambda q, k, a, b, p: (one_head(q, from_position(256, q, a, p)), k), "queries of head 1"),
    ],
)
def test_one_head_among_many_is_named_in_every_precision(change, said, dtype, monkeypatch):
    model = in_precision(llama(max_position_embeddings=512, **MANY), dtype)
    assert audit(model, length=LENGTH, serving_modes=False).ok
    turned(change)(model, monkeypatch)
    found = audit(model, length=LENGTH, serving_modes=False).records
    assert [(one.code, one.layer) for one in found] == [("SPE111", 0), ("SPE111", 1)]
    assert all(said in one.message for one in found)


def test_a_head_with_small_queries_is_looked_at(monkeypatch):
    model = llama(max_position_embeddings=512, **MANY)
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data[16:32] *= 0.05
    turned(lambda q, k, a, b, p: (one_head(q, from_position(256, q, a, p)), k))(model, monkeypatch)
    found = audit(model, length=LENGTH, serving_modes=False).records
    assert [(one.layer, one.head) for one in found] == [(0, 1), (1, 1)]


def grown(x, positions):
    return x * (1 + positions.clamp(min=128).div(128).log())[:, None, :, None]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda q, k, a, b, p: (q, grown(k, p)), "key scale: grows 1 times declared"),
        (
            lambda q, k, a, b, p: (one_head(q, from_position(256, q, 1.2 * q, p)), k),
            "query scale of head 1: grows 1 times declared, grows 1.2 times effective",
        ),
        (
            lambda q, k, a, b, p: (q, one_head(k, from_position(256, k, 1.2 * k, p))),
            "key scale of key-value head 1: grows 1 times declared, grows 1.2 times effective",
        ),
    ],
)
def test_sizes_of_queries_and_keys_far_away_are_looked_at_by_head(change, said, monkeypatch):
    model = llama(max_position_embeddings=512)
    turned(change)(model, monkeypatch)
    assert audit(model, length=LENGTH, reach=False).ok
    found = audit(model, length=LENGTH).records
    assert [(one.code, one.layer) for one in found] == [("SPE403", 0), ("SPE403", 1)]
    assert found[0].message.startswith(said)


def test_values_that_change_far_away_are_named():
    model = llama(max_position_embeddings=512)
    rotary, places = model.model.rotary_emb, []
    own = rotary.forward

    def seen(x, position_ids):
        places[:] = [position_ids]
        return own(x, position_ids)

    rotary.forward = seen

    def without_far_ones(module, args, v):
        return v.masked_fill(places[0][..., None] >= 256, 0.0)

    for layer in model.model.layers:
        layer.self_attn.v_proj.register_forward_hook(without_far_ones)
    assert audit(model, length=LENGTH, reach=False).ok
    found = audit(model, length=LENGTH).records
    assert [(one.code, one.layer) for one in found] == [("SPE112", 0), ("SPE112", 1)]


def test_integers_that_overflow_beyond_the_audited_length_are_named(monkeypatch):
    model = llama(max_position_embeddings=4096)
    placed(lambda positions: (positions + 128) % 256 - 128)(model, monkeypatch)
    found = audit(model, length=LENGTH).records
    assert [(one.code, one.layer) for one in found] == [("SPE111", 0), ("SPE111", 1)]
    assert "overflow integers of 8 bits" in found[0].message


def dynamic():
    return llama(max_position_embeddings=128, rope_parameters=dict(ROPES["dynamic"]))


def test_a_schedule_that_should_grow_beyond_the_declared_length_is_looked_at_there(monkeypatch):
    model = dynamic()
    assert audit(model).far.positions[-1] == 2 * model.config.max_position_embeddings - 1
    assert audit(model).ok
    rotary = model.model.rotary_emb
    own = rotary.forward

    def fixed(x, position_ids):
        rotary.rope_type = "default"
        return own(x, position_ids)

    monkeypatch.setattr(rotary, "forward", fixed)
    found = audit(model).records
    assert {(one.code, one.layer) for one in found} == {("SPE102", 0), ("SPE102", 1)}


def test_steps_of_a_temperature_at_other_positions_are_named(monkeypatch):
    sizes = {"attn_temperature_tuning": True, "floor_scale": 8, "attn_scale": 0.1, "no_rope_layers": [1, 0]}
    model = build("Llama4", config="TextConfig", **CHUNKED | sizes | {"num_hidden_layers": 2})
    assert audit(model, length=LENGTH).ok
    own = torch.floor
    monkeypatch.setattr(torch, "floor", lambda x: own(x + 3 / 8) if x.ndim == 1 and len(x) > 1 else own(x))
    found = audit(model, length=LENGTH, reach=False, serving_modes=False).records
    assert [(one.code, one.layer) for one in found] == [("SPE403", 1)]


def test_a_wider_part_that_turns_in_longer_sequences_is_named(monkeypatch):
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = build("GPTNeoX", vocab_size=64, max_position_embeddings=512, **sizes)
    whole = build("GPTNeoX", vocab_size=64, max_position_embeddings=512, rotary_pct=1.0, **sizes)
    rotary, wider = model.gpt_neox.rotary_emb, whole.gpt_neox.rotary_emb
    own = rotary.forward

    def widened(x, position_ids):
        return wider(x, position_ids) if int(position_ids.max()) >= 128 else own(x, position_ids)

    rotary.forward = widened
    found = audit(model, length=LENGTH).records
    assert [one.code for one in found] == ["SPE105", "SPE105"]
    assert "coordinates 0 to 3 declared, coordinates 0 to 15 effective" in found[0].message


def test_a_layer_without_rotation_that_turns_in_longer_sequences_is_named():
    model = build("SmolLM3", **GROUPED | {"max_position_embeddings": 512}, no_rope_layers=[1, 0])
    attention, rotary = model.model.layers[1].self_attn, model.model.rotary_emb
    own = rotary.forward

    def noted(x, position_ids):
        attention.use_rope = int(position_ids.max()) >= 128
        return own(x, position_ids)

    rotary.forward = noted
    (found,) = audit(model, length=LENGTH).records
    assert (found.code, found.layer) == ("SPE110", 1)
    assert "in a sequence that reaches position 511" in found.message


@pytest.mark.parametrize("window", [40, 128])
def test_the_end_of_a_window_within_the_audited_length_is_looked_at_behind_a_cache(window, monkeypatch):
    own = modeling_mistral.create_sliding_window_causal_mask

    def lost(*args, past_key_values=None, **options):
        mask = own(*args, past_key_values=past_key_values, **options)
        if past_key_values is None or past_key_values.get_seq_length() == 0 or mask is None:
            return mask
        n, t = mask.shape[-2:]
        seen = torch.ones(n, t, dtype=torch.bool).tril(t - n).expand_as(mask)
        return seen if mask.dtype == torch.bool else mask.masked_fill(seen, 0.0)

    assert audit(mistral(sliding_window=window), length=256).far.windows == (window,)
    monkeypatch.setattr(modeling_mistral, "create_sliding_window_causal_mask", lost)
    model = mistral(sliding_window=window)
    assert audit(model, length=256, reach=False, serving_modes=False).ok
    found = audit(model, length=256).records
    assert {one.code for one in found} == {"SPE202"}
    assert f"looked at behind {window - 2} tokens in a cache" in found[0].message


def test_windows_both_ways_and_biases_beyond_the_audited_length_are_named_as_not_checked():
    sizes = GROUPED | {"head_dim": 16, "max_position_embeddings": 512, "sliding_window": 401}
    layers = {"layer_types": ["sliding_attention", "full_attention"], "use_bidirectional_attention": True}
    far = audit(build("Gemma3", config="TextConfig", **sizes, **layers), length=LENGTH).far
    assert (far.windows, far.unchecked) == ((), ("what changes after 400 tokens",))
    falcon = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": True}
    found = audit(build("Falcon", vocab_size=64, max_position_embeddings=256, **falcon), length=LENGTH)
    assert found.far.unchecked == ("biases at lags from 64 on",)
    assert "biases at lags from 64 on; " in closing(found)


@pytest.mark.parametrize(("change", "first"), [("tiled", 64), ("cut", 101)])
def test_a_table_whose_later_rows_repeat_earlier_ones_differs(change, first):
    model = build("GPT2", "LMHeadModel", **GPT2 | {"n_positions": 128})
    assert audit(model, length=LENGTH).ok
    table = model.transformer.wpe.weight.data
    if change == "tiled":
        table[64:] = table[:64].clone()
    else:
        table[100:] = 0
    (record,) = audit(model, length=LENGTH).records
    assert (record.code, record.effective) == (
        "SPE401",
        f"rows equal to earlier ones from position {first} on",
    )
    assert record.impact.reason == "the rows that the table should hold are not known"


def test_an_audit_with_findings_says_what_it_did_not_look_at(monkeypatch):
    model = mistral()
    windowless(model, monkeypatch)
    said = not_checked(audit(model, length=LENGTH))
    assert said.startswith("Not checked: positions from 64 on, except ")
    assert said.endswith("permuted rows of a projection).")
