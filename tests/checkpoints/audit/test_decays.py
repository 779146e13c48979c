"""Decays of linear attention: unmodified models match, and what is wrong is named by layer and head."""

import json
import types

import pytest
import torch
import transformers
from tests.checkpoints.audit.injections import decaying
from tests.checkpoints.audit.zoo import DTYPES, in_precision

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.cli import main

LENGTH = 96
TYPES = ["full_attention", *["linear_attention"] * 3]
LINEAR = (1, 2, 3)


def minimax(block_size=16, dtype="float32", **changes):
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 2,
        "max_position_embeddings": 256,
        "layer_types": TYPES,
    }
    torch.manual_seed(0)
    config = transformers.MiniMaxConfig(**(sizes | {"block_size": block_size} | changes))
    return in_precision(transformers.MiniMaxForCausalLM(config).eval(), dtype)


def linear(model, layer):
    return model.model.layers[layer].self_attn


def of_layer(number, heads=4, layers=4):
    exponents = torch.arange(1, heads + 1, dtype=torch.float64)
    return (2 ** (-8 * exponents / heads) * (1 - number / (layers - 1))).float()


def one_head(rates, _):
    return rates * torch.tensor([1.0, 1.0, 3.0, 1.0])


def block_by_block(model, patch):
    """The state is not handed on to the next block."""
    for layer in LINEAR:
        module = linear(model, layer)
        module.query_decay = torch.zeros_like(module.query_decay)


def both_ways(model, patch):
    for layer in LINEAR:
        module = linear(model, layer)
        lag = torch.arange(module.block_size)
        module.diagonal_decay = torch.exp(-module.slope_rate * (lag[:, None] - lag).abs())[None]


def growing(model, patch):
    module = linear(model, 1)
    rates, lag = module.slope_rate, torch.arange(module.block_size)
    module.slope_rate = -rates
    module.query_decay, module.key_decay, _ = module.decay_factors(-rates)
    module.diagonal_decay = torch.exp(rates * (lag[:, None] - lag)).tril()[None]


def other_ratio(model, patch):
    """With blocks longer than the text, this rate is only used behind a cache."""
    linear(model, 1).slope_rate = 2 * linear(model, 1).slope_rate


# By name: what is injected, the size of blocks, the layers and heads found, the code, a part of the message.
FAULTS = {
    "rates of the layer before": (
        decaying(lambda rates, layer: of_layer(layer - 1), LINEAR), 16, {1, 2, 3}, {None}, "SPE304",
        "the rates of layer",
    ),
    "no factor of the layer": (
        decaying(lambda rates, layer: of_layer(0), (1,)), 16, {1}, {None}, "SPE304", "the rates of layer 0",
    ),
    "sign lost": (growing, 16, {1}, {None}, "SPE304", "weights grow with the lag"),
    "heads in the opposite order": (
        decaying(lambda rates, layer: rates.flip(0), (1, 2)), 16, {1, 2}, {None}, "SPE304",
        "another order of heads",
    ),
    "slower": (
        decaying(lambda rates, layer: rates * 0.6, (1,)), 16, {1}, {None}, "SPE304", "all heads, 0.6",
    ),
    "one head faster": (decaying(one_head, (1,)), 16, {1}, {2}, "SPE304", "decay of head 2"),
    "state lost between blocks": (
        block_by_block, 16, {1, 2, 3}, {None}, "SPE304",
        "decay over the lag: exp(-rate × lag) declared, none at lag",
    ),
    "later keys seen": (both_ways, 256, {1, 2, 3}, {None}, "SPE201", "past and future keys effective"),
    "other rate behind a cache": (
        other_ratio, 256, {1}, {None}, "SPE304", "decay in cached decoding",
    ),
}  # fmt: skip


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.mark.sampled
@pytest.mark.parametrize("block_size", [16, 256])
def test_an_unmodified_model_matches(dtype, block_size):
    found = audit(minimax(block_size, dtype), length=LENGTH, serving_modes=None)
    assert [(where, str(finding)) for where, finding in found.findings] == []
    assert found.ok
    assert found.without == ()
    assert [(one.layer, one.verdict, one.cached) for one in found.decays] == [
        (layer, "matches", True) for layer in LINEAR
    ]


def test_rates_are_those_of_the_paper_and_of_the_code():
    model = minimax()
    for one in audit(model, length=LENGTH).decays:
        wanted = of_layer(one.layer)
        assert one.effective == pytest.approx(wanted.tolist(), rel=1e-4, abs=1e-5)
        assert one.declared == pytest.approx(linear(model, one.layer).slope_rate.flatten().tolist(), rel=1e-4)
        assert one.reach == LENGTH - 1


