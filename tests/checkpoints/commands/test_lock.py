"""`spectrope lock` and `spectrope check` as a user types them, and the reports that they write."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tests.checkpoints.audit.families import ROPES, llama

from spectrope.checkpoints.lock import read_lock, write_lock
from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console


@pytest.fixture
def locked(tmp_path, monkeypatch, capsys):
    """A folder with a checkpoint and its lock, as the present one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 200)
    llama(rope_parameters=ROPES["default"]).save_pretrained(tmp_path / "model")
    assert main(("lock", "model", "--length", "48", "--without-serving-modes")) == 0
    capsys.readouterr()
    return tmp_path


def edit_base(folder, base):
    """Edit the configuration of the checkpoint in a folder."""
    path = folder / "model" / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"]["rope_theta"] = base
    path.write_text(json.dumps(config))


def test_an_unchanged_checkpoint_is_as_locked(locked, capsys):
    assert main(("check",)) == 0
    out = capsys.readouterr().out
    assert "Nothing changed in what the lock holds." in out
    assert "not compared: serving modes, which the lock was made without; positions from 48 on" in out
    assert "layer 1" in out


def test_an_edited_base_fails_and_its_repair_passes(locked, capsys):
    edit_base(locked, 1e4)
    assert main(("check",)) == 1
    out = capsys.readouterr().out
    assert "layer 0: SPE101 base: 500000 locked, 10000 now" in out
    assert "Changed since the lock: config.json edited." in out
    edit_base(locked, 5e5)
    assert main(("check",)) == 0


def test_the_lock_names_its_checkpoint_from_its_own_folder(locked, monkeypatch):
    assert 'model = "model"' in (locked / "spectrope.lock").read_text()
    (locked / "elsewhere").mkdir()
    monkeypatch.chdir(locked / "elsewhere")
    assert main(("check", "../spectrope.lock")) == 0


def test_a_folder_of_that_name_elsewhere_is_not_the_locked_one(locked, monkeypatch, capsys):
    (locked / "elsewhere").mkdir()
    (locked / "model").rename(locked / "elsewhere" / "model")
    monkeypatch.chdir(locked / "elsewhere")
    assert main(("check", "../spectrope.lock")) == 2
    told = " ".join(capsys.readouterr().err.split())
    place = (locked / "model").resolve()
    assert (
        f"names the checkpoint {place}, which is missing; `spectrope check ../spectrope.lock --model FOLDER`"
        in told
    )


def test_a_folder_is_no_lock(locked, capsys):
    assert main(("check", "model")) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "model is a folder and no lock; `spectrope check --model model` compares it." in told


def test_another_checkpoint_is_compared_with_the_lock(locked, capsys):
    llama(rope_parameters=ROPES["linear"]).save_pretrained(locked / "converted")
    assert main(("check", "--model", "converted")) == 1
    assert "layer 0: SPE102 " in capsys.readouterr().out


def test_other_weights_leave_the_answer_incomplete(locked, capsys):
    tuned = llama(rope_parameters=ROPES["default"])
    tuned.model.layers[0].self_attn.k_proj.weight.data *= 2
    tuned.save_pretrained(locked / "model")
    assert main(("check", "--junit", "new.xml", "--sarif", "new.sarif")) == 3
    assert "layer 0: kernels of heads were not compared, because query" in capsys.readouterr().out
    suites = ElementTree.parse(locked / "new.xml").getroot()
    skipped = [case.get("name") for case in suites.iter("testcase") if case.find("skipped") is not None]
    assert (skipped, suites.get("skipped"), suites.get("failures")) == (["layer 0"], "1", "0")
    [run] = json.loads((locked / "new.sarif").read_text())["runs"]
    [note, *others] = run["invocations"][0]["toolExecutionNotifications"]
    assert {one["level"] for one in others} == {"note"}
    assert note["message"]["text"].startswith("layer 0: kernels of heads were not compared")
    assert run["results"] == []


@pytest.mark.parametrize("left", [0, 1])
def test_a_lock_that_lost_layers_leaves_the_answer_incomplete(locked, capsys, left):
    held = read_lock(locked / "spectrope.lock")
    write_lock(replace(held, layers=held.layers[:left]), locked / "spectrope.lock")
    assert main(("check", "--junit", "new.xml")) == 3
    out = capsys.readouterr().out
    assert "layer 1: the lock does not hold it. If this was intended, run `spectrope lock` again." in out
    assert "Nothing changed in what was compared." in out
    assert ElementTree.parse(locked / "new.xml").getroot().get("skipped") == str(2 - left)


