"""What the figures draw, for runs of every shape."""

import itertools
import math

import altair as alt
import numpy as np
import polars as pl
import pytest
from scipy import stats
from tests.figures.synthetic import ENCODINGS, TRAINED, ablation, make_run, make_store, metrics

from spectrope.core.errors import StoreError
from spectrope.figures import FIGURES
from spectrope.figures.kinds.violin import kernel_density, outlines
from spectrope.figures.names import styles
from spectrope.figures.spec import file_spec, page_spec
from spectrope.figures.tables import Tables, read_tables

EVERY_FIGURE = pytest.mark.parametrize("name", TRAINED)


@pytest.fixture(scope="module")
def tables(store):
    return read_tables(store)


def panels(name, runs):
    return FIGURES[name]().panels(runs if isinstance(runs, Tables) else read_tables(runs))


def emptied(spec):
    """A specification without its rows, which take long to validate and are not what is in doubt."""
    if isinstance(spec, dict):
        return {key: {"values": []} if key == "data" else emptied(value) for key, value in spec.items()}
    return [emptied(item) for item in spec] if isinstance(spec, list) else spec


def rewrite(run, name, **columns):
    run.write_frame(name, run.frame(name).with_columns(**columns))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store"), seeds=(0, 1, 2))


def test_the_figures_of_the_issue_are_registered():
    assert set(FIGURES) >= {"accuracy", "curves", "heatmap", "loss", "violin"}


@pytest.mark.sampled
@EVERY_FIGURE
def test_specifications_are_valid_vega_lite(tables, name):
    figure = FIGURES[name]()
    alt.LayerChart.validate(emptied(page_spec(figure.panels(tables)[-1])))
    alt.VConcatChart.validate(emptied(file_spec(figure, tables)))


@pytest.mark.parametrize("name", ["curves", "loss"])
def test_a_line_per_run_and_a_point_per_evaluation(tables, name):
    drawn = panels(name, tables)
    assert [(panel.group, panel.title) for panel in drawn] == [
        (task, split)
        for task in ("distance", "counting")
        for split in ("training examples", "held-out examples")
    ]
    for panel in drawn:
        assert len(panel.layers["points"].rows) == 8 * 3 * 7
        assert len(panel.layers["means"].rows) == 8 * 7
    quantity = {"curves": "accuracy", "loss": "loss"}[name]
    values = pl.DataFrame(drawn[1].layers["points"].rows).filter(encoding="rope", epoch=6)[quantity]
    (mean,) = (row for row in drawn[1].layers["means"].rows if (row["encoding"], row["epoch"]) == ("rope", 6))
    assert mean[quantity] == pytest.approx(values.mean())


@pytest.mark.parametrize("last", [1, 2, 8, 9, 40, 150, 1000])
def test_epochs_are_marked_by_whole_numbers_few_enough_to_read(tmp_path, last):
    run = make_run(tmp_path, "rope")
    run.write_frame("metrics", metrics("rope", "distance", 0, epochs=last))
    ticks = panels("curves", [run])[0].layers["runs"].spec()["encoding"]["x"]["axis"]["values"]
    assert ticks[0] == 0
    assert len(ticks) <= 9
    assert len({b - a for a, b in itertools.pairwise(ticks)}) == 1


def test_one_seed_has_no_mean(store):
    runs = [run for run in store if run.config["seed"] == 0]
    assert all("means" not in panel.layers for panel in panels("curves", runs))


def test_the_ceiling_of_each_task_is_drawn_once(tables):
    for name in ("curves", "accuracy"):
        rules = {panel.group or panel.title: panel.layers["ceiling"].rows for panel in panels(name, tables)}
        assert rules == {"distance": [{"ceiling": 100.0}], "counting": [{"ceiling": pytest.approx(99.4)}]}


