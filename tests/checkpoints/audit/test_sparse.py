"""Attention in bands and blocks: Longformer, LED, BigBird and BigBird-Pegasus."""

from typing import Any

import pytest
import torch
from tests.checkpoints.audit.museum import LENGTH as MUSEUM_LENGTH
from tests.checkpoints.audit.museum import NAMES
from tests.checkpoints.audit.sweep import SPECIAL, Edited, build
from tests.checkpoints.audit.zoo import DTYPES, LENGTH, in_precision
from torch import nn
from transformers.models.big_bird import modeling_big_bird
from transformers.models.longformer import modeling_longformer

from spectrope.checkpoints.adapters import first_of, recorded
from spectrope.checkpoints.adapters.inputs import Inputs
from spectrope.checkpoints.adapters.sparse import sparse_modules
from spectrope.checkpoints.audit import Audit, audit
from spectrope.checkpoints.audit.local import BandPattern, BlockPattern
from spectrope.checkpoints.audit.run import default_length

FAMILIES = ("longformer", "led", "big_bird", "bigbird_pegasus")
UNMODIFIED = [
    Edited(family, name, fields)
    for family in FAMILIES
    for name, fields in {"as it is": {}, **SPECIAL[family]}.items()
]
EXHIBITS = (
    "window counted on each side",
    "first key of a window as beyond the text",
    "global tokens lost with an inverted mask",
    "random blocks in evaluation",
    "last block of the longest sequence",
)
BANDED, BLOCKED = modeling_longformer.LongformerSelfAttention, modeling_big_bird.BigBirdBlockSparseAttention


def model_of(family: str, fields: dict[str, Any] | None = None) -> Any:
    return build(Edited(family, "", fields or {}))


def heard(found: Audit) -> list[tuple[str, str, str]]:
    return [(one.where, one.code, one.message) for one in found.records]


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("one", UNMODIFIED, ids=str)
def test_an_unmodified_model_raises_nothing(one, dtype):
    found = audit(in_precision(build(one), dtype), length=LENGTH)
    assert heard(found) == []
    assert found.ok
    assert {layer.position for layer in found.layers} == {"absolute"}


@pytest.mark.sampled
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [29, 33, 47, 80])
def test_lengths_that_are_filled_up_raise_nothing(family, length):
    found = audit(model_of(family), length=length)
    assert found.ok
    assert [one.first_row for one in found.absolutes][:1] == [1 if family == "longformer" else 0]


def test_masks_are_those_of_each_layer():
    found = audit(model_of("led"), length=LENGTH)
    masks = [f"{layer.name}: {layer.effective.mask}" for layer in found.layers]
    assert masks == [
        "encoder 0: bidirectional window 4",
        "encoder 1: bidirectional window 8",
        "decoder 0: causal",
        "decoder 1: causal",
    ]
    found = audit(model_of("big_bird"), length=LENGTH)
    assert [str(layer.effective.mask) for layer in found.layers] == ["block-sparse 4"] * 2


def test_patterns_are_those_of_the_paper():
    band = BandPattern(1, at=(3,)).counts(5, 5)
    assert band.int().tolist() == [
        [1, 1, 0, 1, 0],
        [1, 1, 1, 1, 0],
        [0, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
        [0, 0, 0, 1, 1],
    ]
    blocks = BlockPattern(1, random=2).counts(7, 7)
    assert blocks[3].int().tolist() == [3, 0, 1, 1, 1, 0, 1]
    assert blocks[1].int().tolist() == [3, 1, 1, 0, 0, 0, 1]
    assert blocks[0].int().tolist() == blocks[6].int().tolist() == [1] * 7


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recorded_function_is_that_of_the_module(family):
    """Its output for the vectors that were recorded is what the module puts out."""
    model = model_of(family).base_model
    calls, outputs = [], {}
    ids = torch.randint(5, 60, (2, LENGTH))
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: outputs.update({name: first_of(output)})
        )
        for name in sparse_modules(model)
    ]
    with torch.no_grad(), recorded(model, calls.append, attend=True):
        model(**Inputs(2, LENGTH).of(model) | {"input_ids": ids})
    for handle in handles:
        handle.remove()
    sparse = [call for call in calls if call.sparse is not None]
    assert len(sparse) == 2
    with torch.no_grad():
        for call in sparse:
            torch.testing.assert_close(call.attend(call.q, call.k, call.v).flatten(2), outputs[call.module])


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXHIBITS)
def test_exhibits_are_named_in_every_precision(name, dtype, monkeypatch):
    one = NAMES[name]
    model = in_precision(one.model(monkeypatch), dtype)
    assert one.judged(audit(model, length=MUSEUM_LENGTH)) == "named"