def test_junit_has_a_case_per_place(locked):
    edit_base(locked, 1e4)
    assert main(("check", "--junit", "new.xml")) == 1
    suites = ElementTree.parse(locked / "new.xml").getroot()
    cases = {case.get("name"): case.find("failure") for case in suites.iter("testcase")}
    assert list(cases) == ["embeddings of layers.0", "layer 0", "layer 1"]
    assert cases["embeddings of layers.0"] is None
    assert cases["layer 1"] is not None
    assert cases["layer 1"].get("type") == "SPE101"
    assert suites.get("failures") == "2"


def test_reports_have_files_of_their_own_and_are_checked_first(locked, capsys):
    assert main(("check", "--junit", "report", "--sarif", "report")) == 2
    assert "--junit and --sarif both name report" in capsys.readouterr().err
    assert main(("check", "--junit", "new.xml", "--sarif", str(locked))) == 2
    assert "cannot write" in capsys.readouterr().err
    assert not (locked / "new.xml").exists()


def test_reports_hold_the_error_where_nothing_could_be_compared(locked):
    arguments = ("check", "none.lock", "--sarif", "a.sarif", "--junit", "a.xml")
    assert main(arguments) == 2
    (run,) = json.loads((locked / "a.sarif").read_text())["runs"]
    (ran,) = run["invocations"]
    assert (run["results"], ran["executionSuccessful"]) == ([], False)
    assert "none.lock" in ran["toolExecutionNotifications"][0]["message"]["text"]
    suite = ElementTree.parse(locked / "a.xml").getroot()[0]
    assert (suite.get("errors"), suite[0][0].tag) == ("1", "error")


def test_sarif_points_into_the_lock(locked):
    edit_base(locked, 1e4)
    assert main(("check", "--sarif", "new.sarif")) == 1
    [run] = json.loads((locked / "new.sarif").read_text())["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["SPE101"]
    first, _ = run["results"]
    assert (first["ruleId"], first["level"]) == ("SPE101", "error")
    [place] = first["locations"]
    physical = place["physicalLocation"]
    lines = (locked / physical["artifactLocation"]["uri"]).read_text().splitlines()
    assert lines[physical["region"]["startLine"] - 1] == 'name = "0"'


def test_json_is_the_whole_answer(locked, capsys):
    edit_base(locked, 1e4)
    assert main(("check", "--json")) == 1
    read = json.loads(capsys.readouterr().out)
    assert (read["ok"], read["whole"], read["between"]) == (False, True, "config.json edited")
    assert read["moves"][0]["code"] == "SPE101"
    assert main(("lock", "model", "--length", "48", "--without-serving-modes", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["layers"][0]["applies"] == "rotary, base 10000"


def test_what_is_locked_although_it_differs_is_said(locked, capsys):
    config = json.loads((locked / "model" / "config.json").read_text())
    config["rope_parameters"]["original"] = config["rope_parameters"].pop("rope_theta")
    (locked / "model" / "config.json").write_text(json.dumps(config | {"no_rope_layers": [1, 0]}))
    assert main(("lock", "model", "--length", "48", "--without-serving-modes")) == 0
    assert "layer 1, locked with this finding: SPE110 encoding" in capsys.readouterr().out


def test_a_slice_is_locked_and_checked(locked, capsys):
    assert main(("lock", "model", "--layers", "1:", "--length", "48", "--out", "one.spectrope.lock")) == 0
    assert main(("check", "one.spectrope.lock")) == 0
    assert "layer 0" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "nowhere.lock"), "cannot read nowhere.lock"),
        (("check", "model/config.json"), "model/config.json is not a lock: "),
        (("check", "--model", "nowhere"), "nowhere is neither a folder nor in the local cache"),
        (("lock", "model", "--out", "spectrope.lock/lock"), "cannot write spectrope.lock/lock"),
        (("lock", "model", "--length", "4"), "an audit's length must be at least 8; got 4."),
    ],
)
def test_a_mistake_gets_one_line(locked, capsys, arguments, message):
    assert main(arguments) == BAD_INPUT
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("spectrope: ")]
    assert len(lines) == 1
    assert message in lines[0]
