"""Figures from a file of the user's own, of tables that no figure of the package draws."""

import json

import polars as pl
import pytest
from tests.figures.synthetic import make_run, save_figure
from tests.own_files import run_no_file_yet

from spectrope.core.errors import ConfigError, StoreError
from spectrope.figures import FIGURES, write_report

FILE = """
import altair as alt
import polars as pl
from spectrope.figures.base import Figure, Marks, Panel, rows

class Answers(Figure, name="answers"):
    title = "Answers by label"
    needs = "by_label"
    reads = {"label": pl.Int64, "share": pl.Float64}

    def panels(self, tables):
        chart = alt.Chart().mark_bar().encode(x="label:O", y="share:Q")
        return [Panel("", "all", {"bars": Marks(rows(tables[self.needs], "share"), chart)}, 100)]

    def caption(self, tables):
        return "A bar per label."

class Counts(Answers, name="counts"):
    reads = {"n": pl.Int64, "share": pl.Float64}

class Heads(Answers, name="heads"):
    needs, reads = "ablation", {"fill": pl.String, "intact": pl.Float64}
    def panels(self, tables):
        chart = alt.Chart().mark_point().encode(x="fill:N", y="intact:Q")
        return [Panel("", "all", {"dots": Marks(rows(tables[self.needs], "intact"), chart)}, 100)]
"""


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch):
    run_no_file_yet(monkeypatch)
    path = tmp_path / "figures.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def run(tmp_path):
    run = make_run(tmp_path / "runs", "rope")
    run.write_frame("by_label", pl.DataFrame({"label": [0, 1], "share": [0.25, 0.75], "n": [1, 3]}))
    return run


def drawn(path):
    """The rows of a figure that is saved as JSON."""
    spec = json.loads(path.read_text())
    return spec["vconcat"][0]["concat"][0]["data"]["values"]


def test_it_draws_a_table_of_which_it_declares_the_columns(file, run, tmp_path):
    rows = drawn(save_figure([run], f"{file}:Answers", tmp_path / "a.json"))
    names = {"run": run.id, "setting": "distance", "encoding": "rope", "seed": 0}
    assert rows == [names | {"label": 0, "share": 0.25}, names | {"label": 1, "share": 0.75}]


def test_it_may_read_other_columns_of_a_known_table(file, run, tmp_path):
    rows = drawn(save_figure([run], f"{file}:Heads", tmp_path / "a.json"))
    assert {row["fill"] for row in rows} == {"zero"}
    assert max(row["intact"] for row in rows) <= 1  # As the run keeps it, not in percent.


def test_the_page_has_it_once_its_file_has_been_run(file, run, tmp_path):
    for name in ("Answers", "Counts"):
        FIGURES.resolve(f"{file}:{name}")
    page = write_report([run], tmp_path / "page.html").read_text()
    assert '<section id="answers"' in page
    assert '<section id="counts"' in page
    without = write_report([make_run(tmp_path / "others", "nope")], tmp_path / "page.html").read_text()
    assert '<section id="answers"' not in without


def test_mistakes_get_one_line(file, run, tmp_path):
    (tmp_path / "mute.py").write_text(
        FILE.replace("    reads =", "    # reads =", 1).replace("answers", "mute")
    )
    told = r"mute\.py, line 6: ConfigError: figure 'mute' draws table 'by_label' and must declare its columns"
    with pytest.raises(ConfigError, match=told):
        save_figure([run], f"{tmp_path / 'mute.py'}:Answers", tmp_path / "a.svg")
    run.write_frame("by_label", pl.DataFrame({"label": [0]}))
    with pytest.raises(StoreError, match="table 'by_label' has no column 'share'"):
        save_figure([run], f"{file}:Answers", tmp_path / "a.svg")
    run.remove("by_label")
    with pytest.raises(
        StoreError, match="figure 'answers' draws table 'by_label', which none of these runs has"
    ):
        save_figure([run], f"{file}:Answers", tmp_path / "a.svg")
