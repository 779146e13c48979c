"""Models with outliers, as training leaves them: no alarm, faults are found, and what is hidden is said.

`python -m tests.checkpoints.audit.trained` audits every family so.
"""

import random

import pytest
import torch
from tests.checkpoints.audit.injections import in_head, rotating
from tests.checkpoints.audit.museum_faults import in_halves
from tests.checkpoints.audit.trained import LENGTH, OUTLIERS, alarms, with_outliers
from tests.checkpoints.audit.zoo import Variant, build, families

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.layout import Layout, best_layout, moving_coordinates
from spectrope.checkpoints.audit.starts import start_of
from spectrope.core import unwatched

# Once alarms.
MENDED = (("gpt_neox", "biases"), ("glm4", "all"), ("gemma4_text", "all"), ("glm4v_moe_text", "all"))
FAMILIES = ("bert", "cohere", "gemma3_text", "llama", "mpt", "phi3", "qwen2", "t5")
DRAWN = random.Random(32)
SAMPLE = [*MENDED, *((family, DRAWN.choice(OUTLIERS)) for family in DRAWN.sample(FAMILIES, 4))]
NOISE = 2**-7


def found(model):
    return audit(model, length=LENGTH, watch=unwatched)


def model_of(family, kind, dtype="bfloat16"):
    return with_outliers(build(Variant(family, families()[family], dtype=dtype)), kind)


@pytest.mark.sampled
@pytest.mark.parametrize(("family", "kind"), SAMPLE)
def test_no_alarm_is_raised_in_low_precision(family, kind):
    result = found(model_of(family, kind))
    assert alarms(result) == []
    assert {layer.verdict for layer in result.layers} == {"matches"}


@pytest.mark.parametrize("family", ["ernie4_5", "cohere"])
def test_another_pairing_is_still_found(family, monkeypatch):
    model = model_of(family, "all")
    rotating(lambda own, q, k, c, s: tuple(in_halves(x, c, s).to(x) for x in (q, k)))(model, monkeypatch)
    assert {one.code for layer in found(model).layers for one in layer.findings} == {"SPE104"}


def test_a_head_that_does_not_turn_is_still_found(monkeypatch):
    model = model_of("qwen2", "all")
    rotating(lambda own, q, k, c, s: (in_head(own(q, k, c, s)[0], 1, q), own(q, k, c, s)[1]))(
        model, monkeypatch
    )
    told = {(one.code, one.head) for layer in found(model).layers for one in layer.findings}
    assert told == {("SPE109", 1)}


def test_a_learned_factor_on_queries_is_as_the_weights_say(monkeypatch):
    model = model_of("mistral_large4_text", "biases", "float32")
    for layer in model.layers:
        learned = layer.self_attn.softmax_scaling
        learned.scale.data, learned.bias.data = (
            torch.tensor([0.1, 0.2, 0.3, 0.4]),
            torch.tensor([1, 2, 0.5, 3]),
        )
    assert alarms(found(model)) == []
    own = model.layers[1].self_attn.softmax_scaling.forward
    monkeypatch.setattr(
        model.layers[1].self_attn.softmax_scaling,
        "forward",
        lambda q, position_ids, **given: own(q, position_ids + 7, **given),
    )
    assert [layer.verdict for layer in found(model).layers] == ["matches", "differs"]


def test_sizes_behind_a_convolution_say_nothing():
    result = found(model_of("zaya", "biases"))
    assert alarms(result) == []
    assert {layer.verdict for layer in result.layers} == {"cannot tell"}


def test_pruned_heads_and_pairs_say_nothing():
    model = build(Variant("qwen2", families()["qwen2"]))
    projections = model.model.layers[0].self_attn
    for rows, side in ((slice(0, 16), "q_proj"), ([17, 25], "q_proj"), (slice(0, 16), "k_proj")):
        weights = getattr(projections, side)
        weights.weight.data[rows], weights.bias.data[rows] = 0.0, 0.0
    result = found(model)
    assert alarms(result) == []
    assert {layer.verdict for layer in result.layers} == {"matches"}


def test_slopes_that_rounding_hides_are_said_to_be_hidden_and_seen_in_float32():
    low = found(model_of("bloom", "all"))
    assert {layer.verdict for layer in low.layers} == {"cannot tell"}
    assert "rounding of the logits hides the biases of heads" in low.layers[0].reason
    assert "compute in float32" in low.layers[0].reason
    assert found(model_of("bloom", "all", "float32")).ok


def test_without_a_bias_whose_heads_show_the_encoding_differs():
    model = build(Variant("bloom", families()["bloom"], dtype="bfloat16"))
    for layer in model.transformer.h:
        layer.self_attention.register_forward_pre_hook(_without_bias, with_kwargs=True)
    assert {layer.verdict for layer in found(model).layers} == {"differs"}


def _without_bias(_, args, given):
    return args, given | {"alibi": torch.zeros_like(given["alibi"])}


def turned(pairs, frequencies, t=32):
    """Vectors whose pairs (m,) turn, in halves, rounded to bfloat16."""
    angles = torch.arange(t)[:, None] * frequencies
    z = pairs[:, None] * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([z.real, z.imag], -1).bfloat16().double()


def test_one_large_coordinate_hides_neither_motion_nor_layout():
    pairs = torch.randn(3, 4, dtype=torch.cdouble, generator=torch.Generator().manual_seed(0))
    frequencies = torch.tensor([1.0, 0.3, 0.1, 0.0], dtype=torch.float64)
    pairs[:, 3] *= 500  # It does not turn.
    x = turned(pairs, frequencies)
    assert moving_coordinates(x, NOISE).tolist() == [True, True, True, False] * 2
    layout = best_layout(x, moving_coordinates(x, NOISE), NOISE)
    assert layout == Layout("halves", 0, 8)
    source = torch.stack([torch.view_as_real(one).flatten() for one in layout.planes(x[:, 0])])
    start = start_of(x, layout, frequencies, [source], NOISE)
    assert (start.pairing, start.position) == ("adjacent", 0)
    assert start.gain == pytest.approx(1.0)


def test_vectors_that_underflow_say_nothing():
    model = build(Variant("llama", "base"))
    with torch.no_grad():
        for layer in model.layers:
            layer.self_attn.q_proj.weight.mul_(1e-5)
    made = found(model.half())
    assert made.findings == []
    assert {one.reason for one in made.layers} == {"queries underflow in float16; compute in float32"}
