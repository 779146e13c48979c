"""Faults in families other than those of their tests, which were once missed or misnamed there.

`python -m tests.checkpoints.audit.crossed` puts every fault into every family.
"""

import pytest
import torch
from tests.checkpoints.audit.crossed import FAULTS, applies, judged, sound
from tests.checkpoints.audit.injections import masked
from tests.checkpoints.audit.zoo import model_class, small_config

from spectrope.checkpoints.audit import audit

MENDED = (
    ("queries scaled twice", "hunyuan_v1_dense"),  # Behind norms that follow the rotation.
    ("queries scaled twice", "llama4_text"),
    ("head 1 scaled", "llama4_text"),
    ("keys one ahead", "hunyuan_v1_dense"),  # Before such norms.
    ("keys five ahead in layer 1", "hunyuan_v1_moe"),
    ("key head 1 two ahead", "hunyuan_vl_text"),
    ("rotation starts at 3", "hunyuan_v1_dense"),
    ("rotation of queries alone", "nanochat"),
    ("sine without its minus sign", "hunyuan_v1_dense"),
    ("neighbours paired, angles in halves", "hunyuan_vl_text"),
    ("queries scaled twice", "kimi_linear"),  # Whose keys come from two projections.
    ("keys turned backwards", "cohere_compass_text"),  # Whose sense of rotation was not known.
    ("keys turned backwards", "hunyuan_vl_text"),
    ("an encoder made causal", "embedding_gemma2_text"),  # Whose direction was not known.
)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "family"), MENDED)
def test_a_fault_that_was_missed_is_named(name, family):
    assert sound(family).ok
    word, why = judged(name, family)
    assert word == "named", why


@pytest.mark.parametrize("family", ["cosmos3_edge_text", "qwen4_exp_text"])
def test_the_pairing_of_recent_families_is_declared(family):
    turnings = [(one.declared.turning, one.effective.turning) for one in sound(family).layers]
    assert any(turnings[-1])
    for declared, effective in turnings:
        assert declared is None or (declared.pairing, declared.sense) == (effective.pairing, effective.sense)


def test_a_fault_of_causal_models_is_put_into_no_encoder():
    assert set(FAULTS) >= {"blocks instead of all keys", "no causal mask"}
    assert applies("blocks instead of all keys", "llama")
    assert not applies("blocks instead of all keys", "bert")


def test_a_model_without_a_fault_counts_as_one_in_which_it_does_nothing(monkeypatch):
    monkeypatch.setitem(
        FAULTS, "none", (lambda model, patch: None, ("llama-default",), "SPE101", None, {None})
    )
    assert judged("none", "llama") == ("", "")


def test_the_radius_of_a_window_that_looks_both_ways_is_compared(monkeypatch):
    config = small_config("embedding_gemma2_text")
    config.layer_types, config.sliding_window = ["sliding_attention", "full_attention"], 16
    torch.manual_seed(0)
    model = model_class(config, "EmbeddingGemma2TextModel")(config).eval()
    found = audit(model, length=64)
    assert found.ok
    assert str(found.layers[0].effective.mask) == "bidirectional window 16"
    masked(lambda lag: lag.abs() <= 20, [0])(model, monkeypatch)
    (record,) = audit(model, length=64, serving_modes=False).records
    assert (record.code, record.layer, record.effective) == ("SPE202", 0, "bidirectional window 20")
