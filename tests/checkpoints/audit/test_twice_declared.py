"""Fields of two layouts that declare the same thing, and disagree (SPE601)."""

import json

import pytest
from tests.checkpoints.audit.families import ROPES, llama
from tests.checkpoints.audit.saved_files import edit, quick, saved
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from spectrope.checkpoints.adapters import open_model
from spectrope.checkpoints.audit import audit
from spectrope.checkpoints.audit.declaration import contradictions
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.twice_declared import SUCCESSIONS, entry_conflicts, rotary_conflicts

FOUR = {"num_hidden_layers": 4, "max_position_embeddings": 128, "num_key_value_heads": 2}
MASKED = {"head": "ForMaskedLM"}
LINEAR = {f"linear_num_{one}_heads": 2 for one in ("key", "value")} | {
    "num_experts": 2,
    "num_experts_per_tok": 1,
}
GEMMA = FOUR | {"config": "TextConfig", "head_dim": 16, "sliding_window": 20}
ENTRIES = "the configuration declares two entries of "
TWICE = {
    "rotary_pct": (
        ("GPTNeoX", {"rotary_pct": 0.25}),
        {"rotary_pct": 0.5},
        ("the configuration declares two rotated fractions", "0.5 (rotary_pct) and 0.25 (rope_parameters)"),
    ),
    "partial_rotary_factor": (
        ("Phi", {}),
        {"partial_rotary_factor": 0.25},
        (
            "the configuration declares two rotated fractions",
            "0.25 (partial_rotary_factor) and 0.5 (rope_parameters)",
        ),
    ),
    "global_rope_theta": (
        ("ModernBert", FOUR | MASKED | {"local_attention": 10}),
        {"global_rope_theta": 5e5},
        ("the configuration declares two bases", "500000 (global_rope_theta) and 160000 (rope_parameters)"),
    ),
    "local_rope_theta": (
        ("ModernBert", FOUR | MASKED | {"local_attention": 10}),
        {"local_rope_theta": 77.0},
        ("the configuration declares two bases", "77 (local_rope_theta) and 10000 (rope_parameters)"),
    ),
    "global_attn_every_n_layers": (
        ("ModernBert", FOUR | MASKED | {"global_attn_every_n_layers": 2}),
        {"global_attn_every_n_layers": 3},
        (
            f"{ENTRIES}layer_types",
            "sliding_attention (global_attn_every_n_layers 3) and full_attention (layer_types)",
        ),
    ),
    "sliding_window_pattern": (
        ("Gemma3", GEMMA),
        {"sliding_window_pattern": 2},
        (
            f"{ENTRIES}layer_types",
            "full_attention (sliding_window_pattern 2) and sliding_attention (layer_types)",
        ),
    ),
    "global_attn_every_n_layers of a decoder": (
        ("Afmoe", FOUR | {"sliding_window": 20, "global_attn_every_n_layers": 2}),
        {"global_attn_every_n_layers": 3},
        (
            f"{ENTRIES}layer_types",
            "sliding_attention (global_attn_every_n_layers 3) and full_attention (layer_types)",
        ),
    ),
    "full_attention_interval": (
        ("Qwen3Next", FOUR | LINEAR),
        {"full_attention_interval": 3},
        (
            f"{ENTRIES}layer_types",
            "linear_attention (full_attention_interval 3) and full_attention (layer_types)",
        ),
    ),
    "max_window_layers": (
        ("Qwen2", FOUR | {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 4}),
        {"max_window_layers": 0},
        (
            f"{ENTRIES}layer_types",
            "sliding_attention (max_window_layers 0) and full_attention (layer_types)",
        ),
    ),
    "no_rope_layer_interval": (
        ("SmolLM3", FOUR),
        {"no_rope_layer_interval": 2},
        (f"{ENTRIES}no_rope_layers", "0 (no_rope_layer_interval 2) and 1 (no_rope_layers)"),
    ),
    "type": (
        ("Llama", {}),
        {
            "rope_parameters": None,
            "rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 4.0},
        },
        (
            "the configuration declares two kinds of scaling",
            "linear (rope_scaling.rope_type) and dynamic (rope_scaling.type)",
        ),
    ),
    **{
        f"original length of {kind}": (
            ("Llama", {"max_position_embeddings": 512, "rope_parameters": ROPES[kind]}),
            {"original_max_position_embeddings": 64},
            (
                "the configuration declares two original lengths",
                "64 (original_max_position_embeddings) and 32 (rope_parameters)",
            ),
        )
        for kind in ("llama3", "yarn")
    },
}


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
        assert any(one.startswith(f"the configuration declares {finding}") for one in told)


