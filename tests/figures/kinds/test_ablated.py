"""Figures of the tables that the methods of `spectrope ablate` keep."""

import itertools
import math
import xml.etree.ElementTree as ET

import altair as alt
import polars as pl
import pytest
from tests.figures.ablated import add_ablations
from tests.figures.kinds.test_figures import emptied
from tests.figures.synthetic import make_run, make_store, save_figure

from spectrope.core.errors import StoreError
from spectrope.figures import DROP, FIGURES, head_map, write_report
from spectrope.figures.spec import file_spec, page_spec
from spectrope.figures.tables import Tables, read_tables
from spectrope.lab.ablation.thresholds import DEFAULT_RULE

KEPT = ("deposit", "cumulative", "screen")
ABLATED = ("versus", *KEPT)
EVERY_FIGURE = pytest.mark.parametrize("name", ABLATED)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    runs = make_store(tmp_path_factory.mktemp("store"), ("nope", "alibi", "rope"), seeds=(0, 1))
    return [add_ablations(run) for run in runs]


@pytest.fixture(scope="module")
def tables(store):
    return read_tables(store)


def panels(name, runs):
    return FIGURES[name]().panels(runs if isinstance(runs, Tables) else read_tables(runs))


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
    assert all(word in text for word in ("distance", "counting", "alibi"))


@pytest.mark.parametrize("name", KEPT)
def test_runs_without_the_table_are_refused(tmp_path, name):
    tables = read_tables([make_run(tmp_path, "rope")])
    with pytest.raises(StoreError, match=f"figure '{name}' draws table '{name}', which none of these runs"):
        file_spec(FIGURES[name](), tables)


@EVERY_FIGURE
def test_values_that_are_not_finite_are_left_out(tmp_path, name):
    run = add_ablations(make_run(tmp_path, "nope"))
    for table in ("ablation", *KEPT):
        run.write_frame(table, run.frame(table).with_columns(drop=pl.lit(math.nan), gap=pl.lit(math.nan)))
    for panel in panels(name, [run]):
        assert page_spec(panel)
        assert all(math.isfinite(row.get("drop", 0)) for layer in panel.layers.values() for row in layer.rows)


def test_the_page_has_a_section_for_each(store, tmp_path):
    page = write_report(store, tmp_path / "report.html").read_text()
    sections = [page.index(f'<section id="{name}"') for name in ("violin", *ABLATED)]
    assert sections == sorted(sections)


class TestVersus:
    """The heads of two models in the order of their drops."""

    def test_every_other_encoding_is_drawn_beside_rope(self, tables):
        drawn = panels("versus", tables)
        names = [(task, encoding) for task in ("distance", "counting") for encoding in ("nope", "alibi")]
        assert [(panel.group, panel.title) for panel in drawn] == names
        for panel in drawn:
            assert {row["encoding"] for row in panel.layers["heads"].rows} == {"rope", panel.title}

    def test_ranks_fall_with_the_drop_and_seeds_do_not_mix(self, tables):
        for panel in panels("versus", tables):
            heads = pl.DataFrame(panel.layers["heads"].rows)
            for _, own in heads.group_by("encoding", "seed"):
                ordered = own.sort("rank")
                assert ordered["rank"].to_list() == list(range(1, 25))
                assert ordered["drop"].is_sorted(descending=True)

    def test_without_rope_each_encoding_stands_alone(self, store):
        (panel,) = panels("versus", [run for run in store if run.config["encoding_name"] == "alibi"][:1])
        assert {row["encoding"] for row in panel.layers["heads"].rows} == {"alibi"}

    def test_rope_alone_has_no_panel(self, store):
        assert panels("versus", [run for run in store if run.config["encoding_name"] == "rope"]) == []


class TestDeposit:
    """Layers in the plane of gap and share."""

    def test_a_mark_in_the_corner_is_a_deposit(self, tables):
        for panel in panels("deposit", tables):
            (corner,) = panel.layers["corner"].rows
            assert (corner["gap"], corner["share"]) == (DEFAULT_RULE.gap, DEFAULT_RULE.share)
            for row in panel.layers["bounds"].rows:
                inside = row["gap_low"] >= corner["gap"] and row["share_low"] >= corner["share"]
                assert inside == row["deposit"]

    def test_the_planted_deposit_is_there_and_no_other(self, tables):
        found = [
            (panel.title, row["encoding"], row["layer"])
            for panel in panels("deposit", tables)
            for row in panel.layers["bounds"].rows
            if row["deposit"]
        ]
        assert found == [("distance", "rope", 0)] * 2

    def test_layers_without_a_share_are_counted(self, tmp_path):
        run = add_ablations(make_run(tmp_path, "nope"))
        run.write_frame("deposit", run.frame("deposit").with_columns(share=pl.lit(None, pl.Float64)))
        assert panels("deposit", [run])[0].layers["bounds"].rows == []
        assert "3 of 3 layers drop too little" in FIGURES["deposit"]().caption(read_tables([run]))
        run.write_frame("deposit", run.frame("deposit").with_columns(share=pl.lit(0.5)))
        assert "too little" not in FIGURES["deposit"]().caption(read_tables([run]))


class TestCumulative:
    """A curve per run."""

    def test_every_step_of_every_run_is_a_point(self, tables):
        for panel in panels("cumulative", tables):
            assert len(panel.layers["heads"].rows) == 3 * 2 * 24
            for row in panel.layers["heads"].rows:
                assert row["name"] == f"{row['layer']}.{row['head']}"

    def test_steps_of_a_line_are_in_order(self, tables):
        for panel in panels("cumulative", tables):
            steps = [(row["encoding"], row["seed"], row["n_changed"]) for row in panel.layers["lines"].rows]
            assert all(a < b for a, b in itertools.pairwise(steps))


class TestScreening:
    """Estimates beside what they stand for."""

    def test_each_seed_has_its_correlation(self, tables):
        for panel in panels("screen", tables):
            assert len(panel.layers["heads"].rows) == 2 * 24
            (words,) = panel.layers["words"].rows
            assert [line.split(":")[0] for line in words["words"].splitlines()] == ["seed 0", "seed 1"]

    @pytest.mark.parametrize("heads", [3, 24])
    def test_no_correlation_without_spread_or_with_too_few_heads(self, tmp_path, heads):
        run = add_ablations(make_run(tmp_path, "rope"))
        run.write_frame("screen", run.frame("screen").head(heads).with_columns(drop=pl.lit(1.0)))
        (panel,) = panels("screen", [run])
        assert [row["words"] for row in panel.layers["words"].rows] == ["seed 0: ρ undefined"]


@pytest.mark.parametrize("roles", [None, ("encoder", "decoder")])
def test_the_heads_of_one_model_are_a_map(roles):
    heads = pl.DataFrame({"layer": [0, 0, 1], "head": [0, 1, 0], "drop": [5.0, -2.0, 0.1]})
    heads = heads.with_columns(low=pl.col("drop") - 1, high=pl.col("drop") + 1)
    if roles is not None:
        heads = pl.concat([heads.with_columns(role=pl.lit(role)) for role in roles])
    (row,) = head_map(heads, DROP)["vconcat"]
    assert [panel["title"] for panel in row["concat"]] == list(roles or ("",))
    for panel in row["concat"]:
        assert [cell["drop"] for cell in panel["data"]["values"]] == [5.0, -2.0, 0.1]
        assert panel["layer"][0]["encoding"]["color"]["scale"]["domain"] == [-5.0, -2.5, 0.0, 2.5, 5.0]
