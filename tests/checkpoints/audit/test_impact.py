"""The impact of findings: the model put right predicts what the sound model does."""

import json

import pytest
import torch
from tests.checkpoints.audit.families import LENGTH, build, llama
from tests.checkpoints.audit.injections import (
    at_kernel,
    attending,
    later,
    looked_up,
    masked,
    rotating,
    sinusoidal,
)
from tests.checkpoints.audit.museum import NAMES
from tests.checkpoints.audit.sweep import Edited
from tests.checkpoints.audit.sweep import build as build_edited
from tests.checkpoints.audit.test_injections import halves_swapped, model_of

from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.predictions import Predictions
from spectrope.core.errors import ConfigError

RESTORED = (
    "base fixed in a converter",
    "global scaling on sliding layers",
    "explicit attention factor ignored",
    "mscale left out of the logits",
    "whole width rotated",
    "partners half a whole head away",
    "weights in halves, code in neighbours",
    "latent heads without their permutation",
    "rotation in a layer without one",
    "window without its last key",
    "chunk of another length",
    "rest of a block of 32 keys seen",
    "cap of logits that are not scaled",
    "groups of values in turns",
    "parts of the sequence in zigzag",
    "buckets both ways in a decoder",
    "biases scaled with the logits",
    "rows from 0 instead of after the padding's",
)


def impacts(model):
    return {one.code: one.impact for one in audit(model, length=LENGTH).records}


@pytest.mark.sampled
@pytest.mark.parametrize("name", RESTORED)
def test_the_impact_is_the_divergence_from_the_sound_model(name, monkeypatch):
    sound = Predictions.of(NAMES[name].sound(), LENGTH, 0)
    model = NAMES[name].model(monkeypatch)
    record = audit(model, length=LENGTH).records[0]
    wrong = Predictions.of(model, LENGTH, 0)
    direct = (sound.seen.exp() * (sound.seen - wrong.seen)).sum(-1).mean().item()
    assert record.impact.divergence == pytest.approx(direct, rel=0.02, abs=1e-11)
    assert record.impact.lengths[-1] == LENGTH - 1
    if record.impact.loss is not None:
        assert record.impact.loss == pytest.approx(wrong.loss(wrong.seen) - sound.loss(sound.seen), abs=1e-4)


@pytest.mark.parametrize(
    ("name", "inject", "said"),
    [
        ("gpt2", looked_up(lambda rows: rows + 1), "first position: row 0 declared, row 1 effective"),
        ("gpt2", looked_up(lambda rows: rows.flip(-1)), "positions: those of the tokens declared"),
        ("xglm", sinusoidal(halves_swapped), "cosines before sines effective"),
        ("xglm", sinusoidal(lambda table: 2 * table.roll(-1, 0)), "vectors of no known convention effective"),
    ],
)
def test_the_impact_of_a_table_of_positions_is_the_divergence_from_the_sound_model(
    name, inject, said, monkeypatch
):
    sound = Predictions.of(model_of(name), LENGTH, 0)
    model = model_of(name)
    inject(model, monkeypatch)
    (record,) = audit(model, length=LENGTH).records
    assert said in record.message
    wrong = Predictions.of(model, LENGTH, 0)
    direct = (sound.seen.exp() * (sound.seen - wrong.seen)).sum(-1).mean().item()
    assert direct > 1e-6
    assert record.impact.divergence == pytest.approx(direct, rel=1e-3)
    assert "next-token divergence" in str(record.impact)


def test_a_shift_of_queries_and_keys_alike_is_harmless(monkeypatch):
    model = llama()
    rotating(lambda own, q, k, c, s: own(q, k, *later(c, s, 3)))(model, monkeypatch)
    found = audit(model, length=LENGTH)
    assert {one.code for one in found.records} == {"SPE402"}
    assert all(one.impact.harmless and one.impact.layers == 2 for one in found.records)
    assert "harmless: predictions are the same up to rounding over 95 tokens" in str(found)


