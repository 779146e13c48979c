"""`spectrope audit` and `spectrope diff` as a user types them."""

import json
import re
import shlex
import shutil

import pytest
import transformers
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from tests.checkpoints.audit.families import FAMILIES, ROPES, llama

from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console

RECORD = {
    "ok",
    "outcome",
    "findings",
    "model",
    "architecture",
    "dtype",
    "noise",
    "length",
    "absolutes",
    "layers",
    "serving_modes",
}
RECORD |= {
    "unread",
    "without",
    "untried",
    "far",
    "unserved",
    "notes",
    "decays",
    "vision",
    "unseen",
    "unexercised",
    "indexers",
    "further",
    "ignored",
    "served_tokens",
    "omitted",
    "attention",
    "transformers",
}
LAYER = {"module", "stack", "layer", "position", "effective", "declared", "verdict", "findings", "reason"}
LAYER |= {"scale", "heads", "reach", "far"}
FAR = {"window", "window_seen", "length", "seen", "frequencies", "grows", "switch", "gain", "growth"}
ENCODING = {"kind", "turning", "slopes", "buckets", "mask", "query_scale", "key_scale", "sees_future"}
ENCODING |= {"scale", "softcap", "sinks", "values_vary", "normalised_after", "relative"}
TURNING = {
    "scaling",
    "still",
    "factor",
    "resolution",
    "start",
    "width",
    "head_dim",
    "position",
    "frequencies",
    "errors",
    "gain",
    "pairing",
    "phase_error",
    "positions",
    "base",
    "sense",
    "key_offset",
    "gains",
    "rounding",
}
HEAD = {"head", "position", "toeplitz_distance", "slope", "lags", "kernel"}
REACH = {"trained", "length", "turned_in_training", "turned", "unseen", "aliased", "slowed_from", "slowdown"}
REACH |= {"pairs"}
PAIR = {"pair", "wavelength", "turned_in_training", "turned", "unseen", "aliased", "slowdown"}
ABSOLUTE = {"block", "variation", "table", "first_row", "declared_row", "verdict", "findings", "length"}


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
    assert main(("audit", str(checkpoints / "one"), "--serving-modes")) == 0
    out = capsys.readouterr().out
    assert "128 positions in float32" in out
    assert "rotary, base 500000" in out
    assert "cached decoding" in out
    assert "Every layer applies what the configuration declares, in everything that was tested" in out
    closed = " ".join(out.split())
    assert "for random inputs. Further passes with fewer tokens (77) showed no difference either." in closed
    assert "With fewer tokens (77), at least one layer of each kind was compared." in closed
    assert "Serving modes (cached decoding, static cache, " in closed
    long = (
        "One token after 126 others sees all keys that it is given, and its query is that of a pass of three"
    )
    assert (
        ") over up to 68 tokens have the kernels of a plain forward pass, and its outputs of attention for "
        f"varied content. Beam search has these outputs, too. {long} tokens. Not checked: "
    ) in closed


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
    assert "layer 1: SPE110 encoding: none declared, rotary, base 10000 effective" in out
    assert "Every layer" not in out


def test_a_slice_of_layers_keeps_their_numbers(checkpoints, capsys):
    arguments = ("audit", str(checkpoints / "deep"), "--layers", "2:", "--length", "32", "--json")
    assert main((*arguments, "--contents", "3", "--device", "cpu")) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["omitted"] == ["0", "1"]
    assert [layer["layer"] for layer in read["layers"]] == [2, 3]
    assert [layer["position"] for layer in read["layers"]] == ["relative", "NoPE"]


def test_beyond_the_declared_length_one_reads_how_far_pairs_turn(checkpoints, capsys):
    assert main(("audit", str(checkpoints / "one"), "--length", "256")) == 0
    line = "layers 0, 1: 3 of 8 pairs turn fully within 256 positions, 2 within the declared 128; "
    assert line in capsys.readouterr().out