def test_a_diverged_seed_is_not_averaged_away(tmp_path):
    runs = make_store(tmp_path, ("rope",), ("distance",), (0, 1))
    lost = pl.when(pl.col("epoch") >= 3).then(math.nan).otherwise(pl.col("loss"))
    rewrite(runs[0], "metrics", loss=lost)
    panel = panels("loss", runs)[1]
    assert sorted({row["epoch"] for row in panel.layers["means"].rows}) == [0, 1, 2]
    assert len(panel.layers["points"].rows) == 3 + 7
    page_spec(panel)


def test_colours_are_those_of_the_encodings_everywhere(tables):
    expected = {name: style.colour for name, style in styles(ENCODINGS).items()}
    for name, layer in (("curves", "runs"), ("loss", "points"), ("accuracy", "held_out")):
        for panel in panels(name, tables):
            scale = panel.layers[layer].spec()["encoding"]["color"]["scale"]
            assert dict(zip(scale["domain"], scale["range"], strict=True)) == expected
    for panel in panels("violin", tables):
        assert panel.layers["heads"].spec()["mark"]["color"] == expected[panel.title]


class TestHeatMap:
    """A cell per head and seed on a scale that is white at zero."""

    def test_every_head_of_every_seed_has_a_cell(self, tables):
        drawn = panels("heatmap", tables)
        assert [(panel.group, panel.title) for panel in drawn] == [
            (task, encoding) for task in ("distance", "counting") for encoding in ENCODINGS
        ]
        for panel in drawn:
            places = {(row["layer"], row["head"], row["seed"]) for row in panel.layers["cells"].rows}
            assert len(places) == len(panel.layers["cells"].rows) == 3 * 8 * 3

    def test_the_scale_of_a_task_is_symmetric_and_shared(self, tables):
        limits = {}
        for panel in panels("heatmap", tables):
            domain = panel.layers["cells"].spec()["encoding"]["color"]["scale"]["domain"]
            assert domain == [-value for value in reversed(domain)]
            limits.setdefault(panel.group, set()).add(domain[-1])
        heads = tables.ablation
        for task, found in limits.items():
            assert found == {heads.filter(setting=task)["drop"].abs().max()}

    def test_a_model_that_misses_no_head_is_not_blown_up(self, tmp_path):
        run = make_run(tmp_path, "rope")
        rewrite(run, "ablation", drop=pl.lit(-0.01))
        figure = FIGURES["heatmap"]()
        assert figure.ramp(read_tables([run]), "distance") == 1.0

    def test_wide_models_show_the_largest_number_of_each_seed(self, tmp_path):
        runs = make_store(tmp_path, ("rope",), ("distance",), (0, 1))
        for run in runs:
            run.write_frame("ablation", ablation("rope", "distance", run.config["seed"], layers=2, heads=16))
        (panel,) = panels("heatmap", runs)
        assert sorted(row["drop"] for row in panel.layers["numbers"].rows) == [71.3, 71.3]


class TestViolin:
    """A point per head, and outlines that enclose them."""

    def test_every_head_is_a_point_beside_its_layer(self, tables):
        for panel in panels("violin", tables):
            heads = panel.layers["heads"].rows
            assert len(heads) == 3 * 8 * 3
            offsets = [row["x"] - row["layer"] for row in heads]
            assert all(abs(offset) <= 0.3 for offset in offsets)
            assert sum(offsets) == pytest.approx(0, abs=1e-9)

    def test_the_density_is_scipys_between_the_extremes(self):
        values = np.random.default_rng(0).normal(size=40)
        grid, density = kernel_density(values)
        assert (grid.min(), grid.max(), density.max()) == (values.min(), values.max(), 1.0)
        reference = stats.gaussian_kde(values, bw_method=1.0)
        spread = min(values.std(ddof=1), stats.iqr(values) / 1.349)
        reference.set_bandwidth(0.9 * spread * 40**-0.2 / values.std(ddof=1))
        assert density * reference(grid).max() == pytest.approx(reference(grid))

    def test_a_deposit_does_not_smear_out_the_others(self):
        grid, density = kernel_density(np.array([0.1, 0.2, -0.1, 0.0, 0.3, 0.1, -0.2, 71.0]))
        assert density[(grid > 5) & (grid < 66)].max() < 0.01
        assert grid[density.argmax()] < 0.5

    def test_outlines_are_symmetric_about_their_layer(self):
        found = pl.DataFrame(outlines(ablation("rope", "distance", 0)))
        assert set(found["layer"]) == {0, 1, 2}
        assert (found["x"] + found["x2"]).to_list() == pytest.approx((2 * found["layer"]).to_list())
        assert (found["x2"] - found["x"]).max() == pytest.approx(0.84)

    @pytest.mark.parametrize("drops", [[1.0], [1.0, 2.0], [3.0] * 8, [math.nan] * 8])
    def test_too_few_or_equal_heads_have_no_outline(self, drops):
        n = len(drops)
        part = pl.DataFrame({"layer": [0] * n, "head": range(n), "drop": drops})
        assert outlines(part) == []

    def test_equal_quartiles_fall_back_on_the_deviation(self):
        grid, density = kernel_density(np.array([0.0] * 7 + [8.0]))
        assert np.isfinite(density).all()
        assert grid[density.argmax()] == 0.0