def test_what_matters_more_comes_first(monkeypatch):
    model = llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4}, initializer_range=0.2)
    masked(lambda lag: lag < 9999, [1])(model, monkeypatch)
    model.config.rope_parameters["rope_theta"] = 1.1e4
    records = audit(model, length=LENGTH).records
    sizes = [one.impact.divergence for one in records]
    assert [one.code for one in records] == ["SPE201", "SPE101", "SPE101"]
    assert sizes == sorted(sizes, reverse=True)
    text = str(audit(model, length=LENGTH))
    assert text.index("SPE201") < text.index("SPE101")


def test_a_finding_of_a_window_has_no_impact_before_it(monkeypatch):
    impact = audit(NAMES["window without its last key"].model(monkeypatch), length=LENGTH).records[0].impact
    by_length = dict(zip(impact.lengths, impact.by_length, strict=True))
    assert by_length[8] == by_length[16] == 0
    assert by_length[95] > 1e-6


@pytest.mark.parametrize(
    ("name", "inject", "code", "reason"),
    [
        ("bloom", None, "SPE404", "its code calls no attention function that can be replaced"),
        ("gpt2", looked_up(lambda rows: 0 * rows), "SPE401", "no table whose rows differ is looked up"),
        (
            "llama-default",
            at_kernel(lambda q, k, v: (q, k * (1 + 0.01 * torch.arange(k.shape[2]))[:, None], v)),
            "SPE403",
            "the declared growth is known only at the last position",
        ),
    ],
)
def test_why_an_impact_was_not_computed(name, inject, code, reason, monkeypatch):
    model = model_of(name)
    if inject is None:
        for module in model.modules():
            if hasattr(module, "inv_norm_factor"):
                module.inv_norm_factor *= 2
    else:
        inject(model, monkeypatch)
    impact = impacts(model)[code]
    assert (impact.divergence, impact.loss, impact.reason) == (None, None, reason)
    assert str(impact) == f"impact not computed: {reason}"


def test_a_model_without_a_head_predicts_nothing():
    model = build("Llama", head="Model", vocab_size=64, hidden_size=64, num_attention_heads=4)
    model.config.rope_parameters["rope_theta"] = 5.0
    assert impacts(model)["SPE101"].reason == "the model was loaded without a head that predicts tokens"


def test_json_holds_the_impact_with_each_finding(monkeypatch):
    found = audit(NAMES["no local base"].model(monkeypatch), length=LENGTH)
    values = json.loads(json.dumps(found.to_dict()))
    (finding,) = values["findings"]
    assert finding["impact"]["divergence"] > 0
    assert len(finding["impact"]["lengths"]) == len(finding["impact"]["by_length"])
    assert "impacts" not in values


def test_an_impact_is_measured_on_a_text_that_is_given():
    model = llama()
    model.model.rotary_emb.inv_freq *= 0.5
    text = torch.randint(5, 60, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    on_text, random = (audit(model, length=LENGTH, text=one).records[0].impact for one in (text, None))
    assert (on_text.on_text, random.on_text) == (True, False)
    assert on_text.lengths[-1] <= 40
    assert on_text.divergence != random.divergence
    assert " tokens of the text" in str(on_text)
    with pytest.raises(ConfigError, match="an impact is measured on at least 16 tokens of a text; got 15"):
        audit(model, text=text[:15])


def test_a_mask_that_the_function_draws_by_itself_is_put_right_within_it(monkeypatch):
    def late(own, q, k, v, mask, given):
        lag = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        return own(q, k, v, (lag >= 0) & (lag < 8))

    model = llama(initializer_range=0.2)
    attending(late)(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE202"}
    assert all(one.impact.divergence > 1e-4 for one in records)


def test_rounding_in_low_precision_is_measured(monkeypatch):
    """A window that is one key short changes predictions by less than squares of bfloat16's resolution."""
    model = build_edited(Edited("mistral", "window", {"sliding_window": 24})).to(torch.bfloat16)
    masked(lambda lag: (lag >= 0) & (lag < 23), [1])(model, monkeypatch)
    (record,) = audit(model, length=LENGTH).records
    assert record.code == "SPE202"
    assert not record.impact.harmless
    assert record.impact.divergence < 10 * 2**-14


def test_a_bias_that_the_function_drops_is_put_right_within_it(monkeypatch):
    model = model_of("t5")
    attending(lambda own, q, k, v, mask, given: own(q, k, v, mask, position_bias=None))(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE110"}
    assert all(one.impact.divergence > 1e-6 for one in records)
