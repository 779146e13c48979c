"""Masks, schedules, biases and verdicts on inputs whose answer is known."""

import math
from dataclasses import replace

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, GPT2, SIZES, build, llama

from spectrope.checkpoints.adapters import drawable_tokens, trained_length
from spectrope.checkpoints.audit import audit, diff
from spectrope.checkpoints.audit.bias import Buckets, find_buckets, lag_table, linear_slopes, row_centred
from spectrope.checkpoints.audit.compare import mask_findings
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning, describe_mask
from spectrope.checkpoints.audit.reach import reach_of
from spectrope.checkpoints.audit.rotary import fit_rotation, fit_schedule, phase_slopes
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.probes.constant_token import matching_rows
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.schedules.base import geometric

SEEN = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
HEARD = {"vocab_size": 64, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "pad_token_id": 0}
HEARD |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_mel_bins": 16}
LAG = torch.arange(12)[:, None] - torch.arange(12)[None, :]


@pytest.mark.parametrize(
    ("allowed", "mask"),
    [
        (LAG >= 0, Mask("causal")),
        (LAG == LAG, Mask("bidirectional")),
        ((LAG >= 0) & (LAG < 5), Mask("causal window", 5)),
        (LAG.abs() <= 3, Mask("bidirectional window", 3)),
        ((LAG >= 0) & (torch.arange(12)[:, None] // 4 == torch.arange(12) // 4), Mask("causal chunk", 4)),
        ((LAG >= 0) & (LAG % 2 == 0), Mask("other")),
        (LAG < -20, Mask("other")),
    ],
)
def test_masks_are_recognised(allowed, mask):
    assert describe_mask(allowed[None, None]) == mask
    assert str(mask) == mask.shape + ("" if mask.size is None else f" {mask.size}")


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (LAG > 0, "causal without the query's own key"),
        ((LAG > 0) & (LAG < 5), "causal window 5 without the query's own key"),
        (LAG < 0, "bidirectional but for 78 pairs, the first of query 0 and key 0"),
        (LAG > 20, "no key at all"),
        ((LAG >= 0) & (LAG != 3), "causal but for 9 pairs, the first of query 3 and key 0"),
    ],
)
def test_what_no_rule_fits_is_described_by_the_nearest(allowed, words):
    mask = describe_mask(allowed[None, None])
    assert mask == Mask("other")
    (finding,) = mask_findings(LayerEncoding(mask=Mask("causal")), LayerEncoding(mask=mask), len(LAG))
    assert finding.effective == words


def test_the_past_half_of_a_window_is_not_told_as_declared():
    expected = LayerEncoding(mask=Mask("bidirectional window", 3), sees_future=True)
    seen = LayerEncoding(mask=describe_mask((LAG >= 0)[None, None]), sees_future=False)
    findings = [str(one) for one in mask_findings(expected, seen, len(LAG))]
    assert findings == [
        "direction of the mask: past and future keys declared, past keys alone effective",
        "mask: past keys up to lag 3 declared, all past keys effective",
    ]


def test_heads_with_different_masks_are_other():
    both = torch.stack([LAG >= 0, LAG == LAG])[None]
    assert describe_mask(both) == Mask("other")


@pytest.mark.parametrize(
    ("slowdown", "scaling", "factor"),
    [
        (torch.ones(8), "none", 1.0),
        (torch.full((8,), 4.0), "linear", 4.0),
        (torch.tensor([1.0, 1, 2, 3, 4, 4, 4, 4]), "ramp", 4.0),
        (torch.tensor([4.0, 4, 4, 3, 2, 1, 1, 1]), "reversed ramp", 4.0),
        (torch.tensor([1.0, 3, 1, 2, 1, 5, 1, 2]), "per pair", 5.0),
        (torch.tensor([1.0, 1, 1, 1, 1, 1, math.inf, math.inf]), "stopped", math.inf),
    ],
)
def test_schedules_are_named(slowdown, scaling, factor):
    fit = fit_schedule(geometric(5e5, 16) / slowdown, 5e5)
    assert (fit.scaling, fit.factor) == (scaling, pytest.approx(factor))
    assert fit.base == pytest.approx(5e5)
    assert str(fit).startswith("base 500000")


