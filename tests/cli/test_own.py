"""An encoding from the user's own file, in every command that takes one."""

import re

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.encodings import foreign
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
        ENCODINGS, "_classes", {name: ENCODINGS[name] for name in ENCODINGS if name != "mine"}
    )
    monkeypatch.setattr(foreign, "_loaded", {})
    monkeypatch.setattr(foreign, "_digests", {})


def test_a_run_is_trained_and_measured_with_it(tmp_path, capsys, monkeypatch):
    assert main(("train", "--encoding", "mine.py:Mine", "--epochs", "1", "--examples", "100")) == 0
    assert re.search(r"shift invariant +declared +holds", capsys.readouterr().out)
    (run,) = find_runs(tmp_path / "runs")
    plan = ("attention", "plan", run.id, "--examples", "2")
    spectrum = ("spectrum", run.id, "--examples", "8", "--draws", "9")
    for command in (("ablate", run.id), spectrum, plan):
        forget(monkeypatch)
        line = refused(capsys, *command)
        assert "encoding 'mine' comes from a file, and none is run unasked; name it again: `--own" in line
        assert main((*command, "--own", "mine.py:Mine")) == 0
        capsys.readouterr()
    assert run.has_frame("ablation")
    assert run.has_frame("spectrum-8-examples-9-draws")


def test_its_kernel_is_bounded_and_it_is_in_the_catalogue(capsys):
    assert main(("spectrum", "--encoding", "mine.py:Mine", "--length", "512")) == 0
    assert re.search(r"1 +-0 +-1 +-4 +-16 +-64 +-256", capsys.readouterr().out)
    bench = ("attention", "bench", "--bias", "mine.py:Mine", "--shortest", "64", "--longest", "64")
    assert main(bench) == 0
    assert "one head of width 16, mine, no mask" in capsys.readouterr().out
    assert main(("encodings", "mine.py:Mine")) == 0
    assert capsys.readouterr().out.startswith("mine (")


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        (
            "lag.abs()",
            "lag.magnitude()",
            "AttributeError: 'Tensor' object has no attribute 'magnitude' (line 10).",
        ),
        ("[..., None]", "", "RuntimeError: "),
    ],
)
def test_a_mistake_in_a_method_is_told_before_anything_is_trained(tmp_path, capsys, right, wrong, told):
    (tmp_path / "mine.py").write_text(MINE.replace(right, wrong))
    for command in (("train", "--encoding", "mine.py:Mine"), ("compare", "--encodings", "mine.py:Mine")):
        assert f"mine.py:Mine fails in a small model: {told}" in refused(capsys, *command)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("spectrum", "--encoding", "rope"),
        ("spectrum", "gpt"),
        ("ablate", "gpt"),
        ("attention", "plan", "gpt"),
    ],
)
def test_it_goes_with_a_run(tmp_path, capsys, command):
    (tmp_path / "gpt").mkdir()
    (tmp_path / "gpt" / "config.json").write_text('{"model_type": "gpt2"}')
    assert "--own goes with a run." in refused(capsys, *command, "--own", "mine.py:Mine")
