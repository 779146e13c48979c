"""Funnel: relative positions of pooled queries and keys, in units of tokens."""

from typing import Any

import pytest
import torch
from tests.checkpoints.audit.museum import LENGTH as MUSEUM_LENGTH
from tests.checkpoints.audit.museum import NAMES
from tests.checkpoints.audit.sweep import SPECIAL, Edited, build
from tests.checkpoints.audit.zoo import DTYPES, LENGTH, in_precision
from torch import Tensor, nn
from transformers import FunnelBaseModel, FunnelConfig
from transformers.models.funnel import modeling_funnel

from spectrope.checkpoints.audit import Audit, audit
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.places import place_of, places_of
from spectrope.core import ConfigError

STRUCTURE, ATTENTION = modeling_funnel.FunnelAttentionStructure, modeling_funnel.FunnelRelMultiheadAttention
BLURRED = "factorized positions, whose angles are computed in low precision, give equal lags other logits"
LARGER = 3.0  # Factor on the weights, under which relative terms are not small beside other logits.


def model_of(fields: dict[str, Any] | None = None, dtype: str = "float32") -> nn.Module:
    model = build(Edited("funnel", "", fields or {}))
    for weights in model.parameters():
        if weights.ndim > 1:
            weights.data.mul_(LARGER)
    return in_precision(model, dtype)


def heard(found: Audit) -> dict[str, list[str]]:
    """What is found, by layer."""
    said: dict[str, list[str]] = {}
    for where, finding in found.findings:
        said.setdefault(where.removeprefix("layer "), []).append(str(finding))
    return said


def declaration(**fields: Any) -> Declaration:
    return Declaration(FunnelConfig(**fields).to_dict(), {})


@pytest.mark.parametrize(
    ("module", "queries", "keys", "fields"),
    [
        ("encoder.blocks.0.1.attention", [*range(9)], [*range(9)], {}),
        ("encoder.blocks.1.0.attention", [0, 1, 3, 5, 7], [*range(9)], {}),
        ("encoder.blocks.1.1.attention", [0, 1, 3, 5, 7], [0, 1, 3, 5, 7], {}),
        ("encoder.blocks.2.0.attention", [0, 1, 5], [0, 1, 3, 5, 7], {}),
        ("encoder.blocks.2.0.attention", [0, 1, 5], [0, 1, 5], {"pool_q_only": False}),
        ("encoder.blocks.2.0.attention", [0, 4, 8], [0, 2, 4, 6, 8], {"separate_cls": False}),
        ("encoder.blocks.2.0.attention", [0, 1, 5], [0, 1, 3, 5, 7], {"truncate_seq": False}),
        ("decoder.layers.1.attention", [*range(9)], [*range(9)], {}),
    ],
)
def test_positions_are_those_of_the_paper(module, queries, keys, fields):
    places = places_of(declaration(**fields), module, 9)
    assert places.queries.tolist() == queries
    assert places.keys.tolist() == keys
    assert places.apart == (fields.get("separate_cls") is not False)


def test_layers_are_counted_through_all_blocks():
    named = declaration(block_sizes=[2, 3, 1])
    assert place_of(named, "encoder.blocks.1.2.attention") == ("encoder", 4)
    assert place_of(named, "funnel.encoder.blocks.2.0.attention") == ("encoder", 5)
    assert place_of(named, "decoder.layers.1.attention") == ("decoder", 1)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["as it is", *SPECIAL["funnel"]])
def test_an_unmodified_model_raises_nothing(name, dtype):
    fields = {} if name == "as it is" else SPECIAL["funnel"][name]
    found = audit(model_of(fields, dtype), length=LENGTH)
    assert heard(found) == {}
    blurred = dtype == "bfloat16" and fields.get("attention_type") == "factorized"
    assert {layer.reason for layer in found.layers} == ({BLURRED} if blurred else {""})
    assert {layer.position for layer in found.layers} == {"relative"}


@pytest.mark.parametrize("length", [16, 17, 63])
def test_other_lengths_raise_nothing(length):
    found = audit(model_of(), length=length)
    assert found.ok
    assert [layer.name for layer in found.layers] == EVERY


