"""A seeded sample of configurations as published checkpoints write them: an audit raises no alarm.

`python -m tests.checkpoints.audit.published` audits all of them.
"""

import random

import pytest
from tests.checkpoints.audit.published import FILES, audited, saved

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.declaration import declared_layer
from spectrope.checkpoints.audit.fields import Declaration

# Once refused, or taken for faults.
MENDED = ("Qwen2-VL", "Qwen2.5-VL with YaRN", "Gemma 3 27B", "OLMo 3")
SAMPLE = sorted({*random.Random(32).sample(sorted(FILES), 6), *MENDED})


@pytest.mark.parametrize("name", SAMPLE)
def test_a_published_configuration_matches(name, tmp_path):
    found = audited(saved(name, tmp_path))
    assert found.ok, found.findings
    assert {layer.verdict for layer in found.layers} == {"matches"}
    assert not found.unexercised


def test_sliding_layers_of_olmo_3_have_the_base_of_the_file(tmp_path):
    """transformers takes its default of 500000 for them, whatever the file's `rope_theta` is."""
    found = audited(saved("OLMo 3", tmp_path, rope_theta=2e5))
    assert [layer.verdict for layer in found.layers] == ["differs", "matches"]
    (one,) = found.layers[0].findings
    assert str(one).startswith("base: 200000 declared, 500000 effective")


def test_sliding_layers_of_gemma_3_are_not_scaled_and_have_their_own_base():
    text = {"model_type": "gemma3_text", **FILES["Gemma 3 27B"]["text_config"]}
    file = text | {"rope_theta": 1e6, "layer_types": ["sliding_attention", "full_attention"]}

    def turning(layer, **fields):
        return declared_layer(Declaration(file | fields, file | fields), "", layer, 16).turning

    assert (turning(0).base, turning(0).frequencies[0]) == (1e4, 1.0)
    assert turning(0, rope_local_base_freq=5e4).base == 5e4
    assert (turning(1).base, turning(1).frequencies[0]) == (1e6, 0.125)


def test_sections_are_those_of_the_file_and_not_those_that_the_loader_made_of_them(tmp_path):
    opened = open_model(saved("Qwen2-VL", tmp_path))
    saved("Qwen2-VL", tmp_path, rope_scaling={"type": "mrope", "mrope_section": [4, 2, 2]})
    (text,) = {str(one) for layer in audit(opened, length=64).layers for one in layer.findings}
    wanted, _, got = text.partition(" declared, ")
    assert wanted == "axes: pairs 0 to 3 with time, 4 to 5 with height, 6 to 7 with width"
    assert got.startswith("pairs 0 to 1 with time, 2 to 4 with height, 5 to 7 with width effective")
