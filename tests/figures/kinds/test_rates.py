"""Tuned runs beside untuned ones, and the grids that they come from."""

import xml.etree.ElementTree as ET

import altair as alt
import polars as pl
import pytest
from tests.figures.kinds.test_figures import emptied
from tests.figures.synthetic import make_run, save_figure

from spectrope.core.errors import StoreError
from spectrope.figures import FIGURES, write_report
from spectrope.figures.spec import file_spec, page_spec
from spectrope.figures.tables import read_tables


def tuned_run(root, encoding, seed=0):
    run = make_run(root, encoding, seed=seed, tuning="chosen")
    rates = {"rate": [0.001, 0.003, 0.009], "accuracy": [0.2, 0.5, 0.4], "loss": [2.0, 1.0, 1.5]}
    table = pl.DataFrame({**rates, "seconds": 3 * [10.0], "run": ["a", "b", "c"]})
    run.write_frame("tuning", table.with_columns(chosen=pl.col("accuracy") == pl.col("accuracy").max()))
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    untuned = [make_run(root, encoding) for encoding in ("nope", "rope")]
    return [*untuned, *(tuned_run(root, encoding, seed) for encoding in ("nope", "rope") for seed in (0, 1))]


def test_tuned_runs_are_a_setting_of_their_own_beside_the_untuned(runs):
    assert read_tables(runs).settings == ["distance", "distance, tuned"]
    assert read_tables(runs[2:]).settings == ["distance"]


def test_every_trial_is_drawn_once_and_the_chosen_one_filled(runs):
    figure, tables = FIGURES["rates"](), read_tables(runs)
    (panel,) = figure.panels(tables)
    assert panel.title == "distance, tuned"
    assert len(panel.layers["trials"].rows) == 6
    assert [(row["encoding"], row["rate"], row["accuracy"]) for row in panel.layers["chosen"].rows] == [
        ("nope", 0.003, 50.0),
        ("rope", 0.003, 50.0),
    ]
    assert "6 trials, 60 s of training" in figure.caption(tables)


def test_its_specifications_are_valid_and_it_is_drawn(runs, tmp_path):
    figure, tables = FIGURES["rates"](), read_tables(runs)
    alt.LayerChart.validate(emptied(page_spec(figure.panels(tables)[0])))
    alt.VConcatChart.validate(emptied(file_spec(figure, tables)))
    text = "".join(ET.parse(save_figure(runs, "rates", tmp_path / "rates.svg")).getroot().itertext())
    assert all(word in text for word in ("distance, tuned", "rope", "learning rate"))
    assert '<section id="rates"' in write_report(runs, tmp_path / "report.html").read_text()


def test_runs_without_a_grid_have_no_such_figure(runs, tmp_path):
    with pytest.raises(StoreError, match="figure 'rates' draws table 'tuning', which none of these runs has"):
        file_spec(FIGURES["rates"](), read_tables(runs[:2]))
    assert '<section id="rates"' not in write_report(runs[:2], tmp_path / "report.html").read_text()
