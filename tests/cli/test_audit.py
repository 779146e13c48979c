"""`spectrope audit` and `spectrope diff` as a user types them."""

import json

import pytest
from tests.auditing.families import FAMILIES, ROPES, llama

from spectrope.cli import BAD_INPUT, main
from spectrope.cli.show import console


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Folders of three checkpoints: two alike, and one of another base whose configuration lies."""
    root = tmp_path_factory.mktemp("checkpoints")
    for name in ("one", "same"):
        FAMILIES["llama-default"]().save_pretrained(root / name)
    llama(rope_parameters=ROPES["default"] | {"rope_theta": 1e4}).save_pretrained(root / "other")
    FAMILIES["opt"]().save_pretrained(root / "opt")
    FAMILIES["smollm3"]().save_pretrained(root / "deep")
    return root


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "width", 200)


def test_a_match_ends_with_0(checkpoints, capsys):
    assert main(("audit", str(checkpoints / "one"), "--paths")) == 0
    out = capsys.readouterr().out
    assert "128 positions in float32" in out
    assert "rotary, base 500000" in out
    assert "cached decoding" in out
    assert "Every layer applies what the configuration declares." in out


def test_a_table_of_positions_is_shown_with_its_first_row(checkpoints, capsys):
    assert main(("audit", str(checkpoints / "opt"), "--length", "16")) == 0
    assert "table decoder.embed_positions from row 2" in capsys.readouterr().out


def test_a_mismatch_ends_with_1_and_says_why(checkpoints, tmp_path, capsys):
    """The file declares one base; a library that lost it runs with another."""
    lying = tmp_path / "lying"
    lying.mkdir()
    for file in (checkpoints / "other").iterdir():
        (lying / file.name).write_bytes(file.read_bytes())
    config = json.loads((lying / "config.json").read_text())
    config["rope_parameters"]["original"] = config["rope_parameters"].pop("rope_theta")
    (lying / "config.json").write_text(json.dumps(config | {"no_rope_layers": [1, 0]}))
    assert main(("audit", str(lying), "--length", "32")) == 1
    out = capsys.readouterr().out
    assert "layer 1: encoding: none declared, rotary, base 10000 effective" in out
    assert "Every layer" not in out


def test_json_is_the_whole_record(checkpoints, capsys):
    assert main(("audit", str(checkpoints / "one"), "--length", "32", "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["ok"] is True
    assert [layer["verdict"] for layer in read["layers"]] == ["matches", "matches"]
    assert len(read["layers"][0]["effective"]["turning"]["frequencies"]) == 8


def test_an_undeclared_layer_gets_its_reason(checkpoints, tmp_path, capsys):
    FAMILIES["bert"]().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"position_embedding_type": "relative"}))
    assert main(("audit", str(tmp_path), "--length", "16")) == 1
    assert "undeclared" in capsys.readouterr().out


def test_diff_of_two_checkpoints(checkpoints, capsys):
    assert main(("diff", str(checkpoints / "one"), str(checkpoints / "same"))) == 0
    assert "differs" not in capsys.readouterr().out
    assert main(("diff", str(checkpoints / "one"), str(checkpoints / "other"))) == 1
    out = capsys.readouterr().out
    assert "layer 0: base, 500000 against 10000" in out
    assert "128 positions" in out


def test_diff_as_json(checkpoints, capsys):
    arguments = ("diff", str(checkpoints / "one"), str(checkpoints / "opt"), "--length", "16", "--json")
    assert main(arguments) == 1
    read = json.loads(capsys.readouterr().out)
    assert read["same"] is False
    assert [layer["layer"] for layer in read["layers"]] == ["embeddings", "0", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("audit", "nowhere/to-be-found"), "is no folder and not in the local cache; --allow-download"),
        (("audit", "{root}"), "holds no config.json, so it is no checkpoint."),
        (("audit", "{root}/one", "--length", "4"), "an audit's length must be at least 8; got 4."),
        (
            ("audit", "{root}/opt", "--length", "200"),
            "does not run at length 200; its configuration gives it 128",
        ),
        (("diff", "{root}/one", "{root}/deep"), "at the same number of layers; got 2 and 4."),
    ],
)
def test_a_mistake_gets_one_line(checkpoints, capsys, arguments, message):
    given = [argument.format(root=checkpoints) for argument in arguments]
    capsys.readouterr()
    assert main(given) == BAD_INPUT
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("spectrope: ")]
    assert len(lines) == 1
    assert message in lines[0]
