"""What configurations declare, in old and new layouts, against values worked out apart from the library."""

import json
import math

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, llama

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.declaration import (
    contradictions,
    declared_layer,
    declared_mask,
    declared_offset,
    declared_slopes,
)
from spectrope.checkpoints.audit.encoding import Mask
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.core.errors import ConfigError

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}


def turning(length: int = 16, file: dict | None = None, **library):
    return declared_layer(Declaration(LLAMA | library, file or {}), "", 0, length).turning


def test_a_file_in_the_old_layout_wins():
    assert turning().base == 1e4
    assert turning(file={"rope_theta": 5e5}).base == 5e5
    scaled = turning(file={"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}})
    assert scaled.frequencies[0] == 0.5
    assert scaled.base == 5e5
    kept = turning(file={"rope_scaling": {"rope_type": "linear", "factor": 4.0}})
    assert kept.frequencies[:2] == pytest.approx((0.25, 0.25 * 1e4 ** (-1 / 8)))
    assert turning(file={"rotary_emb_base": 25000}).base == 25000
    assert turning(file={"rope_theta": 7.0, "rope_parameters": {"rope_theta": 9.0}}).base == 9.0


def test_sliding_layers_of_the_old_layout_have_a_base_of_their_own():
    file = {
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    types = {"layer_types": ["sliding_attention", "full_attention"]}
    declaration = Declaration(LLAMA | types, file)
    sliding, full = (declared_layer(declaration, "", n, 16).turning for n in (0, 1))
    assert (sliding.base, sliding.frequencies[0]) == (1e4, 1.0)
    assert (full.base, full.frequencies[0]) == (1e6, 0.125)


def test_a_base_that_the_loader_loses_is_found(tmp_path, monkeypatch):
    """The file says 500000 in the old layout; a library that reads the new one alone runs with 10000."""
    model = llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_theta"] = 5e5
    (tmp_path / "config.json").write_text(json.dumps(config))
    kept = {key: value for key, value in config.items() if key != "rope_parameters"}
    opened = open_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(kept))
    found = audit(opened, length=64)
    assert {str(finding) for _, finding in found.findings} == {"base: 500000 declared, 10000 effective"}
    assert audit(open_model(tmp_path), length=64).ok


def test_yarn_by_hand():
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 1024}
    found = turning(rope_parameters=yarn)
    assert found.gain == pytest.approx((0.1 * math.log(4) + 1) ** 2)
    assert found.frequencies[0] == 1
    assert found.frequencies[-1] == pytest.approx(1e4 ** (-14 / 16) / 4)
    weighted = turning(rope_parameters=yarn | {"mscale": 1.0, "mscale_all_dim": 0.5})
    assert weighted.gain == pytest.approx(((0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)) ** 2)
    assert turning(rope_parameters=yarn | {"attention_factor": 1.0}).gain == 1
    implied = turning(rope_parameters={key: value for key, value in yarn.items() if key != "factor"})
    assert implied.frequencies == found.frequencies


def test_longrope_and_dynamic_depend_on_the_length():
    long = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 8,
        "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 1024,
    }
    assert turning(1024, rope_parameters=long).frequencies[0] == 1
    assert turning(1025, rope_parameters=long).frequencies[0] == 0.5
    assert turning(16, rope_parameters=long).gain == pytest.approx(1 + math.log(4) / math.log(1024))
    dynamic = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert turning(4096, rope_parameters=dynamic).frequencies[-1] == pytest.approx(1e4 ** (-14 / 16))
    assert turning(8192, rope_parameters=dynamic).frequencies[-1] == pytest.approx(1e4 ** (-14 / 16) / 3)


def test_proportional_stops_the_slowest_pairs():
    found = turning(rope_parameters={"rope_type": "proportional", "partial_rotary_factor": 0.25})
    assert [f > 0 for f in found.frequencies] == [True] * 2 + [False] * 6


