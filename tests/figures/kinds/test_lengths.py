"""Accuracy by length: means over seeds, intervals, and where lines end."""

import altair as alt
import polars as pl
import pytest
from tests.figures.kinds.test_figures import emptied
from tests.figures.synthetic import make_run

from spectrope.core.errors import StoreError
from spectrope.figures import FIGURES
from spectrope.figures.spec import file_spec
from spectrope.figures.tables import read_tables
from spectrope.stats import t_interval

FIGURE = FIGURES["lengths"]


def measured(root, encoding, seed, accuracies, scaling="none"):
    run = make_run(root, encoding, seed=seed)
    rows = [
        {"scaling": scaling, "factor": factor, "accuracy": value}
        | {"low": None if value is None else value - 0.1, "high": None if value is None else value + 0.1}
        for factor, value in accuracies.items()
    ]
    schema = {"scaling": pl.String, **dict.fromkeys(("factor", "accuracy", "low", "high"), pl.Float64)}
    run.write_frame("extrapolation", pl.DataFrame(rows, schema=schema))
    return run


def lines(runs):
    (panel,) = FIGURE().panels(read_tables(runs))
    return panel.layers["lines"].rows


def test_points_are_means_over_seeds_with_their_t_interval(tmp_path):
    runs = [measured(tmp_path, "rope", seed, {1.0: value}) for seed, value in enumerate((0.5, 0.7, 0.6))]
    (point,) = lines(runs)
    interval = t_interval(pl.Series([50.0, 70.0, 60.0]).to_numpy())
    assert point["accuracy"] == pytest.approx(60)
    assert (point["low"], point["high"]) == pytest.approx((interval.low, interval.high))


def test_one_seed_has_the_interval_over_examples_and_lines_end_with_positions(tmp_path):
    runs = [
        measured(tmp_path, "learned", 0, {1.0: 0.5, 2.0: None}),
        measured(tmp_path, "rope", 0, {1.0: 0.9}),
    ]
    points = {(row["encoding"], row["factor"]): row for row in lines(runs)}
    assert set(points) == {("learned", 1.0), ("rope", 1.0)}
    assert (points["learned", 1.0]["low"], points["learned", 1.0]["high"]) == pytest.approx((40, 60))


def test_every_scaling_has_a_panel(tmp_path):
    runs = [measured(tmp_path, "rope", 0, {1.0: 0.5}), measured(tmp_path, "rope", 1, {1.0: 0.5}, "yarn")]
    figure, tables = FIGURE(), read_tables(runs)
    assert [panel.title for panel in figure.panels(tables)] == ["as trained", "yarn"]
    alt.VConcatChart.validate(emptied(file_spec(figure, tables)))


def test_runs_without_lengths_are_refused(tmp_path):
    with pytest.raises(StoreError, match="figure 'lengths' draws table 'extrapolation'"):
        file_spec(FIGURE(), read_tables([make_run(tmp_path, "rope")]))