@pytest.mark.parametrize("slowdown", [torch.ones(8), torch.tensor([1.0, 1, 2, 3, 4, 4, 4, 4])])
def test_pairs_that_were_not_measured_change_no_schedule(slowdown):
    """The slow pairs of a model in bfloat16: their frequencies are rounding errors, and one is negative."""
    exact = geometric(5e5, 16) / slowdown
    off = exact + 4e-3 * torch.tensor([0, 0, 0, 0, 0, -0.2, 0.7, -0.9], dtype=exact.dtype)
    declared = Turning(0, 16, 16, tuple(exact.tolist()), (0.0,) * 8, None, None, base=5e5)
    measured = replace(declared, frequencies=tuple(off.tolist()), base=None, resolution=4e-3)
    assert measured.fit(declared) == declared.fit()
    assert measured.fit(replace(declared, base=1e4, frequencies=tuple(geometric(1e4, 16).tolist()))) != (
        declared.fit()
    )
    if bool((slowdown == 1).all()):
        alone = measured.fit()
        assert (alone.scaling, alone.base) == ("none", pytest.approx(5e5, rel=0.2))


def test_slopes_and_tables_of_a_bias():
    allowed = (LAG >= 0)[None]
    slopes = torch.tensor([0.5, 0.25], dtype=torch.float64)
    bias = -slopes[:, None, None] * LAG + torch.randn(2, 12, 1, dtype=torch.float64)
    torch.testing.assert_close(linear_slopes(row_centred(bias, allowed), allowed), slopes)
    bumped = bias.clone()
    bumped[1, 8, 2] += 3
    assert linear_slopes(row_centred(bumped, allowed), allowed) is None
    assert lag_table(bumped, allowed, 1e-7) is None


@pytest.mark.parametrize("buckets", [Buckets(True, 16, 64), Buckets(False, 32, 128), Buckets(True, 32, 256)])
def test_buckets_are_found_without_a_declaration(buckets):
    lag = torch.arange(-299, 300)
    table = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))[:, buckets.of(lag)]
    assert find_buckets(lag, table, None) == buckets
    assert find_buckets(lag, torch.randn(3, len(lag)), None) is None
    assert find_buckets(lag, torch.zeros(3, len(lag)), None) is None


def test_buckets_with_equal_entries_are_those_declared():
    buckets, lag = Buckets(True, 32, 128), torch.arange(-199, 200)
    entries = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    entries[:, 8:14] = entries[:, 8:9]
    table = entries[:, buckets.of(lag)]
    assert find_buckets(lag, table, buckets) == buckets
    table[0, lag.tolist().index(-3)] += 1
    table[0, lag.tolist().index(-170)] += 1
    assert find_buckets(lag, table, buckets) is None


@pytest.mark.parametrize("far", [17, 20, 50, 100, 200, 250])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_of_any_maximal_distance_are_found(far, bidirectional):
    buckets, lag = Buckets(bidirectional, 32, far), torch.arange(-299, 300)
    table = torch.randn(3, 200, generator=torch.Generator().manual_seed(0))[:, buckets.of(lag)]
    found = find_buckets(lag, table, Buckets(bidirectional, 32, 128))
    assert found is not None
    assert torch.equal(found.of(lag), buckets.of(lag))
    assert abs(found.max_distance - far) <= 1


def test_reach_counts_turns():
    frequencies = (4.0, 1.0, 0.05, 1e-3, 0.0)
    turning = Turning(0, 10, 10, frequencies, (0.0,) * 5, None, None)
    found = reach_of(turning, base=10.0, trained=100, length=200)
    assert (found.turned_in_training, found.turned, found.unseen, found.aliased) == (2, 3, 2, 1)
    assert (found.slowed_from, found.slowdown) == (2, None)
    assert [pair.pair for pair in found.pairs if pair.turned] == [0, 1, 2]
    assert [pair.pair for pair in found.pairs if pair.unseen] == [2, 3]
    assert [pair.pair for pair in found.pairs if pair.aliased] == [0]
    assert [pair.pair for pair in found.pairs if pair.slowed] == [2, 3, 4]
    assert [pair.wavelength for pair in found.pairs] == pytest.approx(
        [math.pi / 2, 2 * math.pi, 40 * math.pi, 2000 * math.pi, None]
    )
    assert found.pairs[3].slowdown == pytest.approx(10 ** (-3 / 5) / 1e-3)
    assert found.pairs[4].slowdown is None


