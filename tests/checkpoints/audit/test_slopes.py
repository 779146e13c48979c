"""Biases in proportion to the distance, and those that are rounded on the way."""

import pytest
import torch
from tests.checkpoints.audit.families import GROUPED, LENGTH, build
from tests.checkpoints.audit.injections import masked

from spectrope.checkpoints.audit import audit

SIZES = {
    "vocab_size": 64
}  # And twelve heads: slopes of up to eight are powers of two, whose products are exact.
MODELS = {
    "bloom": ("Bloom", {"hidden_size": 96, "n_head": 12, "n_layer": 2}),
    "mpt": ("Mpt", {"d_model": 96, "n_heads": 12, "n_layers": 2, "max_seq_len": 128}),
    "falcon": (
        "Falcon",
        {"hidden_size": 96, "num_attention_heads": 12, "num_hidden_layers": 2, "alibi": True},
    ),
}


def model_of(family):
    name, sizes = MODELS[family]
    return build(name, **SIZES | sizes)


def round_biases(model):
    """Attention takes its biases rounded to bfloat16."""

    def rounded(_, args, given):
        names = given.keys() & {"alibi", "position_bias"}
        return args, given | {name: given[name].bfloat16().float() for name in names}

    for name, module in model.named_modules():
        if name.endswith(("attention", "attn")):
            module.register_forward_pre_hook(rounded, with_kwargs=True)


@pytest.mark.parametrize("family", ["bloom", "mpt"])
def test_biases_in_bfloat16_within_a_model_in_float32_are_named(family):
    model = model_of(family)
    assert audit(model, length=LENGTH).ok
    round_biases(model)
    records = audit(model, length=LENGTH).records
    assert {(one.code, one.layer) for one in records} == {("SPE301", 0), ("SPE301", 1)}
    assert all("as when biases are computed in low precision" in one.message for one in records)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", MODELS)
def test_rounding_of_the_class_s_own_code_is_no_finding(family, dtype):
    assert audit(model_of(family).to(dtype), length=LENGTH).outcome != "differs"


@pytest.mark.parametrize(
    ("bias", "said"),
    [
        (lambda lag: -0.125 * lag, "rotary, base 10000; linear bias, slopes 0.125 … 0.125"),
        (lambda lag: torch.sin(lag.T.cumsum(0)), "rotary, base 10000; another bias"),
    ],
)
def test_a_bias_beside_a_rotation_is_described_beside_it(bias, said, monkeypatch):
    model = build("Llama", **GROUPED)
    masked(lambda lag: bias(lag.float()).masked_fill(lag < 0, -torch.inf))(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE110"}
    assert {one.effective for one in records} == {said}