class TestAccuracy:
    """A dot per run; intervals once there are several."""

    def test_a_dot_per_run(self, tables):
        for panel in panels("accuracy", tables):
            assert len(panel.layers["held_out"].rows) == len(panel.layers["training"].rows) == 24
            assert len(panel.layers["intervals"].rows) == 8

    def test_one_seed_has_no_interval(self, store):
        runs = [run for run in store if run.config["seed"] == 0]
        assert all(panel.layers["intervals"].rows == [] for panel in panels("accuracy", runs))

    def test_intervals_end_where_accuracies_do(self, tables):
        for panel in panels("accuracy", tables):
            for row in panel.layers["intervals"].rows:
                assert 0 <= row["low"] <= row["mean"] <= row["high"] <= 100


class TestShapes:
    """Runs of unusual shape still give every figure."""

    @pytest.mark.sampled
    @EVERY_FIGURE
    def test_twelve_encodings(self, tmp_path, name):
        names = (*ENCODINGS, "kerple", "fire", "yarn", "mine")
        drawn = panels(name, make_store(tmp_path, names, ("distance",)))
        assert all(page_spec(panel)["layer"] for panel in drawn)

    @EVERY_FIGURE
    def test_one_layer_of_one_head(self, tmp_path, name):
        run = make_run(tmp_path, "rope")
        run.write_frame("ablation", ablation("rope", "distance", 0, layers=1, heads=1))
        assert all(page_spec(panel)["layer"] for panel in panels(name, [run]))

    @EVERY_FIGURE
    def test_nothing_but_nan(self, tmp_path, name):
        run = make_run(tmp_path, "rope")
        rewrite(run, "metrics", loss=pl.lit(math.nan), accuracy=pl.lit(math.nan))
        rewrite(run, "ablation", drop=pl.lit(math.nan))
        for panel in panels(name, [run]):
            quantities = {"accuracy", "loss", "drop"}
            drawn = [row for layer in panel.layers.values() for row in layer.rows]
            assert all(math.isfinite(row[key]) for row in drawn for key in quantities & set(row))

    @EVERY_FIGURE
    def test_negative_drops(self, tmp_path, name):
        run = make_run(tmp_path, "rope")
        rewrite(run, "ablation", drop=-pl.col("drop").abs() - 1)
        assert all(page_spec(panel)["layer"] for panel in panels(name, [run]))

    def test_some_runs_without_ablation(self, store, tmp_path):
        runs = make_store(tmp_path, ("nope", "rope"), ("distance",))
        runs[0].remove("ablation")
        assert [panel.title for panel in panels("heatmap", runs)] == ["rope"]

    @pytest.mark.parametrize("name", ["heatmap", "violin"])
    def test_no_run_with_ablation(self, tmp_path, name):
        run = make_run(tmp_path, "rope")
        run.remove("ablation")
        assert panels("curves", [run])
        with pytest.raises(StoreError, match=f"figure '{name}' draws table 'ablation', which none"):
            file_spec(FIGURES[name](), read_tables([run]))
