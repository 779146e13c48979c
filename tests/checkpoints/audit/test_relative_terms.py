"""Relative terms of logits that depend on the content: XLNet's, DeBERTa's and ProphetNet's."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.checkpoints.audit.sweep import SPECIAL, Edited, build
from tests.checkpoints.audit.zoo import DTYPES, LENGTH, in_precision
from torch import Tensor, nn
from transformers import ProphetNetConfig, ProphetNetForConditionalGeneration
from transformers.models.deberta import modeling_deberta
from transformers.models.deberta_v2 import modeling_deberta_v2
from transformers.models.prophetnet import modeling_prophetnet
from transformers.models.xlnet import modeling_xlnet

from spectrope.checkpoints.adapters import trained_length
from spectrope.checkpoints.audit import audit, diff, relative_parts
from spectrope.checkpoints.audit.applied import applied_encodings
from spectrope.checkpoints.audit.relative import Lags, LogBuckets
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.core.errors import UnsupportedError

FAMILIES = ("xlnet", "deberta", "deberta-v2", "prophetnet")
LARGER = 5.0  # Factor on the weights, under which relative terms are not small beside other logits.
REFUSED = ("xlnet: read both ways",)
UNMODIFIED = [
    Edited(family, name, fields)
    for family in FAMILIES
    for name, fields in {"as it is": {}, **SPECIAL[family]}.items()
]


def model_of(one: Edited, dtype: str = "float32") -> nn.Module:
    model = build(one)
    for weights in model.parameters():
        if weights.ndim > 1:
            weights.data.mul_(LARGER)
    return in_precision(model, dtype)


def of_layers(model: nn.Module, name: str) -> list[Any]:
    return [module for part, module in model.named_modules() if part.endswith(name)]


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("one", [one for one in UNMODIFIED if str(one) not in REFUSED], ids=str)
def test_an_unmodified_model_raises_nothing(one, dtype):
    found = audit(model_of(one, dtype), length=LENGTH)
    assert [(where, str(finding)) for where, finding in found.findings] == []
    assert {layer.verdict for layer in found.layers} == {"matches"}


def sinusoids(change: Callable[..., Tensor]) -> Callable[[nn.Module, pytest.MonkeyPatch], None]:
    """XLNet's table of sines and cosines, changed."""

    def inject(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
        own = modeling_xlnet.XLNetModel.positional_embedding
        changed = staticmethod(lambda at, frequencies, bsz=None: change(own, at, frequencies, bsz))
        patch.setattr(modeling_xlnet.XLNetModel, "positional_embedding", changed)

    return inject


def logits(
    content: Callable[..., Tensor] = lambda own, q: q + own.r_w_bias,
    query: Callable[..., Tensor] = lambda own, q: q + own.r_r_bias,
    term: Callable[..., Tensor] = lambda own, x: x,
) -> Callable[[nn.Module, pytest.MonkeyPatch], None]:
    """XLNet's attention, written out with other summands."""

    def attend(own: Any, q: Tensor, k: Tensor, v: Tensor, r: Tensor, **given: Any) -> Tensor:
        products = torch.einsum("ibnd,jbnd->bnij", content(own, q), k)
        relative = torch.einsum("ibnd,jbnd->bnij", query(own, q), r)
        scores = products + term(own, own.rel_shift_bnij(relative, klen=products.shape[3]))
        return torch.einsum("bnij,jbnd->ibnd", (own.scale * scores).softmax(3), v)

    def inject(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(modeling_xlnet.XLNetRelativeAttention, "rel_attn_core", attend)

    return inject


def attributes(
    name: str, value: Any, where: str = ".rel_attn"
) -> Callable[[nn.Module, pytest.MonkeyPatch], None]:
    """A field of modules, set to another value than that of the configuration."""

    def inject(model: nn.Module, _: pytest.MonkeyPatch) -> None:
        for module in of_layers(model, where):
            setattr(module, name, value)

    return inject


def function(
    module: Any, name: str, change: Callable[..., Any]
) -> Callable[[nn.Module, pytest.MonkeyPatch], None]:
    """A function of the library's, changed."""

    def inject(_: nn.Module, patch: pytest.MonkeyPatch) -> None:
        own = getattr(module, name)
        patch.setattr(module, name, lambda *args, **given: change(own, *args, **given))

    return inject


def weights_doubled(model: nn.Module, _: pytest.MonkeyPatch) -> None:
    for dropout in of_layers(model, "self.dropout"):
        dropout.register_forward_hook(lambda *called: 2 * called[-1])


def head_alone(own: Any, x: Tensor, head: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    chosen = torch.arange(x.shape[1], device=x.device)[:, None, None] == head
    return torch.where(chosen, change(x), x)


def rounded_down(_: Any, lag: Tensor, n: int, reach: int) -> Tensor:
    half = n // 2
    steps = torch.log(lag.abs().clamp(min=half) / half) / math.log((reach - 1) / half) * (half - 1)
    return torch.where(lag.abs() <= half, lag, (half + steps.floor().long()) * lag.sign())


ATTENTION = modeling_deberta_v2.DisentangledSelfAttention
BIAS = "disentangled_attention_bias"
LATER, BUCKETS = modeling_deberta_v2, "16 log buckets up to lag 128"
PAST = "compute_relative_buckets"
RELATIVE_BIAS = modeling_prophetnet.ProphetNetNgramSelfAttention, "get_main_relative_pos_embeddings"


@dataclass(frozen=True)
class Fault:
    """A mistake, and what an audit says of it."""

    name: str
    family: str
    inject: Callable[[nn.Module, pytest.MonkeyPatch], None]
    codes: frozenset[str]
    says: str
    declared: dict[str, Any] = field(default_factory=dict)
    heads: frozenset[int | None] = frozenset({None})


def of(*codes: int) -> frozenset[str]:
    return frozenset(f"SPE{code}" for code in codes)


FAULTS = (
    Fault("the lag's sign is reversed", "xlnet", sinusoids(lambda own, at, f, b: own(-at, f, b)), of(302),
          "lags without a limit declared, those of the mirrored lags"),
    Fault("the table begins one later", "xlnet", sinusoids(lambda own, at, f, b: own(at - 1, f, b)), of(302),
          "those of lags 1 smaller"),
    Fault("clamp_len ignored", "xlnet", attributes("clamp_len", -1, "transformer"), of(302),
          "lags from -7 to 7 declared, lags without a limit", {"clamp_len": 7}),
    Fault("another clamp_len", "xlnet", attributes("clamp_len", 9, "transformer"), of(302),
          "lags from -7 to 7 declared, lags from -9 to 9", {"clamp_len": 7}),
    Fault("base 100000", "xlnet", sinusoids(lambda own, at, f, b: own(at, f**1.25, b)), of(303),
          "sines, then cosines, of base 10000 declared, base 100000"),
    Fault("cosines before sines", "xlnet", sinusoids(lambda own, *a: own(*a).roll(32, -1)), of(303),
          "cosines before sines"),
    Fault("sines and cosines in turns", "xlnet",
          sinusoids(lambda own, *a: own(*a).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2)), of(303),
          "sines and cosines in turns"),
    Fault("past alone", "xlnet", attributes("attn_type", "uni", "transformer"), of(201), "past keys alone"),
    Fault("both ways", "xlnet", attributes("attn_type", "bi", "transformer"), of(201), "future keys",
          {"attn_type": "uni"}),
    Fault("another factor in one layer", "xlnet", attributes("scale", 0.5, "1.rel_attn"), of(404),
          "0.25 declared, 0.5"),
    Fault("no bias on queries of positions", "xlnet", logits(query=lambda own, q: q), of(303),
          "relative term, bias to position: 0.25 times the product declared, none"),
    Fault("no bias on queries of content", "xlnet", logits(content=lambda own, q: q), of(303),
          "relative term, bias to content: 0.25 times the product declared, none"),
    Fault("biases exchanged", "xlnet",
          logits(lambda own, q: q + own.r_r_bias, lambda own, q: q + own.r_w_bias), of(303), "exchanged"),
    Fault("no relative term", "xlnet", logits(term=lambda own, x: 0 * x), of(110), "none effective"),
    Fault("relative term without the factor", "xlnet", logits(term=lambda own, x: x / own.scale), of(303),
          "4 times it"),
    Fault("relative term subtracted", "xlnet", logits(term=lambda own, x: -x), of(303), "its negative"),
    Fault("one head without it", "xlnet", logits(term=lambda own, x: head_alone(own, x, 1, torch.zeros_like)),
          of(303), "of head 1: 0.25 times the product declared, none", heads=frozenset({1})),
    Fault("one head mirrored", "xlnet", logits(term=lambda own, x: head_alone(own, x, 2, lambda y: y.mT)),
          of(302), "relative positions of head 2", heads=frozenset({2})),
    Fault("not by lag", "xlnet", logits(term=lambda own, x: x * torch.arange(len(x[0, 0]))), of(303),
          "logits that differ at equal lags"),
    Fault("buckets ignored", "deberta-v2", attributes("position_buckets", -1, "encoder"), of(302),
          f"{BUCKETS} declared, lags from -16 to 15"),
    Fault("another number of buckets", "deberta-v2",
          function(LATER, "make_log_bucket_position", lambda own, at, n, reach: own(at, 8, reach)), of(302),
          f"{BUCKETS} declared, 8 log buckets up to lag 128"),
    Fault("another reach", "deberta-v2", attributes("max_relative_positions", 64, "encoder"), of(302),
          f"{BUCKETS} declared, 16 log buckets up to lag 64"),
    Fault("the lag's sign is reversed", "deberta-v2",
          function(LATER, "build_relative_position", lambda own, *a, **g: -own(*a, **g)), of(302),
          "those of the mirrored lags"),
    Fault("rows begin one earlier", "deberta-v2", attributes("pos_ebd_size", 15, "attention.self"), of(302),
          "the rows 1 before them"),
    Fault("factor of one term alone", "deberta-v2",
          function(LATER, "scaled_size_sqrt", lambda own, q, n: own(q, 1)), of(404),
          "0.14434 declared, 0.25"),
    Fault("relative terms of another factor", "deberta-v2",
          function(ATTENTION, BIAS, lambda own, *a: own(*a[:-1], 1)), of(303), "1.732 times it"),
    Fault("no relative terms", "deberta-v2", function(ATTENTION, BIAS, lambda own, *a: 0 * own(*a)), of(110),
          "none effective"),
    Fault("rows not normalised", "deberta-v2", attributes("norm_rel_ebd", ["none"], "encoder"), of(303),
          "rows normalised declared, rows as they are", {"norm_rel_ebd": "layer_norm"}),
    Fault("a term missing", "deberta-v2", attributes("pos_att_type", ["c2p"], "1.attention.self"),
          of(303, 404), "position to content: 0.14434 times the product declared, none"),
    Fault("other weights", "deberta-v2",
          function(ATTENTION, BIAS, lambda own, *a: own(*a[:4], a[4].flip(-1), a[5])), of(303),
          "logits off by up to"),
    Fault("a shorter reach", "deberta", attributes("max_relative_positions", 10, "attention.self"), of(302),
          "lags from -20 to 19 declared, lags from -10 to 9, from the first row of the table"),
    Fault("the lag's sign is reversed", "deberta",
          function(modeling_deberta, "build_relative_position", lambda own, *a: -own(*a)), of(302),
          "those of the mirrored lags"),
    Fault("keys from position 1", "deberta",
          function(modeling_deberta, "build_relative_position", lambda own, *a: own(*a) - 1), of(302),
          "those of keys 1 position later"),
    Fault("factor of one term alone", "deberta",
          function(modeling_deberta, "scaled_size_sqrt", lambda own, q, n: own(q, 1)), of(404),
          "0.14434 declared, 0.25"),
    Fault("weights doubled", "deberta",
          weights_doubled,
          of(407), "other weights effective (off by up to"),
    Fault("logits of heads are not mixed", "deberta",
          attributes("forward", lambda x: x, "head_logits_proj"), of(303), "logits off by up to",
          {"talking_head": True}),
    Fault("buckets both ways", "prophetnet",
          function(modeling_prophetnet, PAST, lambda own, n, m, at, **_: own(n, m, at, True)), of(302),
          "32 buckets past only up to 128 declared, 32 buckets both ways up to 128"),
    Fault("another reach", "prophetnet",
          function(modeling_prophetnet, PAST, lambda own, n, m, *a, **g: own(n, 64, *a, **g)), of(302),
          "32 buckets past only up to 64"),
    Fault("biases scaled with the logits", "prophetnet",
          function(*RELATIVE_BIAS, lambda own, *a: own(*a) / 4), of(303), "0.25 times it"),
    Fault("no biases", "prophetnet", function(*RELATIVE_BIAS, lambda own, *a: 0 * own(*a)), of(110),
          "none effective"),
    Fault("rows of both sides one earlier", "deberta-v2",
          function(LATER, "build_relative_position", lambda own, *a, **g: own(*a, **g) - 1), of(302),
          "the rows 1 before them, those 1 after them in position to content"),
    Fault("buckets rounded down", "deberta-v2",
          function(LATER, "make_log_bucket_position", rounded_down), of(302),
          f"{BUCKETS} declared, {BUCKETS}, rounded down"),
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: f"{one.family}: {one.name}")
def test_a_fault_is_named(fault, monkeypatch):
    model = model_of(Edited(fault.family, fault.name, fault.declared))
    fault.inject(model, monkeypatch)
    found = audit(model, length=LENGTH)
    assert {finding.code for _, finding in found.findings} == fault.codes
    assert {finding.head for _, finding in found.findings} == fault.heads
    assert fault.says in " ".join(str(finding) for _, finding in found.findings)


LOW = [fault for fault in FAULTS if "no bias" not in fault.name][::3]  # Which are small as rounding is.


@pytest.mark.sampled
@pytest.mark.parametrize("fault", LOW, ids=lambda one: f"{one.family}: {one.name}")
def test_a_fault_is_found_in_bfloat16(fault, monkeypatch):
    model = model_of(Edited(fault.family, fault.name, fault.declared), "bfloat16")
    fault.inject(model, monkeypatch)
    found = audit(model, length=LENGTH, serving_modes=False)
    assert {finding.code for _, finding in found.findings} == fault.codes


def test_the_term_of_xlnet_is_described():
    found = audit(model_of(Edited("xlnet", "", {})), length=LENGTH)
    assert found.ok
    assert found.layers[0].effective.describe() == (
        "sinusoids, content to position and bias to position: lags without a limit"
    )


def test_xlnet_that_reads_both_ways_takes_no_single_sequence():
    model = build(Edited("xlnet", "", {"bi_data": True}))
    with pytest.raises(UnsupportedError, match="reads the second half of a batch backwards"):
        audit(model, length=LENGTH)


def test_prophetnets_streams_of_predictions_leave_the_answer_incomplete():
    found = audit(model_of(Edited("prophetnet", "", {})), length=LENGTH)
    assert found.outcome == "incomplete"
    assert found.unread == tuple(f"decoder.layers.{layer}.self_attn" for layer in range(2))
    assert "decoder.layers.1.self_attn: it takes a further softmax" in str(found)


def test_prophetnets_predictions_need_a_further_row():
    model = build(Edited("prophetnet", "", {"max_position_embeddings": 40}))
    assert trained_length(model) == 38
    assert audit(model, length=38, serving_modes=False).findings == []
    with pytest.raises(UnsupportedError, match="does not run at length 39; its configuration gives it 38"):
        audit(model, length=39)


def test_prophetnets_encoder_has_no_relative_term():
    sizes: dict[str, Any] = {
        "hidden_size": 64,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "vocab_size": 64,
    }
    sizes |= {"num_encoder_layers": 1, "num_decoder_layers": 1, "max_position_embeddings": 128}
    sizes |= {"num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4}
    found = audit(ProphetNetForConditionalGeneration(ProphetNetConfig(**sizes)).eval(), length=LENGTH)
    assert found.findings == []
    assert [layer.declared.kind for layer in found.layers] == ["none", "relative term"]


def test_weights_of_another_class_leave_the_layer_undeclared(monkeypatch):
    monkeypatch.setattr(relative_parts, "xlnet_parts", lambda own, x: own.weights_of_another_name)
    found = audit(build(Edited("xlnet", "", {})), length=LENGTH)
    assert {layer.verdict for layer in found.layers} == {"undeclared"}
    assert found.findings == []


def test_two_lookups_differ():
    first, second = (
        audit(build(Edited("xlnet", "", {"clamp_len": limit})), length=LENGTH) for limit in (-1, 7)
    )
    assert diff(first, first).same
    findings = {str(one) for layer in diff(first, second).layers for one in layer.findings}
    assert findings == {
        "relative positions: sinusoids, content to position and bias to position: lags without a limit "
        "declared, sinusoids, content to position and bias to position: lags from -7 to 7 effective"
    }


@pytest.mark.parametrize("family", ["xlnet", "deberta-v2"])
def test_the_factor_on_products_is_not_taken_from_logits_with_such_a_term(family):
    model = model_of(Edited(family, "", {})).base_model
    with pytest.raises(UnsupportedError, match="have a relative term that depends on the content"):
        applied_encodings(model, attention_modules(model), LENGTH)


@pytest.mark.parametrize(("n_buckets", "reach"), [(16, 128), (256, 512), (24, 64), (8, 30)])
def test_log_buckets_are_the_librarys(n_buckets, reach):
    lag = torch.arange(-600, 600)
    wanted = modeling_deberta_v2.make_log_bucket_position(lag, n_buckets, reach).long()
    torch.testing.assert_close(LogBuckets(n_buckets, reach).of(lag), wanted.clamp(-n_buckets, n_buckets - 1))


def test_lags_are_limited_on_either_side():
    assert Lags(2, 3).of(torch.arange(-5, 6)).tolist() == [-3, -3, -3, -2, -1, 0, 1, 2, 2, 2, 2]
    assert Lags().of(torch.arange(3)).tolist() == [0, 1, 2]
    assert str(Lags(2, 3)) == "lags from -3 to 2"
