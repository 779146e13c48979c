"""`spectrope compare`: the main job, its grid of rates, and an encoding from a file."""

import re

import pytest
from tests.cli.typed import SMALL, refused

from spectrope.cli import BAD_INPUT, main
from spectrope.core import foreign
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.runs import experiment_of
from spectrope.store import find_runs

pytestmark = pytest.mark.usefixtures("here")


def test_compare_ends_with_the_path_of_its_report(tmp_path, capsys):
    arguments = ("compare", "--encodings", "rope", "nope", "--tasks", "distance", *SMALL, "--workers", "1")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.rstrip().splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"
    assert (tmp_path / "report.html").stat().st_size > 10_000
    for encoding in ("rope", "nope"):
        assert re.search(rf"distance/{encoding}/seed 0: done, held-out [\d.]+ %", out)
        assert re.search(rf"distance +{encoding} +0 ", out)
    assert len(find_runs(tmp_path / "runs")) == 2


def test_naming_an_encoding_twice_runs_it_once(tmp_path, capsys):
    arguments = ("--encodings", "nope", "nope", "--tasks", "distance", *SMALL, "--workers", "2")
    assert main(("compare", *arguments)) == 0
    assert capsys.readouterr().out.count("distance/nope/seed 0: done") == 1
    assert len(find_runs(tmp_path / "runs")) == 1


def test_compare_tunes_every_encoding_on_one_grid_and_reports_both(tmp_path, capsys):
    arguments = ("--encodings", "mla", "--tasks", "distance", *SMALL, "--workers", "1", "--tune")
    assert main(("compare", *arguments, "--rates", "1", "3")) == 0
    out = capsys.readouterr().out
    assert re.search(r"distance +mla +0\.003: [\d.]+ +0\.009: [\d.]+ +0\.00[39]\* +\d", out)
    assert re.search(r"The grids took 2 runs and \d+ s of training time\. \* is an end of the grid", out)
    assert out.count("/rate 0.009/seed 0: done") == 1
    assert len(re.findall(r"distance +mla +0 ", out)) == 2
    page = (tmp_path / "report.html").read_text()
    assert "distance, tuned" in page
    assert main(("report", "--out", "again.html")) == 0  # of all runs but trials
    assert "distance, tuned</h" in (tmp_path / "again.html").read_text()
    assert len(find_runs(tmp_path / "runs")) == 4


def test_a_grid_needs_positive_rates(capsys):
    assert "rates must be positive; got (0.0,)" in refused(capsys, "compare", "--tune", "--rates", "0")
    assert "--rates must be followed by at least one value" in refused(capsys, "compare", "--tune", "--rates")


MINE = """
from dataclasses import dataclass
from spectrope.encodings.base import Encoding, EncodingConfig, Tag

class Mine(Encoding, name="mine"):
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE})
    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        factor: float = 2.0
    def rotate(self, x, pos, side):
        return x * self.config.factor
"""


def test_compare_takes_an_encoding_from_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS})
    monkeypatch.setattr(foreign, "_loaded", {})
    (tmp_path / "mine.py").write_text(MINE)
    arguments = ("--encodings", "./mine.py:Mine", "nope", "--tasks", "distance", *SMALL, "--workers", "2")
    assert main(("compare", *arguments)) == 0
    out = capsys.readouterr().out
    assert re.search(r"shift invariant +declared +holds", out)
    assert re.search(r"isometric +not declared +does not hold", out)
    assert "the declaration is wrong" not in out
    assert "distance/mine/seed 0: done" in out
    (mine,) = (run for run in find_runs(tmp_path / "runs") if run.config["encoding_name"] == "mine")
    assert list(mine.config["own_encodings"]) == ["mine"]
    assert experiment_of(mine).encoding_name == "mine"
    monkeypatch.setattr(foreign, "_digests", {})
    assert "encoding 'mine' comes from a file, which is only executed on request" in refused(
        capsys, "ablate", mine.id
    )
    assert main(("report", mine.id, "--out", "page.html")) == 0
    capsys.readouterr()


def test_scalings_without_lengths_are_refused(capsys):
    assert main(("compare", "--scalings", "yarn")) == BAD_INPUT
    assert "--scalings goes with --lengths." in capsys.readouterr().err
