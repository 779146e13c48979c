"""A corrected configuration is written where the declaration is wrong; else the code is named."""

import json

import pytest
from tests.checkpoints.audit.families import FAMILIES, ROPES, WINDOWED, build, llama

from spectrope.checkpoints.audit import audit
from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "width", 400)


def saved(tmp_path, model, **changes):
    """The folder of a checkpoint whose configuration was edited; None removes a field."""
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    fields = json.loads((folder / "config.json").read_text()) | changes
    fields = {name: value for name, value in fields.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


def fixed(tmp_path, folder, *options):
    """Exit code, and the corrected configuration if one was written."""
    before = (folder / "config.json").read_bytes()
    words = ("audit", str(folder), "--length", "48", "--without-serving-modes")
    code = main((*words, "--fix", str(tmp_path / "out"), *options))
    assert (folder / "config.json").read_bytes() == before
    path = tmp_path / "out" / "config.json"
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["config.json"] if path.is_file() else True
    return code, json.loads(path.read_text()) if path.is_file() else None


def test_a_base_in_a_field_that_the_library_does_not_read_is_moved(tmp_path, capsys):
    folder = saved(tmp_path, FAMILIES["llama-default"](), rope_parameters=None, rotary_emb_base=250000.0)
    code, fields = fixed(tmp_path, folder)
    assert code == 1
    assert fields["rope_parameters"] == {"rope_type": "default", "rope_theta": 250000.0}
    assert "rotary_emb_base" not in fields
    out = capsys.readouterr().out
    assert "which declares the same where transformers reads it. Audited again: matches." in out
    assert "rotary_emb_base: 250000.0 becomes absent" in out


def test_two_bases_become_that_which_the_model_applies(tmp_path, capsys):
    folder = saved(tmp_path, FAMILIES["llama-default"](), rope_theta=10000.0)
    code, fields = fixed(tmp_path, folder)
    assert code == 1
    assert fields["rope_parameters"]["rope_theta"] == 500000.0
    assert "rope_theta" not in fields
    assert "which declares what the model applies. Audited again: matches." in capsys.readouterr().out


def test_a_list_of_layers_that_the_architecture_does_not_follow_is_removed(tmp_path):
    model = llama(rope_parameters=ROPES["default"])
    folder = saved(tmp_path, model, no_rope_layers=[1, 0])
    code, fields = fixed(tmp_path, folder)
    assert code == 1
    assert "no_rope_layers" not in fields


def test_the_corrected_configuration_makes_the_checkpoint_match(tmp_path):
    folder = saved(tmp_path, FAMILIES["llama-default"](), rope_theta=10000.0)
    fixed(tmp_path, folder)
    (folder / "config.json").write_bytes((tmp_path / "out" / "config.json").read_bytes())
    assert audit(folder, length=48, serving_modes=False).ok


def test_what_the_library_ignores_is_to_change_in_code(tmp_path, capsys):
    model = FAMILIES["mpt"]()
    folder = saved(tmp_path, model)
    fields = json.loads((folder / "config.json").read_text())
    fields["attn_config"]["alibi_bias_max"] = 4
    (folder / "config.json").write_text(json.dumps(fields))
    assert fixed(tmp_path, folder) == (1, None)
    out = capsys.readouterr().out
    assert "No edit of config.json that was tried reduces the findings; nothing was written." in out
    assert "To change in code: SPE301 slopes of ALiBi differ: " in out


def test_a_checkpoint_that_matches_is_left_alone(tmp_path):
    assert fixed(tmp_path, saved(tmp_path, build("Mistral", **WINDOWED))) == (0, None)


def test_outputs_that_hold_anything_and_inputs_that_are_no_folder_are_refused(tmp_path, capsys):
    folder = saved(tmp_path, FAMILIES["llama-default"]())
    assert main(("audit", str(folder), "--fix", str(folder))) == BAD_INPUT
    assert "--fix writes into a new or empty folder; " in capsys.readouterr().err
    assert main(("audit", "nobody/nothing", "--fix", str(tmp_path / "out"))) == BAD_INPUT
    assert (
        "--fix corrects the config.json of a local folder; nobody/nothing is none." in capsys.readouterr().err
    )
    assert main(("audit", str(folder), "--layers", "0:1", "--fix", str(tmp_path / "out"))) == BAD_INPUT
    assert "--fix corrects a configuration for all layers; leave out --layers." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_record_says_what_was_written(tmp_path, capsys):
    folder = saved(tmp_path, FAMILIES["llama-default"](), rope_theta=10000.0)
    assert fixed(tmp_path, folder, "--json")[0] == 1
    assert json.loads(capsys.readouterr().out)["fix"] == {
        "path": str(tmp_path / "out" / "config.json"),
        "changes": ["rope_theta: 10000.0 becomes absent"],
        "meaning": "declares what the model applies",
        "outcome": "matches",
        "in_code": [],
        "reason": "",
    }


@pytest.mark.parametrize(
    ("fields", "code", "reason"),
    [
        ({}, 0, "Nothing differs, so no configuration was written."),
        ({"attention_multiplier": 0.5}, 1, "No edit of config.json that was tried reduces the findings; "),
    ],
)
def test_the_record_says_why_nothing_was_written(fields, code, reason, tmp_path, capsys):
    assert fixed(tmp_path, saved(tmp_path, FAMILIES["llama-default"](), **fields), "--json") == (code, None)
    fix = json.loads(capsys.readouterr().out)["fix"]
    assert (fix["path"], fix["outcome"], fix["changes"]) == (None, None, [])
    assert fix["reason"].startswith(reason)
    assert len(fix["in_code"]) == code


def test_a_factor_without_a_kind_is_removed(tmp_path):
    model = llama(rope_parameters={"rope_type": "default", "rope_theta": 1e4})
    folder = saved(tmp_path, model, rope_parameters=None, rope_theta=1e4, rope_scaling={"factor": 4.0})
    code, fields = fixed(tmp_path, folder)
    assert code == 1
    assert "rope_scaling" not in fields
    assert fields["rope_theta"] == 1e4
