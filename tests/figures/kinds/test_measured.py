"""Figures of the tables that `spectrope spectrum` keeps."""

import math
import xml.etree.ElementTree as ET

import altair as alt
import polars as pl
import pytest
from tests.figures.kinds.test_ablated import KEPT
from tests.figures.kinds.test_figures import emptied
from tests.figures.spectra import HEADS, LENGTH, add_learning, add_spectra
from tests.figures.synthetic import TRAINED, make_run, make_store, save_figure

from spectrope.core.errors import StoreError
from spectrope.figures import FIGURES, write_report
from spectrope.figures.spec import file_spec, page_spec
from spectrope.figures.tables import Tables, read_tables

MEASURED = [name for name in FIGURES if name not in (*TRAINED, *KEPT, "rates", "lengths", "movement")]
EVERY_FIGURE = pytest.mark.parametrize("name", MEASURED)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    runs = make_store(tmp_path_factory.mktemp("store"), ("nope", "alibi", "rope"), seeds=(0, 1))
    return [add_learning(add_spectra(run)) for run in runs]


@pytest.fixture(scope="module")
def tables(store):
    return read_tables(store)


def panels(name, runs):
    return FIGURES[name]().panels(runs if isinstance(runs, Tables) else read_tables(runs))


def test_the_figures_are_registered():
    spectra = {"kernel", "symbol", "bands", "shares", "prediction", "eigenvalues", "terms", "term_kernel"}
    assert set(MEASURED) == spectra | {"predictors", "scatter", "gradients", "participation"}


@pytest.mark.sampled
@EVERY_FIGURE
def test_specifications_are_valid_vega_lite(tables, name):
    figure = FIGURES[name]()
    alt.LayerChart.validate(emptied(page_spec(figure.panels(tables)[-1])))
    alt.VConcatChart.validate(emptied(file_spec(figure, tables)))


@pytest.mark.sampled
@EVERY_FIGURE
def test_every_figure_is_drawn_as_svg_with_its_names(store, tmp_path, name):
    text = "".join(ET.parse(save_figure(store, name, tmp_path / "figure.svg")).getroot().itertext())
    assert all(word in text for word in ("distance", "counting", "rope"))


@EVERY_FIGURE
def test_runs_that_were_not_measured_are_refused(tmp_path, name):
    tables = read_tables([make_run(tmp_path, "rope")])
    with pytest.raises(StoreError, match=f"figure '{name}' draws table '\\w+', which none of these runs has"):
        file_spec(FIGURES[name](), tables)


def test_the_page_shows_what_its_runs_have(store, tmp_path):
    text = write_report(store, tmp_path / "report.html").read_text()
    assert all(f'<section id="{name}"' in text for name in MEASURED)
    plain = write_report([make_run(tmp_path, "rope")], tmp_path / "plain.html").read_text()
    assert not any(f'<section id="{name}"' in plain for name in MEASURED)


def test_only_runs_with_a_table_have_a_panel(tables):
    assert {panel.title for panel in panels("bands", tables)} == {"rope"}
    assert {panel.title for panel in panels("symbol", tables)} == {"alibi, layers 0-2", "rope, layers 0-2"}
    assert {panel.title for panel in panels("kernel", tables)} == {"nope", "alibi", "rope"}


def test_kernels_are_those_of_the_first_seed(tables):
    for panel in panels("kernel", tables):
        (lines,) = panel.layers.values()
        assert {row["seed"] for row in lines.rows} == {0}
        assert len(lines.rows) == 24 * 20
    assert "the first is drawn" in FIGURES["kernel"]().caption(tables)


def test_bars_of_the_symbol_stand_beside_it_and_nest(tables):
    for panel in panels("symbol", tables):
        bars = panel.layers["bounds"].rows
        assert len({row["theta"] for row in bars}) == len(bars)
        assert min(row["theta"] for row in bars) > math.pi
        for row in bars:
            assert (
                row["lower_bound"] <= row["smallest_estimate"] < row["largest_estimate"] <= row["upper_bound"]
            )
        assert max(row["theta"] for row in panel.layers["symbols"].rows) == pytest.approx(math.pi)