def said(model: nn.Module, length: int = LENGTH) -> set[str]:
    return {message for _, _, message in heard(audit(model, length=length))}


def test_other_windows_are_named():
    model = model_of("longformer")
    for module in model.modules():
        if isinstance(module, BANDED):
            module.one_sided_attn_window_size = 4
    words = "mask: bidirectional window 8 declared, bidirectional window 4 effective"
    assert heard(audit(model, length=LENGTH)) == [("layer encoder 1", "SPE202", words)]


def test_global_tokens_that_others_do_not_see_are_named(monkeypatch):
    own = BANDED._concat_with_global_key_attn_probs
    monkeypatch.setattr(
        BANDED, "_concat_with_global_key_attn_probs", lambda *args, **given: own(*args, **given) - 1e9
    )
    assert any("mask with global tokens" in one for one in said(model_of("longformer")))


def test_outputs_of_global_tokens_are_checked(monkeypatch):
    own = BANDED._compute_global_attn_output_from_hidden

    def halved(*args, **given):
        output, weights = own(*args, **given)
        return 0.5 * output, weights

    monkeypatch.setattr(BANDED, "_compute_global_attn_output_from_hidden", halved)
    assert any("attention function with global tokens" in one for one in said(model_of("longformer")))


def test_other_numbers_of_random_blocks_are_named():
    model = model_of("big_bird")
    for module in model.modules():
        if isinstance(module, BLOCKED):
            module.num_random_blocks = 2
    words = "blocks of 4, 1 on either side, first and last seen by all"
    assert said(model) == {f"mask: {words}, 1 random declared, {words}, 2 random effective"}


def test_random_blocks_that_repeat_those_in_the_window_are_found_in_training(monkeypatch):
    monkeypatch.setattr(
        BLOCKED,
        "_get_single_block_row_attention",
        staticmethod(lambda *, block_id, num_rand_blocks, **given: [block_id] * num_rand_blocks),
    )
    assert said(model_of("big_bird")) == {
        "mask in training: 1 further blocks, once each declared, others in block 1 of queries effective"
    }


def test_full_attention_of_short_inputs_is_checked(monkeypatch):
    code = modeling_big_bird
    monkeypatch.setattr(code, "create_bidirectional_mask", code.create_causal_mask)
    (message,) = said(model_of("big_bird"))
    assert message.endswith("past keys alone effective (of 16 tokens, which get full attention)")


def test_short_inputs_say_what_is_not_checked():
    found = audit(model_of("big_bird"), length=20)
    assert found.ok
    assert found.unexercised == ("block-sparse attention, which inputs of more than 28 tokens get",)
    assert [str(layer.effective.mask) for layer in found.layers] == ["bidirectional"] * 2


@pytest.mark.parametrize("family", ["big_bird", "bigbird_pegasus"])
@pytest.mark.parametrize("length", [20, LENGTH])
def test_the_model_keeps_its_attention_and_random_state(family, length):
    model = model_of(family)
    before = [(name, type(module)) for name, module in model.named_modules()]
    kinds = [part.attention_type for part in model.modules() if hasattr(part, "attention_type")]
    audit(model, length=length)
    assert [(name, type(module)) for name, module in model.named_modules()] == before
    assert [part.attention_type for part in model.modules() if hasattr(part, "attention_type")] == kinds
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_the_default_length_is_one_of_block_sparse_attention():
    fields = {"block_size": 64, "num_random_blocks": 3, "max_position_embeddings": 4096}
    assert default_length(model_of("big_bird", fields)) == 768
    assert default_length(model_of("big_bird")) == 128


@pytest.mark.parametrize("family", ["longt5", "pegasus_x"])
def test_encoders_that_are_not_read_are_named(family):
    found = audit(model_of(family), length=LENGTH)
    assert [name.startswith("encoder") for name in found.unread] == [True, True]
    assert not found.ok
