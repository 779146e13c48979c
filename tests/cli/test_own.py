"""An encoding from the user's own file, in every command that takes one."""

import re
from pathlib import Path

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.core import foreign
from spectrope.core.foreign import loaded_files
from spectrope.encodings.base import ENCODINGS
from spectrope.store import find_runs

pytestmark = pytest.mark.usefixtures("here")

MINE = """
from dataclasses import dataclass
from spectrope.encodings.base import EncodingConfig, LagBias

class Mine(LagBias, name="mine"):
    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        n_heads: int = 8
    def lag_bias(self, lag):
        return -lag.abs()[..., None].double().expand(*lag.shape, self.config.n_heads)
"""


@pytest.fixture(autouse=True)
def another_process(tmp_path, monkeypatch):
    forget(monkeypatch)
    (tmp_path / "mine.py").write_text(MINE)


def forget(monkeypatch):
    """As in a process that has run no file yet."""
    monkeypatch.setattr(
        ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS if name != "mine"}
    )
    monkeypatch.setattr(foreign, "_loaded", {})
    monkeypatch.setattr(foreign, "_digests", {})


def run_unasked(capsys, *command):
    assert "encoding 'mine' comes from a file, which is only executed on request" in refused(capsys, *command)
    assert loaded_files() == ()


def test_a_run_is_trained_and_measured_with_it(tmp_path, capsys, monkeypatch):
    assert main(("train", "--encoding", "mine.py:Mine", "--epochs", "1", "--examples", "100")) == 0
    assert re.search(r"shift invariant +declared +holds", capsys.readouterr().out)
    (run,) = find_runs(tmp_path / "runs")
    source = run.manifest["encoding_files"]["mine"]
    assert (source["class"], Path(source["file"]).name) == ("Mine", "mine.py")
    assert source["sha256"].startswith(run.config["own_encodings"]["mine"])
    assert {law["law"]: law["holds"] for law in source["laws"]}["shift-invariant"]
    plan = ("attention", "plan", run.id, "--examples", "2")
    spectrum = ("spectrum", run.id, "--examples", "8", "--draws", "9")
    for command in (("ablate", run.id), spectrum, plan):
        forget(monkeypatch)
        run_unasked(capsys, *command)
        assert main((*command, "--own", "mine.py:Mine")) == 0
        capsys.readouterr()
    assert run.has_frame("ablation")
    assert run.has_frame("spectrum-8-examples-9-draws")


def test_its_kernel_is_bounded_and_it_is_in_the_catalogue(capsys):
    assert main(("spectrum", "--encoding", "mine.py:Mine", "--length", "512")) == 0
    assert re.search(r"1 +0 +-1 +-4 +-16 +-64 +-256", capsys.readouterr().out)
    bench = ("attention", "bench", "--bias", "mine.py:Mine", "--shortest", "64", "--longest", "64")
    assert main(bench) == 0
    assert "One head of width 16, mine, no mask" in capsys.readouterr().out
    assert main(("encodings", "mine.py:Mine")) == 0
    assert capsys.readouterr().out.startswith("mine (")


def test_it_may_stand_behind_the_name_of_an_attention(tmp_path):
    assert main(("train", "--encoding", "mla+mine.py:Mine", "--epochs", "1", "--examples", "60")) == 0
    (run,) = find_runs(tmp_path / "runs")
    assert run.config["encoding_name"] == "mla+mine"


def test_a_run_of_it_is_a_recipe(tmp_path, capsys, monkeypatch):
    assert main(("train", "--encoding", "mine.py:Mine", "--epochs", "1", "--examples", "60")) == 0
    (run,) = find_runs(tmp_path / "runs")
    recipe = ("train", "--recipe", str(run.path / "config.json"))
    capsys.readouterr()
    forget(monkeypatch)
    run_unasked(capsys, *recipe)
    assert main((*recipe, "--own", "mine.py:Mine")) == 0
    assert capsys.readouterr().out.endswith(f"Run: runs/{run.id}\n")
    assert "--own goes with --recipe" in refused(capsys, "train", "--own", "mine.py:Mine")


