"""Fields of a configuration that the model's code ignores are found; those that say nothing new are not."""

import inspect
import json

import pytest
from tests.checkpoints.audit.families import GROUPED, build, llama
from transformers import BertConfig, BertModel

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.core import unwatched

IGNORED = {
    "attention_chunk_size": 16,
    "attention_multiplier": 0.01,
    "attn_temperature_tuning": True,
    "clip_qkv": 8.0,
    "dual_chunk_attention_config": {"chunk_size": 64},
    "position_embedding_type": "alibi",
    "rope_ratio": 50,
    "use_alibi": True,
    "use_dynamic_ntk": True,
    "use_logn_attn": True,
    "use_qk_norm": True,
}
NOTHING_NEW = {
    "attention_multiplier": None,
    "position_embedding_type": "rope",
    "rope_ratio": 1.0,
    "use_alibi": False,
    "use_logn_attn": False,
    "qk_layernorm": False,
    "qk_norm": "none",
}


def audited(model):
    return audit(model, length=32, serving_modes=False, watch=unwatched)


@pytest.mark.parametrize("field", IGNORED)
def test_a_field_that_the_class_ignores_is_found(field):
    found = audited(build("Llama", **GROUPED | {field: IGNORED[field]}))
    assert found.outcome == "differs"
    [(where, finding)] = found.findings
    assert (where, finding.code, finding.what) == ("checkpoint", "SPE117", f"field {field}")
    assert finding.expected == str(IGNORED[field])
    assert "the code of LlamaModel does not name it" in str(finding)
    assert [(one.code, one.layer) for one in found.records] == [("SPE117", None)]
    assert all(layer.verdict == "matches" for layer in found.layers)


@pytest.mark.parametrize("field", NOTHING_NEW)
def test_a_value_that_declares_nothing_new_passes(field):
    assert audited(build("Llama", **GROUPED | {field: NOTHING_NEW[field]})).ok


@pytest.mark.parametrize(
    ("family", "fields"),
    [("Bloom", {"use_alibi": True}), ("Bloom", {"position_embedding_type": "alibi"}),
     ("Qwen2", {"attention_multiplier": 0.25})],
)  # fmt: skip
def test_a_field_that_says_what_the_class_does_anyway_passes(family, fields):
    sizes = {"hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 64} if family == "Bloom" else GROUPED
    assert audited(build(family, **sizes | fields)).ok


def test_a_norm_that_the_class_always_has_may_be_stated():
    assert audited(build("Qwen3", **GROUPED | {"use_qk_norm": True})).ok


def test_a_class_that_reads_a_field_has_it_compared_elsewhere():
    found = audited(build("Granite", **GROUPED | {"attention_multiplier": 0.25}))
    assert found.ok
    assert found.ignored == ()


@pytest.mark.parametrize("kind", ["relative_key", "relative_key_query"])
def test_a_relative_encoding_that_the_library_has_dropped_is_found(kind):
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 32}
    model = BertModel(BertConfig(vocab_size=64, position_embedding_type=kind, **sizes)).eval()
    assert [(where, one.code, one.expected) for where, one in audited(model).findings] == [
        ("checkpoint", "SPE117", kind)
    ]


def test_without_the_source_nothing_is_said(monkeypatch):
    def missing(_: object) -> str:
        raise OSError

    model = build("Llama", **GROUPED | {"use_logn_attn": True})
    monkeypatch.setattr(inspect, "getsource", missing)
    assert audited(model).ignored == ()


@pytest.mark.parametrize(
    ("name", "scaling", "field"),
    [
        ("rope_scaling", {"factor": 4.0}, "rope_scaling.factor"),
        ("rope_scaling", {"type": "default", "factor": 4.0}, "rope_scaling.factor"),
        ("rope_parameters", {"rope_theta": 1e4, "factor": 4.0}, "rope_parameters.factor"),
        ("rope_parameters", {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}, None),
        ("rope_parameters", {"rope_theta": 1e4, "factor": 1.0}, None),
    ],
)
def test_a_factor_of_a_scaling_without_a_kind_is_found(name, scaling, field, tmp_path):
    llama().save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    fields = json.loads(file.read_text()) | {"rope_parameters": None, name: scaling}
    file.write_text(json.dumps(fields))
    found = audited(open_model(tmp_path))
    expected = [] if field is None else [("SPE117", f"field {field}", "4.0")]
    assert [(one.code, one.what, one.expected) for _, one in found.findings] == expected