def test_unknown_kinds_and_missing_fields_are_refused():
    with pytest.raises(ConfigError, match="rope_type 'spiral' is not known here; known: default, linear"):
        turning(rope_parameters={"rope_type": "spiral"})
    with pytest.raises(ConfigError, match="of 'bloom' has no num_attention_heads or n_head"):
        declared_slopes(Declaration({"model_type": "bloom"}, {}))


def test_masks_come_from_layer_types():
    fields = {
        "sliding_window": 8,
        "attention_chunk_size": 16,
        "layer_types": ["full_attention", "chunked_attention"],
    }
    declaration = Declaration(fields, {})
    assert declared_mask(declaration, 0) == Mask("unlimited")
    assert declared_mask(declaration, 1) == Mask("causal chunk", 16)
    assert declared_mask(Declaration({"sliding_window": 8}, {}), 0) == Mask("causal window", 8)
    assert declared_mask(Declaration({"sliding_window": 8, "use_sliding_window": False}, {}), 0) is None
    assert declared_mask(Declaration({}, {}), 0) is None


def test_tables_start_at_their_family_s_row():
    assert declared_offset(Declaration({"model_type": "roberta", "pad_token_id": 1}, {})) == 2
    assert declared_offset(Declaration({"model_type": "opt"}, {})) == 2
    assert (
        declared_offset(Declaration({"model_type": "bert", "position_embedding_type": "relative_key"}, {}))
        is None
    )
    assert declared_offset(Declaration(LLAMA, {})) is None


def test_slopes_of_six_heads():
    expected = [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    bloom = Declaration({"model_type": "bloom", "n_head": 6}, {})
    assert declared_slopes(bloom) == pytest.approx(expected)
    falcon = {"model_type": "falcon", "alibi": True, "num_attention_heads": 6, "hidden_size": 96}
    assert declared_slopes(Declaration(falcon, {})) == pytest.approx([slope / 4 for slope in expected])
    steeper = {"model_type": "mpt", "n_heads": 4, "attn_config": {"alibi": True, "alibi_bias_max": 16}}
    assert declared_slopes(Declaration(steeper, {})) == pytest.approx([2**-4, 2**-8, 2**-12, 2**-16])


def test_a_table_of_one_value_tells_nothing():
    model = FAMILIES["t5"]()
    torch.nn.init.constant_(model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight, 0.5)
    found = audit(model, length=32)
    assert [layer.verdict for layer in found.layers] == ["cannot tell"] * 2 + ["matches"] * 2
    assert found.layers[0].reason == "the table holds the same value in every bucket"


@pytest.mark.parametrize(
    ("leftover", "finding"),
    [
        ({"rope_theta": 5e5}, "two bases: 500000 (rope_theta) and 10000 (rope_parameters)"),
        ({"rope_theta": 10000}, None),
        ({"rope_scaling": None}, None),
        ({"rope_scaling": {"type": "default"}}, None),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            "two scalings: factor 4.0, rope_type linear (rope_scaling) and factor None, rope_type default",
        ),
    ],
)
def test_a_file_that_contradicts_itself_does_not_match(leftover, finding, tmp_path):
    llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | leftover))
    found = audit(open_model(tmp_path), length=64)
    assert found.ok == (finding is None)
    if finding is not None:
        told = [str(one) for _, one in found.findings]
        assert any(one.startswith(f"config.json declares {finding}") for one in told)


def test_sliding_layers_are_held_against_their_own_base():
    new = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    file = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_parameters": new}
    types = {"layer_types": ["sliding_attention", "full_attention"]}
    assert [contradictions(Declaration(LLAMA | types, file), n) for n in (0, 1)] == [[], []]
    swapped = file | {"rope_theta": 1e4, "rope_local_base_freq": 1e6}
    told = [contradictions(Declaration(LLAMA | types, swapped), n)[0][1] for n in (0, 1)]
    assert told[0] == "1e+06 (rope_local_base_freq) and 10000 (rope_parameters)"
    assert told[1] == "10000 (rope_theta) and 1e+06 (rope_parameters)"