def test_a_model_without_decoder_is_read():
    config = FunnelConfig(vocab_size=64, d_model=32, n_head=2, d_head=16, d_inner=32, block_sizes=[1, 1])
    assert audit(FunnelBaseModel(config).eval(), length=LENGTH).ok


def test_a_sequence_that_pools_to_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least 16; got 8"):
        audit(model_of(), length=8)


def test_serving_modes_and_repeated_layers_are_named_as_unchecked():
    found = audit(model_of(), length=LENGTH, serving_modes=True)
    words = "right padding (its layers pool positions, of which padding would change the number)"
    assert [str(one) for one in found.serving_modes] == [words]
    assert found.unexercised == ()
    again = audit(model_of(SPECIAL["funnel"]["layers repeated"]), length=LENGTH).unexercised
    assert again[0].startswith("further passes")


def pooled_lags(own, structure, at, stride, pooled=None, shift=1, device=None):
    return own(structure, at, stride, pooled, shift, device) // stride


def one_more(own, structure, at, stride, pooled=None, shift=1, device=None):
    return own(structure, at, stride, pooled, shift, device) + 1


def mirrored(own, structure, at, stride, pooled=None, shift=1, device=None):
    return -own(structure, at, stride, pooled, shift, device)


EVERY = [*(f"encoder {n}" for n in range(5)), "decoder 0", "decoder 1"]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("change", "layers", "says"),
    [
        (pooled_lags, EVERY[3:5], "lags of tokens declared, lags divided by 2, of pooled positions"),
        (one_more, EVERY, "those of lags 1 larger"),
        (mirrored, EVERY, "those of the mirrored lags"),
    ],
)
def test_other_lags_are_named(change, layers, says, dtype, monkeypatch):
    own = STRUCTURE.relative_pos
    monkeypatch.setattr(STRUCTURE, "relative_pos", lambda *args, **given: change(own, *args, **given))
    said = heard(audit(model_of(dtype=dtype), length=LENGTH))
    assert sorted(said) == sorted(layers)
    assert all(says in one for found in said.values() for one in found)


def test_a_shift_by_one_in_the_place_of_two_is_found_in_pooled_layers(monkeypatch):
    own = modeling_funnel._relative_shift_gather
    monkeypatch.setattr(modeling_funnel, "_relative_shift_gather", lambda x, keys, shift: own(x, keys, 1))
    said = heard(audit(model_of(), length=LENGTH))
    assert sorted(said) == ["encoder 2", "encoder 4"]


def test_scale_is_named_alone(monkeypatch):
    model = model_of()
    for module in model.modules():
        if isinstance(module, ATTENTION):
            module.scale = 1.0
    said = heard(audit(model, length=LENGTH))
    assert sorted(said) == sorted(EVERY)
    assert {len(found) for found in said.values()} == {1}
    assert all("attention scale: 0.25 declared, 1 effective" in found for (found,) in said.values())


def test_hidden_keys_between_those_that_match_are_found(monkeypatch):
    own = ATTENTION.forward

    def forward(module, query, key, value, inputs, **given):
        at, types, _, apart = inputs
        seen = torch.ones(len(key), key.shape[1])
        seen[:, 2] = 0
        return own(module, query, key, value, (at, types, seen, apart), **given)

    monkeypatch.setattr(ATTENTION, "forward", forward)
    assert "encoder 2" in heard(audit(model_of(), length=LENGTH))


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["positions pooled too early", "<cls> not kept apart"])
def test_exhibits_are_named_in_every_precision(name, dtype, monkeypatch):
    one = NAMES[name]
    model = in_precision(one.model(monkeypatch), dtype)
    assert one.judged(audit(model, length=MUSEUM_LENGTH)) == "named"


def test_one_head_alone_is_named(monkeypatch):
    own = ATTENTION.relative_positional_attention

    def other(module: Any, at: Any, q: Tensor, *given: Any) -> Tensor:
        x = own(module, at, q, *given)
        return x * torch.where(torch.arange(x.shape[1])[:, None, None] == 2, -1, 1)

    monkeypatch.setattr(ATTENTION, "relative_positional_attention", other)
    found = audit(model_of(), length=LENGTH)
    assert {record.head for record in found.records} == {2}
    assert {record.code for record in found.records} == {"SPE303"}
