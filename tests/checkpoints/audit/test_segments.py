"""Segments, memories and the second stream of XLNet, and segments of Funnel."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.checkpoints.audit.museum import LENGTH as MUSEUM_LENGTH
from tests.checkpoints.audit.museum import NAMES
from tests.checkpoints.audit.sweep import SPECIAL, Edited, build
from tests.checkpoints.audit.zoo import DTYPES, LENGTH, in_precision
from torch import Tensor, nn
from transformers.models.funnel import modeling_funnel
from transformers.models.xlnet import modeling_xlnet

from spectrope.checkpoints.audit import Audit, audit

XLNET, FUNNEL = modeling_xlnet.XLNetRelativeAttention, modeling_funnel.FunnelRelMultiheadAttention
SECOND = "the second stream of queries, with which the model does not run in"
LARGER = 4.0  # Factor on the weights, under which terms of segments are not small beside other logits.


def model_of(family: str, fields: dict[str, Any] | None = None) -> nn.Module:
    model = build(Edited(family, "", fields or {}))
    for weights in model.parameters():
        if weights.ndim > 1:
            weights.data.mul_(LARGER)
    return model


def heard(model: nn.Module) -> list[tuple[str, str, str]]:
    found = audit(model, length=LENGTH)
    return [(one.where, one.code, one.message) for one in found.records]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["as it is", *(name for name in SPECIAL["xlnet"] if "both ways" not in name)]
)
def test_an_unmodified_model_raises_nothing(name, dtype):
    found: Audit = audit(in_precision(model_of("xlnet", SPECIAL["xlnet"].get(name)), dtype), length=LENGTH)
    assert found.records == ()
    assert found.ok
    assert found.unexercised == (() if dtype == "float32" else (f"{SECOND} {dtype}",))


def with_segments(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    own = XLNET.rel_attn_core

    def attend(module: Any, *args: Any, seg_mat: Any = None, **given: Any) -> Any:
        return own(module, *args, seg_mat=None if seg_mat is None else change(seg_mat), **given)

    return attend


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            lambda x: x.flip(-1),
            "relative term, segments: vectors of equal and of different segments declared, exchanged",
        ),
        (lambda x: 0 * x, "relative term, content to segment: 0.25 times the product declared, none"),
        (lambda x: 2 * x, "relative term, content to segment: 0.25 times the product declared, 2 times it"),
    ],
)
def test_terms_of_segments_are_compared_in_both_streams(change, says, monkeypatch):
    monkeypatch.setattr(XLNET, "rel_attn_core", with_segments(change))
    messages = [message for _, _, message in heard(model_of("xlnet"))]
    for stream in ("first", "second"):
        assert any(one.startswith(says) and f"in the {stream} stream" in one for one in messages)


@pytest.mark.parametrize("by", [1, -1])
def test_lags_across_memories_are_named(by, monkeypatch):
    own = modeling_xlnet.XLNetModel.relative_positional_encoding

    def encoding(model: Any, qlen: int, klen: int, bsz: Any = None, device: Any = None) -> Tensor:
        table = own(model, qlen + 2, klen + 2, bsz, device)
        start = 2 - by * (klen > qlen)
        return table[start : start + qlen + klen]

    monkeypatch.setattr(modeling_xlnet.XLNetModel, "relative_positional_encoding", encoding)
    found = heard(model_of("xlnet"))
    assert {(where, code) for where, code, _ in found} == {("layer 0", "SPE302"), ("layer 1", "SPE302")}
    assert all(f"those of lags 1 {'larger' if by > 0 else 'smaller'}" in message for _, _, message in found)


def test_a_second_stream_that_sees_its_own_content_is_found(monkeypatch):
    own = XLNET.forward

    def forward(module: Any, h: Any, g: Any, first: Any, second: Any, *rest: Any, **given: Any) -> Any:
        return own(module, h, g, first, first, *rest, **given)

    monkeypatch.setattr(XLNET, "forward", forward)
    declared = "memories, earlier tokens"
    words = f"mask in the second stream: {declared} declared, others, at 24 of 792 pairs effective"
    assert heard(model_of("xlnet")) == [(f"layer {layer}", "SPE202", words) for layer in (0, 1)]


def test_one_layer_alone_is_named():
    model = model_of("xlnet")
    clean = heard(model)
    attention: Any = model.base_model.layer[1].rel_attn
    attention.seg_embed.data, rows = 0 * attention.seg_embed.data, attention.seg_embed.data.clone()
    own = attention.rel_attn_core

    def attend(*args: Any, **given: Any) -> Any:
        attention.seg_embed.data = rows.flip(0)
        try:
            return own(*args, **given)
        finally:
            attention.seg_embed.data = rows

    attention.seg_embed.data = rows
    attention.rel_attn_core = attend
    found = heard(model)
    assert clean == []
    assert {(where, code) for where, code, _ in found} == {("layer 1", "SPE303")}


def test_memories_that_the_model_does_not_take_are_named(monkeypatch):
    own = XLNET.forward
    monkeypatch.setattr(XLNET, "forward", lambda *args, mems=None, **given: own(*args, **given))
    found = audit(model_of("xlnet"), length=LENGTH)
    assert found.unexercised == (
        f"{SECOND} float32",
        "memories and segments, with which the model does not run in float32",
    )


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        (lambda types: torch.ones_like(types), range(5)),
        (lambda types: types if types.shape[1] == types.shape[2] else types.roll(1, 2), (2, 4)),
    ],
)
def test_segments_of_funnel_are_compared(change, layers, monkeypatch):
    own = FUNNEL.relative_token_type_attention

    def term(module: Any, types: Tensor, *rest: Any) -> Tensor:
        return own(module, change(types), *rest)

    monkeypatch.setattr(FUNNEL, "relative_token_type_attention", term)
    found = [one for one in heard(model_of("funnel")) if "decoder" not in one[0]]
    assert {where for where, _, _ in found} == {f"layer encoder {layer}" for layer in layers}
    assert {code for _, code, _ in found} == {"SPE303"}
    assert all(message.endswith("(with tokens of two segments)") for _, _, message in found)


@pytest.mark.parametrize(
    "name",
    [
        "memories of another segment",
        "target tokens in the first sequence alone",
        "content stream that does not see itself",
    ],
)
def test_exhibits_are_named(name, monkeypatch):
    one = NAMES[name]
    assert one.judged(audit(one.model(monkeypatch), length=MUSEUM_LENGTH)) == "named"
