"""`spectrope atlas` as a user types it, for runs and checkpoints."""

import json

import polars as pl
import pytest
import torch
from tests.checkpoints.audit.families import FAMILIES, llama
from tests.front.made import SMALL

import spectrope as sp
from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "width", 200)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return sp.train("alibi", root=tmp_path_factory.mktemp("atlas") / "runs", **SMALL)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    torch.manual_seed(0)
    llama().save_pretrained(root / "llama")
    FAMILIES["bloom"]().save_pretrained(root / "bloom")
    return root


def test_the_atlas_of_a_run_is_stored_and_written(run, tmp_path, capsys):
    page = tmp_path / "atlas.html"
    assert main(("atlas", str(run.path), "--bands", "2", "--examples", "8", "--out", str(page))) == 0
    out = capsys.readouterr().out
    assert "waves of" in out
    assert "cells that cost more than 5 points" in out
    text = page.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in text
    assert f"spectrope atlas {run.path} --bands 2 --examples 8 --out atlas.html" in text
    cells = run.frame("atlas-2-bands-8-examples")
    assert cells.filter(intervention="remove-band")["drop"].to_list() == (
        cells.filter(intervention="freeze-band")["drop"].to_list()
    )


def test_the_adaptive_atlas_of_a_run_has_its_own_table(run, capsys):
    assert main(("atlas", str(run.path), "--bands", "1", "--examples", "8", "--method", "adaptive")) == 0
    assert "any stopping time" in capsys.readouterr().out
    assert set(run.frame("atlas-1-bands-adaptive-8-examples")["n"]) == {8}


def test_an_atlas_with_another_threshold_does_not_replace_the_first(run):
    asked = ("atlas", str(run.path), "--bands", "1", "--examples", "8")
    assert main(asked) == 0
    before = run.frame("atlas-1-bands-8-examples")
    assert main((*asked, "--threshold", "99")) == 0
    assert run.frame("atlas-1-bands-8-examples").equals(before)
    above = run.frame("atlas-1-bands-above-99-8-examples")
    assert set(above["call"]) <= {"does not", "undecided"}
    assert above.drop("call").equals(before.drop("call"))


def test_the_atlas_of_a_checkpoint_is_printed_as_json_and_kept_as_a_table(checkpoints, tmp_path, capsys):
    table = tmp_path / "cells.parquet"
    command = ("atlas", str(checkpoints / "llama"), "--bands", "2", "--examples", "4", "--length", "16")
    assert main((*command, "--layers", "0:1", "--json", "--out", str(table))) == 0
    out = capsys.readouterr().out
    found = json.loads(out[out.index("{") : out.rindex("}") + 1])
    cells = pl.read_parquet(table)
    assert len(found["cells"]) == len(cells) == 4 * (4 * 2 + 3)
    assert set(cells["layer"]) == {0}
    assert all("positions per turn" in band for band in found["bands"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--length", "16"), "is for checkpoints"),
        (("--bands", "0"), "at least 1"),
        (("--bands", "99"), "the number of frequencies that a head has; got 99"),
        (("--examples", "3"), "at least 4"),
        (("--threshold", "0"), "above 0 and below 100"),
        (("--out", "atlas.doc"), "saved as"),
        (("--method", "screened"), "'screened' is for models"),
    ],
)
def test_what_a_run_does_not_take(run, options, message, capsys):
    assert main(("atlas", str(run.path), *options)) == BAD_INPUT
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("llama", ("--task", "distance", "--texts", "a.txt"), "either --task or --texts"),
        ("llama", ("--layers", "7:9"), "at least one of 0 to 1"),
        ("llama", ("--batch", "0"), "at least 1"),
        ("llama", ("--bands", "99"), "AtlasSettings.bands must be at most 8"),
        ("bloom", (), "no rotary module"),
    ],
)
def test_what_a_checkpoint_does_not_take(checkpoints, name, options, message, capsys):
    assert main(("atlas", str(checkpoints / name), *options)) == BAD_INPUT
    assert message in capsys.readouterr().err
