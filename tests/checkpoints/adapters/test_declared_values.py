"""Numbers in a configuration that no model can have are refused before anything is loaded."""

import json

import pytest
from tests.checkpoints.audit.families import FAMILIES, ROPES

from spectrope.checkpoints.adapters import open_model
from spectrope.core import ConfigError, UnsupportedError

WRONG = {
    "rope_theta": ({"rope_theta": 0}, "rope_theta must be a positive number; got 0, with which no frequency"),
    "factor of 0": ({"factor": 0.0}, r"rope_parameters\.factor must be a positive number; got 0\.0"),
    "factor in quotes": ({"factor": "4"}, r"rope_parameters\.factor must be a positive number; got '4'"),
}
LACKING = {
    "dynamic": "factor",
    "yarn": "factor",
    "llama3": "factor and low_freq_factor and high_freq_factor",
    "longrope": "short_factor and long_factor",
}
SIZES = {
    "num_attention_heads": 0,
    "max_position_embeddings": -1,
    "sliding_window": 0,
    "hidden_size": 64.5,
}


@pytest.fixture
def folder(tmp_path):
    FAMILIES["llama-linear"]().save_pretrained(tmp_path)
    return tmp_path


def edit(folder, **fields):
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))


@pytest.mark.parametrize("name", WRONG)
def test_a_rotary_parameter_that_is_no_positive_number_is_named(folder, name):
    fields, message = WRONG[name]
    edit(folder, rope_parameters=ROPES["linear"] | fields)
    with pytest.raises(ConfigError, match=message):
        open_model(folder)


@pytest.mark.parametrize("kind", LACKING)
def test_a_schedule_without_its_parameters_is_refused(folder, kind):
    edit(folder, rope_parameters={"rope_type": kind, "rope_theta": 1e4})
    with pytest.raises(ConfigError, match=f"of rope_type '{kind}' must have {LACKING[kind]}; got none"):
        open_model(folder)


def test_parameters_of_a_type_of_layer_are_checked(folder):
    edit(folder, rope_parameters={"full_attention": {"rope_type": "linear", "factor": -2.0}})
    with pytest.raises(ConfigError, match=r"rope_parameters\.full_attention\.factor must be a positive"):
        open_model(folder)


def test_lists_of_factors_have_one_per_pair(folder):
    edit(folder, rope_parameters=ROPES["longrope"] | {"long_factor": [1.0] * 3})
    with pytest.raises(ConfigError, match=r"long_factor must hold 8 factors, one per pair .* got 3"):
        open_model(folder)


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_is_no_positive_whole_number_is_named(folder, name):
    edit(folder, **{name: SIZES[name]})
    with pytest.raises(ConfigError, match=f"{name} must be a positive whole number; got {SIZES[name]}"):
        open_model(folder)


def test_a_window_that_is_not_used_may_be_0(folder):
    edit(folder, sliding_window=0, use_sliding_window=False)
    assert open_model(folder) is not None


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_an_adapter_beside_the_weights_is_not_ignored(folder, name):
    (folder / name).write_text("{}")
    with pytest.raises(UnsupportedError, match=f"holds an adapter \\({name}\\), which is not loaded"):
        open_model(folder)


def test_the_library_s_own_complaint_is_one_sentence(folder):
    edit(folder, hidden_act=3)
    with pytest.raises(ConfigError, match=r"cannot be loaded: Field 'hidden_act' expected str, got int"):
        open_model(folder)