def test_sliding_layers_are_held_against_their_own_base():
    new = {"sliding_attention": {"rope_theta": 1e4}, "full_attention": {"rope_theta": 1e6}}
    file = {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_parameters": new}
    types = {"layer_types": ["sliding_attention", "full_attention"]}
    assert [contradictions(Declaration(types, file), n) for n in (0, 1)] == [[], []]
    swapped = file | {"rope_theta": 1e4, "rope_local_base_freq": 1e6}
    told = [contradictions(Declaration(types, swapped), n)[0][1] for n in (0, 1)]
    assert told[0] == "1e+06 (rope_local_base_freq) and 10000 (rope_parameters)"
    assert told[1] == "10000 (rope_theta) and 1e+06 (rope_parameters)"


@pytest.mark.parametrize("name", TWICE)
def test_fields_of_two_layouts_that_disagree_are_found(name, tmp_path):
    (family, sizes), edited, expected = TWICE[name]
    saved(tmp_path, family, **sizes)
    assert quick(tmp_path).ok
    edit(tmp_path, edited)
    found = quick(tmp_path)
    assert expected in {(one.what, one.expected) for _, one in found.findings if one.code == "SPE601"}


def test_fields_of_two_layouts_that_agree_pass(tmp_path):
    saved(tmp_path, "Gemma3", **GEMMA)
    edit(tmp_path, {"sliding_window_pattern": 6, "rope_local_base_freq": 1e4, "rope_theta": 1e6})
    assert quick(tmp_path).ok


def test_an_interval_that_agrees_with_a_list_passes(tmp_path):
    saved(tmp_path, "Qwen3Next", **FOUR | LINEAR)
    edit(tmp_path, {"full_attention_interval": 4})
    assert quick(tmp_path).ok


@pytest.mark.parametrize("family", ["SmolLM3", "Qwen2"])
def test_a_default_beside_a_list_of_one_s_own_is_no_contradiction(family, tmp_path):
    own = {
        "SmolLM3": {"no_rope_layers": [1, 0, 1, 0]},
        "Qwen2": {"use_sliding_window": True, "sliding_window": 20, "layer_types": ["sliding_attention"] * 4},
    }
    saved(tmp_path, family, **FOUR, **own[family])
    assert quick(tmp_path).ok


@pytest.mark.parametrize("family", SUCCESSIONS)
def test_what_a_class_writes_by_itself_is_known(family):
    one = SUCCESSIONS[family]
    written = CONFIG_MAPPING[family]().to_dict().get(one.old)
    assert one.default == written


@pytest.mark.parametrize("limit", [80, 28])
def test_a_limit_of_a_vision_model_s_text_contradicts_its_list_unless_its_class_wrote_it(limit):
    text = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": limit}
    listed = {"model_type": "qwen2_vl_text", "layer_types": ["full_attention", "sliding_attention"]}
    found = entry_conflicts(Declaration({}, text | listed), 1)
    assert bool(found) == (limit != 80)


def test_a_kind_of_scaling_under_its_former_name_is_the_same():
    old = {"type": "mrope", "mrope_section": [1, 1, 2]}
    new = {"rope_type": "default", "type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    both = {"rope_scaling": old, "rope_parameters": new}
    assert rotary_conflicts(Declaration({}, both), "full_attention") == []
    both["rope_scaling"] = old | {"type": "linear"}
    assert len(rotary_conflicts(Declaration({}, both), "full_attention")) == 1


def test_lists_with_an_entry_per_layer_declare_nothing_a_second_time():
    library = {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 5e5}}}
    file = {"rope_theta": [5e5, 5e5], "partial_rotary_factors": [1.0, 1.0]}
    assert rotary_conflicts(Declaration(library, file | library), "full_attention") == []


def test_no_family_contradicts_itself():
    """Configurations as their classes write them, of the class's own sizes."""
    accused = {}
    for family, cls in CONFIG_MAPPING.items():
        try:
            config = cls().get_text_config()
        except Exception:  # the library's validators raise errors of many kinds
            continue
        fields = json.loads(json.dumps(config.to_dict(), default=str))
        layers = fields.get("num_hidden_layers")
        for layer in range(layers if isinstance(layers, int) else 0):
            if found := contradictions(Declaration(fields, fields).at(layer), layer):
                accused[family] = found
    assert accused == {}