def test_band_energies_share_a_scale_that_is_white_at_zero(tables):
    for panel in panels("bands", tables):
        assert len(panel.layers["cells"].rows) == 24 * 8
        domain = panel.layers["cells"].spec()["encoding"]["color"]["scale"]["domain"]
        assert domain == [-value for value in reversed(domain)]


def test_shares_hold_every_seed_with_its_interval(tables):
    for panel in panels("shares", tables):
        assert len(panel.layers["points"].rows) == 3 * 3 * 2
        assert all(
            row["share_low"] < row["share"] < row["share_high"] for row in panel.layers["intervals"].rows
        )


def test_eigenvalues_are_counted_of_the_most_toeplitz_head(store, tables):
    run = next(run for run in store if run.config["encoding_name"] == "rope" and run.config["seed"] == 0)
    top = run.frame("spectrum").sort("toeplitz").row(-1, named=True)
    kind = pl.col("kind") == "eigenvalue"
    own = (pl.col("layer") == top["layer"]) & (pl.col("head") == top["head"]) & kind
    (panel,) = [
        p for p in panels("eigenvalues", tables) if (p.group, p.title) == (run.config["task"]["kind"], "rope")
    ]
    bins = panel.layers["eigenvalues"].rows
    assert sum(row["eigenvalues"] for row in bins) == sum(row["expected"] for row in bins) == LENGTH
    values = run.frame("eigenvalues").filter(own)["value"]
    first = bins[0]
    assert first["eigenvalues"] == ((values >= first["low"]) & (values < first["high"])).sum()
    distance = run.frame("szego").filter(own).row(0, named=True)
    (words,) = panel.layers["words"].rows
    assert words["words"].split("\n") == [
        f"layer {top['layer']}, head {top['head']}",
        f"distance {100 * distance['relative']:.1f} % of the range",
        f"lags do not decay: {100 * distance['tail_share']:.0f} % beyond n/2",
    ]


def test_gradient_shares_have_a_line_per_head_and_an_equal_share(tables):
    drawn = panels("gradients", tables)
    assert {panel.title for panel in drawn} >= {"rope, layer 0", "nope, layer 2"}
    for panel in drawn:
        assert len(panel.layers["heads"].rows) == 3 * HEADS
        assert panel.layers["equal"].rows == [{"gradient_share": 1 / HEADS}]


def test_participation_has_two_lines_per_layer_and_seed(tables):
    for panel in panels("participation", tables):
        assert len(panel.layers["lines"].rows) == 2 * 2 * 3 * 3
        assert {row["side"] for row in panel.layers["lines"].rows} == {"of gradients", "of weights"}


class TestPrediction:
    """Heads by share and drop, with the rank correlation in words."""

    def test_a_point_per_head_and_seed(self, tables):
        for panel in panels("prediction", tables):
            assert len(panel.layers["heads"].rows) == 48

    def test_words_are_the_range_over_seeds(self, tables):
        (row,) = panels("prediction", tables)[0].layers["words"].rows
        first, second = row["words"].split("\n")
        assert first.startswith("ρ ")
        assert second.startswith("within layers ")
        assert second.endswith(" over 2 seeds")

    def test_words_are_the_interval_of_one_run(self, store):
        runs = [run for run in store if run.config["seed"] == 0]
        kept = runs[0].frame("correlation").row(0, named=True)
        name = runs[0].config["encoding_name"], runs[0].config["task"]["kind"]
        (panel,) = [p for p in panels("prediction", runs) if (p.title, p.group) == name]
        (row,) = panel.layers["words"].rows
        numbers = f"{kept['rho']:.2f} [{kept['rho_low']:.2f}, {kept['rho_high']:.2f}]".replace("-", "−")
        assert row["words"].split("\n")[0] == f"ρ {numbers}"

    def test_a_run_without_correlation_is_left_out(self, tmp_path):
        runs = [add_spectra(run) for run in make_store(tmp_path, ("nope", "rope"), ("distance",))]
        runs[0].remove("correlation")
        assert [panel.title for panel in panels("prediction", runs)] == ["rope"]