@pytest.mark.parametrize(("error", "slowed_from"), [(0.0, 1), (0.1, 2), (1.0, None)])
def test_reach_says_where_scaling_sets_in(error, slowed_from):
    """Base 16 gives 1, 1/2, 1/4, 1/8; here the last three are slowed, as far as errors let one see."""
    turning = Turning(0, 8, 8, (1.0, 0.4, 0.05, 0.02), (0.0, error, error / 10, error / 10), None, None)
    found = reach_of(turning, base=16.0, trained=100, length=100)
    assert found.slowed_from == slowed_from
    assert found.slowdown == pytest.approx({1: 6.25, 2: 6.25, None: 1.0}[slowed_from])
    assert reach_of(turning, 16.0, 100, 100, noise=10.0).slowed_from is None


def test_phases_that_wrap_many_times_give_the_frequency():
    frequencies = torch.tensor([3.0, 1.0, 1e-5], dtype=torch.float64)
    t = torch.arange(2000, dtype=torch.float64)[:, None]
    z = torch.polar(torch.ones(2000, 3, dtype=torch.float64), t * frequencies)[None]
    found, errors, departure = phase_slopes(z)
    torch.testing.assert_close(found, frequencies, rtol=1e-9, atol=1e-13)
    assert departure < 1e-8
    assert errors.max() < 1e-12


def test_coordinates_that_shift_are_no_rotation():
    x = torch.randn(1, 2, 1, 16, dtype=torch.float64) + torch.randn(1, 2, 32, 16, dtype=torch.float64)
    assert fit_rotation(x, x, [], 1e-7) is None


def test_rows_of_a_table_are_found():
    table = torch.randn(6, 3)
    found = torch.stack([table[4], table[0], table[1] + 1])
    assert matching_rows(table, found).tolist() == [4, 0, -1]


def test_a_model_without_a_visible_kernel_is_refused():
    model = build("GPT2", "LMHeadModel", **GPT2)
    for block in model.transformer.h:
        block.attn.forward = lambda states, *_, **__: (states, None)
    with pytest.raises(
        UnsupportedError, match="GPT2LMHeadModel has no softmax attention, so there is no attention kernel"
    ):
        attention_modules(model)


def test_lengths_that_cannot_be_audited_are_refused():
    with pytest.raises(ConfigError, match="an audit's length must be at least 8; got 7"):
        audit(FAMILIES["gpt2"](), length=7)
    with pytest.raises(UnsupportedError, match="GPT2LMHeadModel does not run at length 129"):
        audit(FAMILIES["gpt2"](), length=129)


def test_an_error_of_the_model_s_own_is_not_hidden(monkeypatch):
    model = FAMILIES["gpt2"]()

    def broken(*_, **__):
        raise RuntimeError("broken inside")

    monkeypatch.setattr(model.transformer.ln_f, "forward", broken)
    with pytest.raises(
        UnsupportedError, match="does not run on tokens alone: RuntimeError: broken inside"
    ) as got:
        audit(model, length=16)
    assert isinstance(got.value.__cause__, RuntimeError)


def test_a_slowly_turning_model_of_another_head_count_is_not_compared():
    one, two = (audit(llama(num_attention_heads=heads, head_dim=16), length=16) for heads in (4, 2))
    with pytest.raises(ConfigError, match="at the same number of heads; got 4 and 2"):
        diff(one, two)
    with pytest.raises(ConfigError, match="at the same number of length; got 16 and 32"):
        diff(one, audit(llama(), length=32))


def test_one_adjacent_pair_fewer_is_seen_and_slow_ones_are_taken_as_declared():
    slow = audit(build("Cohere", **SLOW), length=16)
    assert slow.ok
    errors = slow.layers[0].effective.turning.errors
    assert errors[-1] > 1e-7 > errors[0]