def test_the_laboratory_trains_it_and_its_runs_are_listed_without_the_file(tmp_path, capsys, monkeypatch):
    quick = ("--p", "7", "--fraction", "0.7", "--steps", "1", "--evaluate-every", "1", "--runs", "runs")
    assert main(("grok", "--encoding", "mine.py:Mine", *quick)) == 0
    assert re.search(r"shift invariant +declared +holds", capsys.readouterr().out)
    (run,) = find_runs(tmp_path / "runs")
    forget(monkeypatch)
    assert main(("runs",)) == 0
    shown = capsys.readouterr()
    assert re.search(rf"{run.id} +grokking +mine +0 +[\d.]+", shown.out)
    assert main(("claims", "harvest", "single-head", "--rows", "rows")) == 0
    assert shown.err + capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("lag.abs()", "lag.magnitude()", "line 10: AttributeError: 'Tensor' object has no attribute 'magn"),
        ("[..., None]", "", "line 10: RuntimeError: "),
        ("return -lag", "raise NotImplementedError  #", "line 10: NotImplementedError.\n"),
        ("return -lag", "-lag", "AttributeError: 'NoneType' object has no attribute 'movedim'.\n"),
    ],
)
def test_a_mistake_in_a_method_is_told_before_anything_is_trained(tmp_path, capsys, right, wrong, told):
    (tmp_path / "mine.py").write_text(MINE.replace(right, wrong))
    for command in (("train", "--encoding"), ("compare", "--encodings"), ("grok", "--encoding")):
        line = refused(capsys, *command, "mine.py:Mine")
        assert "mine.py:Mine fails in a test: " in line
        assert told in line
    assert not {path.name for path in tmp_path.iterdir()} & {"runs", "grok-runs"}


@pytest.mark.parametrize("command", [("spectrum", "--encoding"), ("attention", "bench", "--bias")])
def test_a_mistake_in_a_method_is_told_where_nothing_is_trained(tmp_path, capsys, command):
    (tmp_path / "mine.py").write_text(MINE.replace("lag.abs()", "lag.magnitude()"))
    line = refused(capsys, *command, "mine.py:Mine")
    assert f"{tmp_path / 'mine.py'}, line 10: AttributeError: " in line


def test_it_is_tried_in_the_sizes_that_are_trained(tmp_path, capsys):
    asks = "n_heads: int = 8\n        def __post_init__(self):\n            assert self.n_heads % 8 == 0"
    (tmp_path / "mine.py").write_text(MINE.replace("n_heads: int = 8", asks))
    assert main(("train", "--encoding", "mine.py:Mine", "--epochs", "1", "--examples", "60")) == 0


NO_OWN = "--own goes with a run whose encoding or task comes from a file."


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("spectrum", "--encoding", "rope"), "--own goes with a run."),
        (("spectrum", "gpt"), NO_OWN),
        (("ablate", "gpt"), NO_OWN),
        (("attention", "plan", "gpt"), NO_OWN),
    ],
)
def test_it_goes_with_a_run(tmp_path, capsys, command, told):
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "gpt2"}')
    assert told in refused(capsys, *command, "--own", "mine.py:Mine")
    assert loaded_files() == ()


def test_it_goes_with_a_run_of_it(tmp_path, capsys, monkeypatch, trained):
    assert NO_OWN in refused(capsys, "ablate", trained, "--own", "mine.py:Mine")
    assert loaded_files() == ()
    assert main(("train", "--encoding", "mine.py:Mine", "--epochs", "1", "--examples", "60")) == 0
    (run,) = (run for run in find_runs(tmp_path / "runs") if run.id != trained)
    capsys.readouterr()
    (tmp_path / "yours.py").write_text(MINE.replace("Mine", "Yours").replace("mine", "yours"))
    line = refused(capsys, "ablate", run.id, "--own", "yours.py:Yours")
    assert "--own yours.py:Yours is encoding 'yours'; the run has mine." in line
    for spec in ("mine.py", "mine"):
        told = f"{spec} names no class in a file; name it as path/to/file.py:Name."
        assert told in refused(capsys, "ablate", run.id, "--own", spec)