def test_predictors_have_a_mark_per_quantity_scope_and_seed(tables):
    for panel in panels("predictors", tables):
        marks = panel.layers["points"].rows
        assert {(row["quantity"], row["scope"], row["seed"]) for row in marks} == {
            ("toeplitz", scope, seed) for scope in ("heads", "within layers") for seed in (0, 1)
        }
        assert all(row["rho_low"] <= row["rho"] <= row["rho_high"] for row in marks)


@pytest.mark.sampled
@EVERY_FIGURE
def test_values_that_are_not_finite_are_left_out(tmp_path, name):
    run = add_learning(add_spectra(make_run(tmp_path, "rope")))
    quantities = {
        "kernel": "effect",
        "shares": "share",
        "bands": "share",
        "symbol": "symbol",
        "spectrum": "toeplitz",
        "eigenvalues": "value",
        "learning": "gradient_share",
        "participation": "gradient",
    }
    for table, quantity in quantities.items():
        run.write_frame(table, run.frame(table).with_columns(pl.lit(math.nan).alias(quantity)))
    for panel in panels(name, [run]):
        assert page_spec(panel)
        drawn = [row for layer in panel.layers.values() for row in layer.rows]
        assert all(math.isfinite(row[key]) for row in drawn for key in set(quantities.values()) & set(row))


def test_the_scatter_has_a_point_per_head_of_every_run_that_knows_the_quantity(tables):
    drawn = {(panel.group, panel.title): panel.layers for panel in panels("scatter", tables)}
    assert set(drawn) == {(s, q) for s in tables.settings for q in tables.correlation["quantity"].unique()}
    for (setting, quantity), layers in drawn.items():
        known = tables.correlation.filter(setting=setting, quantity=quantity)
        assert len(layers["heads"].rows) == 24 * known["run"].n_unique()
        row = layers["heads"].rows[0]
        head = pl.DataFrame([{name: row[name] for name in ("run", "layer", "head")}])
        assert row["drop"] == tables.ablation.join(head, on=["run", "layer", "head"])["drop"].item()
        assert row["value"] == tables.spectrum.join(head, on=["run", "layer", "head"])[quantity].item()
        (words,) = layers["words"].rows
        assert f"over {len(known.filter(scope='heads'))} runs" in words["words"]


def test_the_scatter_shows_bands_where_a_run_has_them(tmp_path):
    run = add_spectra(make_run(tmp_path, "rope"))
    correlation = run.frame("correlation")
    band = correlation.filter(quantity="toeplitz").with_columns(quantity=pl.lit("band_0"))
    run.write_frame("correlation", pl.concat([correlation, band]))
    drawn = {panel.title: panel.layers["heads"].rows for panel in panels("scatter", [run])}
    first = run.frame("bands").filter(band=0)
    assert sorted(row["value"] for row in drawn["band 0"]) == sorted(first["share"])


def test_terms_are_stacked_by_layer_as_means_over_heads_for_each_design(store):
    (one, *_) = panels("terms", store[:1])
    assert one.title.endswith("held-out")
    shares = pl.DataFrame(one.layers["bars"].rows)
    assert shares.group_by("layer").agg(pl.col("share").sum())["share"].to_list() == pytest.approx([1] * 3)
    assert sorted(set(shares["order"])) == [0, 1, 2, 3, 5]
    assert len(panels("terms", store[:1])) == 2


def test_the_kernel_of_the_last_term_has_a_band_of_its_entries(store):
    (one,) = panels("term_kernel", store[:1])
    assert len(one.layers["entries"].rows) == 3 * HEADS * LENGTH
    assert all(row["entry_low"] < row["effect"] < row["entry_high"] for row in one.layers["heads"].rows)
