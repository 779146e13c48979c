"""What configurations declare, in old and new layouts, against values worked out apart from the library."""

import json
import math

import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, ROPES, SIZES, build, llama
from tests.checkpoints.audit.saved_files import edit, quick, saved
from transformers import LlamaForCausalLM
from transformers.models.esm import modeling_esm

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit, pair_layouts
from spectrope.checkpoints.audit.declaration import (
    declared_layer,
    declared_mask,
    declared_offset,
    declared_slopes,
)
from spectrope.checkpoints.audit.encoding import Mask
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.text import LAYOUT, closing
from spectrope.core import unwatched
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


def read(fields: dict) -> tuple[float, float]:
    """Base and first frequency that a file's fields declare, beside a library that reads no more of them."""
    found = turning(file=fields)
    return found.base, found.frequencies[0]


def test_what_new_parameters_lack_is_taken_from_the_old_layout_beside_them():
    linear = {"rope_type": "linear", "factor": 4.0}
    assert read({"rope_theta": 5e5, "rope_parameters": linear}) == (5e5, 0.25)
    assert read({"rope_theta": 5e5, "rope_parameters": {}}) == (5e5, 1.0)
    assert read({"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 7e3}}) == (7e3, 0.25)
    assert read({"rotary_emb_base": 5e4, "rope_parameters": linear}) == (5e4, 0.25)
    assert read({"rope_parameters": linear}) == (1e4, 0.25)
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    assert turning(file={"rope_theta": 5e5, "rope_parameters": yarn}).base == 5e5


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "linear", "factor": 4.0}},
        {"rope_theta": 5e5, "rope_parameters": ROPES["yarn"] | {"rope_theta": None}},
        {"rope_theta": 5e5, "rope_parameters": {}},
        {"rope_parameters": {"type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ],
)
def test_a_half_migrated_file_is_read_as_the_library_reads_it(fields, tmp_path):
    llama().save_pretrained(tmp_path)
    stated = {key: value for key, value in fields["rope_parameters"].items() if value is not None}
    edit(tmp_path, fields | {"rope_parameters": stated})
    assert quick(tmp_path).ok


def test_of_bases_per_layer_those_that_the_class_reads_hold():
    library = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}}
    file = {"rope_theta": [5e5, 5e5], "partial_rotary_factors": [1.0, 1.0]}
    assert turning(file=file, **library).base == 5e5


def test_the_base_of_gpt_neox_stands_beside_new_parameters(tmp_path):
    saved(tmp_path, "GPTNeoX", rotary_pct=0.25)
    edit(tmp_path, {"rotary_emb_base": 5e4, "rope_parameters": {"rope_type": "linear", "factor": 2.0}})
    found = quick(tmp_path)
    assert found.ok
    assert found.layers[0].declared.turning.base == 5e4


def test_a_model_that_was_loaded_with_other_fields_is_held_against_its_own(tmp_path):
    llama().save_pretrained(tmp_path)
    overridden = LlamaForCausalLM.from_pretrained(tmp_path, rope_parameters=dict(ROPES["yarn"])).eval()
    found = audit(overridden, length=64, serving_modes=False, reach=False, watch=unwatched)
    assert found.ok
    assert found.layers[0].declared.turning.fit().scaling == "ramp"


@pytest.mark.parametrize(
    ("family", "pairing"),
    [(name, "halves") for name in ("mllama_text_model", "emu3_text_model", "chameleon", "csm", "moshi")]
    + [("blt_global_transformer", "adjacent"), ("ernie4_5_vl_moe_text", "adjacent")],
)
def test_a_family_has_the_layout_of_its_code(family, pairing):
    found = turning(model_type=family)
    assert (found.pairing, found.sense) == (pairing, 1)


def test_a_rotation_the_other_way_is_found_in_esm(monkeypatch):
    sizes = {"position_embedding_type": "rotary", "vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32}
    model = build("Esm", "ForMaskedLM", **SIZES | sizes)
    assert audit(model, length=32, serving_modes=False, reach=False, watch=unwatched).ok
    forward = modeling_esm.rotate_half
    monkeypatch.setattr(modeling_esm, "rotate_half", lambda x: -forward(x))
    found = audit(model, length=32, serving_modes=False, reach=False, watch=unwatched)
    assert {one.code for _, one in found.findings} == {"SPE107"}


def test_a_layout_that_is_not_known_is_said_to_be_unchecked(monkeypatch):
    model = llama()
    assert LAYOUT not in closing(audit(model, length=32, serving_modes=False, reach=False, watch=unwatched))
    monkeypatch.setattr(pair_layouts, "HALVES", frozenset())
    assert LAYOUT in closing(audit(model, length=32, serving_modes=False, reach=False, watch=unwatched))