def test_the_page_is_written(checkpoints, tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    again = ("audit", str(checkpoints / "one"), "--length", "32", "--contents", "3", "--out", str(page))
    assert main(again) == 0
    assert str(page) in capsys.readouterr().out
    assert "Every layer applies what the configuration declares, in everything" in page.read_text()
    assert f'data-command="{shlex.join(["spectrope", *again])}"' in page.read_text()


def test_a_page_that_cannot_be_written_is_refused_before_the_audit(checkpoints, tmp_path, capsys):
    assert main(("audit", str(checkpoints / "one"), "--out", str(tmp_path / "page.json"))) == 2
    shown = capsys.readouterr()
    assert shown.err == ("spectrope: this page is saved as .html; got 'page.json'.\n")
    assert not shown.out


def test_the_schema_of_the_record_is_stable(checkpoints, capsys):
    """Whoever reads records relies on these names; a change of them is a change for users."""
    assert main(("audit", str(checkpoints / "one"), "--length", "32", "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    layer = read["layers"][0]
    assert read.keys() == RECORD
    assert layer.keys() == LAYER
    assert layer["effective"].keys() == layer["declared"].keys() == ENCODING
    assert layer["effective"]["turning"].keys() == TURNING
    assert layer["heads"][0].keys() == HEAD
    assert layer["reach"].keys() == REACH
    assert layer["far"].keys() == FAR
    assert layer["reach"]["pairs"][0].keys() == PAIR
    assert read["absolutes"][0].keys() == ABSOLUTE


def test_json_is_the_whole_record(checkpoints, capsys):
    assert main(("audit", str(checkpoints / "one"), "--length", "32", "--json")) == 0
    read = json.loads(capsys.readouterr().out)
    assert (read["ok"], read["outcome"]) == (True, "matches")
    assert (read["attention"], read["transformers"]) == (["sdpa"], transformers.__version__)
    assert (read["omitted"], "fix" in read) == ([], False)
    assert [layer["verdict"] for layer in read["layers"]] == ["matches", "matches"]
    assert len(read["layers"][0]["effective"]["turning"]["frequencies"]) == 8


def test_an_undeclared_layer_gets_its_reason(checkpoints, tmp_path, capsys):
    FAMILIES["bert"]().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"position_embedding_type": "none"}))
    assert main(("audit", str(tmp_path), "--length", "16")) == 3
    assert "positions are added that the configuration does not declare" in capsys.readouterr().out
    assert main(("audit", str(tmp_path), "--length", "16", "--json")) == 3
    assert json.loads(capsys.readouterr().out)["outcome"] == "incomplete"


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
        (("audit", "nowhere/to-be-found"), "is neither a folder nor in the local cache; --allow-download"),
        (("audit", "{root}"), "holds no config.json, so it is no checkpoint."),
        (("audit", "{root}/one", "--length", "4"), "an audit's length must be at least 8; got 4."),
        (("audit", "{root}/one", "--contents", "1"), "an audit compares at least 2 random vectors; got 1."),
        (("audit", "{root}/one", "--layers", "x"), "layers are given as FIRST:LAST+1, such as 0:4"),
        (("audit", "{root}/one", "--layers", "5:9"), "layers must take at least one of 0 to 1; got 5:9."),
        (
            ("audit", "{root}/opt", "--length", "200"),
            "does not run at length 200; its configuration gives it 128",
        ),
        (("diff", "{root}/one", "{root}/one", "--length", "0"), "length must be at least 8; got 0."),
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


def test_the_impact_on_a_text_of_the_user_s(checkpoints, tmp_path, capsys):
    folder, text = tmp_path / "model", tmp_path / "text.txt"
    shutil.copytree(checkpoints / "one", folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"no_rope_layers": [1, 0]}))
    text.write_text(" ".join(f"w{5 + i % 50}" for i in range(40)))
    arguments = ("audit", str(folder), "--length", "48", "--text", str(text))
    assert main(arguments) == BAD_INPUT
    assert "--text needs a tokenizer; " in capsys.readouterr().err
    save_tokenizer(folder)
    assert main(arguments) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"nats over the first 8 tokens of the text, [0-9.e-]+ over tokens 32 to 38", out)
    assert main((*arguments[:-1], str(tmp_path / "none.txt"))) == BAD_INPUT
    assert "cannot be read as text" in capsys.readouterr().err
    assert main((*arguments[:4], "--serving-modes", "--without-serving-modes")) == BAD_INPUT
    assert "--serving-modes and --without-serving-modes exclude each other" in capsys.readouterr().err


def test_a_fix_of_what_matches_writes_nothing_and_says_so(checkpoints, tmp_path, capsys):
    words = (
        "audit",
        str(checkpoints / "one"),
        "--length",
        "32",
        "--without-serving-modes",
        "--fix",
        str(tmp_path / "out"),
    )
    assert main(words) == 0
    assert "Nothing differs, so no configuration was written." in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_certificate_replaces_no_other_file(checkpoints, tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(checkpoints / "one", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "list.json").write_text("[]")
    refused = {
        folder / "config.json": "exists and is no certificate, so it is not replaced; choose another name.",
        tmp_path / "list.json": "exists and is no certificate, so it is not replaced; choose another name.",
        folder / "model.safetensors": "a certificate is saved as .json; got 'model.safetensors'.",
    }
    words = ("audit", str(folder), "--length", "16", "--without-serving-modes", "--certificate")
    for path, why in refused.items():
        assert main((*words, str(path))) == BAD_INPUT
        shown = capsys.readouterr()
        assert (shown.out, shown.err.count("\n"), why in shown.err) == ("", 1, True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    for _ in range(2):
        assert main((*words, str(tmp_path / "certificate.json"))) == 0


def test_the_certificate_of_some_layers_names_them(checkpoints, tmp_path, capsys):
    path, folder = tmp_path / "some.json", str(checkpoints / "deep")
    words = ("audit", folder, "--layers", "1:3", "--length", "16", "--certificate", str(path))
    assert main(words) == 0
    closed = " ".join(capsys.readouterr().out.split())
    assert "Layers 1–2 apply what the configuration declares, in everything" in closed
    assert "layers 0, 3, which were not loaded; " in closed.partition("Not checked: ")[2]
    assert main(("verify", str(path))) == 0
    assert (
        f"of kind 'audit', said to be of {folder}, layers 1–2 alone, without layers 0, 3"
        in capsys.readouterr().out
    )


def test_the_certificate_has_the_outcome_of_the_audit(checkpoints, tmp_path, capsys):
    folder, path = tmp_path / "model", tmp_path / "certificate.json"
    shutil.copytree(checkpoints / "one", folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | {"attention_multiplier": 0.5}))
    assert main(("audit", str(folder), "--length", "16", "--certificate", str(path))) == 1
    claim = json.loads(path.read_text())["claim"]
    assert (claim["outcome"], {one["verdict"] for one in claim["layers"]}) == ("differs", {"matches"})
    capsys.readouterr()
    assert main(("verify", str(path))) == 0
    assert "the audit ended with 'differs' by what it found beside these layers" in capsys.readouterr().out