SLOW = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e12},
}


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "MPNet", "Esm"])
def test_a_table_that_begins_behind_the_padding_is_audited_as_far_as_it_reaches(family):
    model = build(family, "Model", **SIZES | {"pad_token_id": 1, "mask_token_id": 4})
    assert trained_length(model) == 126
    found = audit(model)
    assert found.length == 126
    assert found.absolutes[0].first_row == 2
    with pytest.raises(UnsupportedError, match=r"does not run at length 127; .* 126 positions"):
        audit(model, length=127)


@pytest.mark.parametrize(
    ("family", "sizes", "way"),
    [
        ("ViT", SEEN, "give a model of text"),
        ("Whisper", HEARD, "`spectrope audit --part` takes its parts by themselves: encoder, decoder"),
    ],
)
def test_models_of_images_and_sounds_are_refused(family, sizes, way):
    model = build(family, "Model", **sizes)
    with pytest.raises(UnsupportedError, match=f"{family}Model takes no tokens but .*; {way}"):
        audit(model)
    with pytest.raises(UnsupportedError, match="takes no tokens but"):
        drawable_tokens(model)


def test_a_model_that_wants_an_image_beside_the_tokens_is_refused():
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = size | {"image_size": 8, "patch_size": 4}
    text = size | {"vocab_size": 99, "max_position_embeddings": 32, "eos_token_id": 2}
    model = build("CLIP", "Model", text_config=text, vision_config=vision)
    with pytest.raises(
        UnsupportedError, match=r"CLIPModel does not run on tokens alone \(.+\), but takes image too"
    ):
        attention_modules(model)
    with pytest.raises(UnsupportedError, match="CLIPModel does not run on tokens alone"):
        audit(model)


def redrawn(family, *parts):
    """The family's model with the weights drawn anew whose names hold one of these."""
    model = FAMILIES[family]()
    for name, weight in model.named_parameters():
        if any(part in name for part in parts):
            torch.nn.init.normal_(weight)
    return model


@pytest.mark.parametrize(
    ("family", "weights", "what"),
    [
        ("gpt2", "wpe", {"embeddings": "vectors by position"}),
        ("bert", "position_embeddings", {"embeddings": "vectors by position"}),
        (
            "t5",
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            {"encoder 0": "bias less that at lag 0", "encoder 1": "bias less that at lag 0"},
        ),
    ],
)
def test_learned_positions_of_other_values_differ(family, weights, what):
    first, same, other = (
        audit(model, length=16)
        for model in (FAMILIES[family](), redrawn(family, "wte", "mlp", "lm_head"), redrawn(family, weights))
    )
    assert diff(first, same).same
    found = {layer.layer: [finding.what for finding in layer.findings] for layer in diff(first, other).layers}
    assert {layer: kinds for layer, kinds in found.items() if kinds} == {k: [v] for k, v in what.items()}


def test_vectors_by_position_of_other_widths_differ():
    one, two = (audit(build("GPT2", "Model", **GPT2 | {"n_embd": n}), length=16) for n in (64, 32))
    (found,) = diff(one, two).layers[0].findings
    assert (found.expected, found.effective) == ("64 coordinates", "32 coordinates")


def test_buckets_are_found_in_rounded_biases():
    buckets, lag = Buckets(True, 16, 64), torch.arange(-99, 100)
    rng = torch.Generator().manual_seed(0)
    table = torch.randn(3, 200, generator=rng)[:, buckets.of(lag)]
    rounded = table + 1e-6 * torch.rand(table.shape, generator=rng)
    assert find_buckets(lag, rounded, None) is None
    assert find_buckets(lag, rounded, None, 2e-6) == buckets
    assert find_buckets(lag, rounded, None, 9.0) is None


def test_buckets_of_logits_alone_raise_no_alarm():
    found = audit(build("MPNet", "Model", **SIZES | {"pad_token_id": 1}), length=64)
    assert [layer.effective.kind for layer in found.layers] == ["bucketed bias"] * 2
    assert not [finding for layer in found.layers for finding in layer.findings]


def test_queries_scaled_before_they_turn_raise_no_alarm():
    sizes = SIZES | {"pad_token_id": 1, "mask_token_id": 4, "position_embedding_type": "rotary"}
    found = audit(build("Esm", "Model", **sizes), length=64)
    assert [layer.verdict for layer in found.layers] == ["matches", "matches"]
    assert [layer.scale for layer in found.layers] == [0.25, 0.25]