def test_heads_that_are_no_power_of_two_have_one_progression():
    model = minimax(num_attention_heads=6, num_key_value_heads=2)
    found = audit(model, length=LENGTH)
    assert found.ok
    assert found.decays[0].effective[0] == pytest.approx(2 ** (-8 / 6) * 2 / 3, rel=1e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_fault_is_named(name, precision, monkeypatch):
    inject, block_size, layers, heads, code, message = FAULTS[name]
    model = minimax(block_size)
    inject(model, monkeypatch)
    found = audit(in_precision(model, precision), length=LENGTH)
    assert found.outcome == "differs"
    assert {(one.code, one.layer) for one in found.records} >= {(code, layer) for layer in layers}
    assert {one.layer for one in found.records} == layers
    assert {one.head for one in found.records} == heads
    assert any(message in one.message for one in found.records)
    assert all("linear attention" in one.impact.reason for one in found.records)


def test_a_layer_that_reads_nothing_of_its_own_key_cannot_be_told():
    model = minimax()
    linear(model, 1).diagonal_decay = torch.zeros_like(linear(model, 1).diagonal_decay)
    found = audit(model, length=LENGTH)
    assert [one.verdict for one in found.decays] == ["cannot tell", "matches", "matches"]
    assert found.outcome == "incomplete"
    assert "layer 1: a head reads nothing of a key at the query's own position" in str(found)


def test_a_model_without_a_cache_is_audited_without_it(monkeypatch):
    model = minimax()
    cached = model.model.forward

    def forward(self, *args, use_cache=None, **given):
        if use_cache:
            raise ValueError("no cache")
        return cached(*args, use_cache=use_cache, **given)

    monkeypatch.setattr(model.model, "forward", types.MethodType(forward, model.model))
    found = audit(model, length=LENGTH)
    assert [one.cached for one in found.decays] == [False] * 3
    assert [one.verdict for one in found.decays] == ["matches"] * 3


def test_serving_modes_that_are_skipped_leave_the_cache_out():
    assert [one.cached for one in audit(minimax(), length=LENGTH, serving_modes=False).decays] == [False] * 3


def test_the_model_is_left_as_it_was():
    model = minimax()
    tokens = torch.tensor([[3, 4, 5]])
    before = model(tokens).logits
    audit(model, length=LENGTH)
    torch.testing.assert_close(model(tokens).logits, before)
    assert "forward" not in vars(linear(model, 1).qkv_proj)


def test_layers_keep_their_numbers_and_rates_in_a_slice(tmp_path):
    minimax().save_pretrained(tmp_path)
    found = audit(open_model(tmp_path, layers=slice(0, 2)), length=LENGTH, serving_modes=False)
    assert [(one.layer, one.verdict) for one in found.decays] == [(1, "matches")]
    assert [(one.layer, one.verdict) for one in found.layers] == [(0, "matches")]


def test_the_command_shows_and_writes_these_layers_in_their_places(tmp_path, capsys):
    minimax().save_pretrained(tmp_path / "model")
    page = tmp_path / "audit.html"
    assert main(["audit", str(tmp_path / "model"), "--length", "96", "--out", str(page)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 relative decay, rates 0.1667 … 0.002604 causal matches" in printed
    assert "In linear attention (layers 1, 2, 3)" in printed
    assert "decay, rates 0.1667 … 0.002604" in page.read_text()


def test_the_record_serialises():
    (one, *_) = json.loads(json.dumps(audit(minimax(), length=LENGTH).to_dict()))["decays"]
    assert one.keys() == {
        "module", "layer", "effective", "declared", "verdict", "findings", "reason", "reach", "cached",
    }  # fmt: skip


def test_the_frame_has_a_row_for_every_layer():
    frame = audit(minimax(), length=LENGTH, serving_modes=False).to_frame()
    assert frame["layer"].to_list() == ["0", "1", "2", "3"]
    assert frame["effective"].to_list()[0].startswith("rotary")


def test_positions_restart_in_chunks_where_the_first_layer_is_linear():
    """The library's cache counts the keys of layer 0, which has none; so do masks behind padding."""
    model = minimax(layer_types=["linear_attention", "full_attention", *["linear_attention"] * 2])
    found = audit(model, length=LENGTH)
    wrong = {"serving mode chunked prefill", "serving mode left padding"}
    assert {where for where, _ in found.findings} == wrong
    assert {one.verdict for one in found.decays} == {"matches"}
    tokens = torch.arange(4, 36)[None]
    with torch.no_grad():
        whole, first = model(tokens).logits, model(tokens[:, :11], use_cache=True)
        second = model(tokens[:, 11:], past_key_values=first.past_key_values, use_cache=True).logits
    assert first.past_key_values.get_seq_length() == 0
    torch.testing.assert_close(first.logits, whole[:, :11])
    assert (second - whole[:, 11:]).abs().max() > 1e-3
