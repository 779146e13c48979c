"""Figures and tables of the paper by their numbers, from made rows and as a user types the commands."""

import json
from dataclasses import replace

import pytest
from tests.study.made import row

from spectrope.cli import BAD_INPUT, main
from spectrope.core.errors import ConfigError
from spectrope.figures import panels_spec, write_spec
from spectrope.study.arms import planned
from spectrope.study.page.paper.arms import PaperRuns
from spectrope.study.page.paper.items import FIGURES, SIX, TABLES, figure_of, table_of
from spectrope.study.page.paper.page import render_paper
from spectrope.study.rows import StudyRows

SEEDS = (0, 1)


def made(without=()):
    """Rows of all that the figures draw, two seeds each, whose accuracy tells encoding and task."""
    bare = PaperRuns(StudyRows(), "mini", "controlled", SEEDS)
    cases = [(task, name) for task in ("distance", "counting") for name in (*SIX, "mla", "sum")]
    cases += [("distance", encoding) for encoding in bare.by_heads().values()]
    rows = [
        row(planned(task, encoding, scale="mini", condition="controlled", seed=seed), test=70.0 + 2 * seed)
        for task, encoding in cases
        if encoding not in without
        for seed in SEEDS
    ]
    return PaperRuns(StudyRows.of(rows), "mini", "controlled", SEEDS)


@pytest.fixture(scope="module")
def asked():
    return made()


@pytest.mark.parametrize("figure", [one for one in FIGURES if one.draw], ids=lambda one: f"{one.number}")
def test_every_figure_is_drawn_from_rows(asked, figure, tmp_path):
    panels = figure.panels(asked)
    text = write_spec(panels_spec(panels, 200, 3), tmp_path / "figure.svg").read_text()
    assert all(panel.title.split(",")[0].split("(")[0].strip() in text for panel in panels)


def test_curves_are_means_over_seeds_in_percent(asked):
    training, held_out = figure_of(2).panels(asked)
    assert (training.title, held_out.title) == ("training", "held out")
    last = [one for one in held_out.layers["lines"].rows if one["epoch"] == 1]
    assert len(last) == len(SIX)
    assert {(one["accuracy"], one["seeds"]) for one in last} == {(71.0, 2)}


def test_figures_say_how_many_seeds_they_show_and_how_their_runs_differ(asked):
    (group,) = {panel.group for panel in figure_of(2).panels(asked)}
    assert group.startswith("Means over seeds: rope (2 seeds), sinusoidal (2 seeds)")
    assert "means over 2 seeds; 95 % t intervals" in figure_of(5).panels(asked)[0].title
    rows = [
        row(replace(one, model=replace(one.model, dropout=0.0)), test=70.0)
        for one in (
            planned("distance", name, scale="mini", condition="controlled", seed=0) for name in ("sum", "mla")
        )
    ]
    alone = PaperRuns(StudyRows.of(rows), "mini", "controlled", SEEDS)
    bars = figure_of(6).panels(alone)[0].layers["bars"].rows
    assert [one["case"] for one in bars] == ["sum, Task 1 (1 seed, without dropout)"]
    table = {one["method"]: one for one in table_of(1).table(alone).rows}
    assert (table["mla"]["Task 1: here"], table["mla"]["Task 1: seeds"]) == ("70.0", "1, without dropout")


def test_heads_with_rope_are_counted_on_the_axis_of_figure_5(asked):
    (panel,) = figure_of(5).panels(asked)
    assert [one["k"] for one in panel.layers["means"].rows] == list(range(9))


def test_figures_9_to_14_have_a_panel_for_every_number_of_heads(asked):
    panels = figure_of(9).panels(asked)
    assert figure_of(14).panels(asked) == panels
    titles = [panel.title for panel in panels]
    assert [title.removeprefix("RoPE on ")[0] for title in titles] == ["1", "2", "3", "4", "5", "6", "7"]
    named = {title[8]: title.partition("(")[2].partition(", seed")[0] for title in titles}
    assert {k: told for k, told in named.items() if "figure" in told} == {
        "1": "figures 9 and 10",
        "2": "figure 11",
        "3": "figure 12",
        "6": "figure 13",
        "7": "figure 14",
    }
    assert {row["layer"] for row in panels[0].layers["lines"].rows} == {0, 1, 2}


def test_drops_have_the_outline_of_their_density():
    runs = made()
    panel = figure_of(7).panels(runs)[0]
    heads, outline = panel.layers["heads"].rows, panel.layers["outlines"].rows
    assert {round(row["x"]) for row in heads} == {row["layer"] for row in heads} == {0, 1, 2}
    drops = [row["drop"] for row in heads if row["layer"] == 0]
    ends = [row["drop"] for row in outline if row["layer"] == 0]
    assert min(drops) <= min(ends) < max(ends) <= max(drops)


def test_table_1_has_the_printed_accuracies_beside_ours(asked):
    rows = table_of(1).table(asked).rows
    assert [one["method"] for one in rows] == ["mla", "rope", "nope"]
    assert rows[1]["Task 1: paper"] == "92.64"
    assert rows[1]["Task 1: here"].startswith("71.0 [")
    missing = table_of(1).table(made(without=("mla",))).rows
    assert (missing[0]["Task 1: here"], missing[0]["Task 1: seeds"]) == ("not run", "0")


def test_tables_of_settings_equal_the_papers_at_its_scale():
    paper = PaperRuns(StudyRows(), "paper", "released", (0,))
    for number, other in ((3, {"maximum length", "batch size"}), (4, {"maximum length"})):
        rows = table_of(number).table(paper).rows
        assert {one["setting"] for one in rows if one["paper"] != one["here"]} == other


def test_what_has_no_measurement_or_no_runs_says_so(asked):
    with pytest.raises(ConfigError, match="it is a diagram of the argument"):
        figure_of(1).panels(asked)
    with pytest.raises(ConfigError, match="it lists symbols"):
        table_of(2).table(asked)
    with pytest.raises(ConfigError, match=r"figure 7 of arXiv \S+ v1 has no runs to draw at scale mini"):
        figure_of(7).panels(made(without=("mla",)))
    with pytest.raises(ConfigError, match="has figures 1 to 14; got 15"):
        figure_of(15)
    with pytest.raises(ConfigError, match="has tables 1 to 4; got 0"):
        table_of(0)


def test_the_page_has_every_figure_and_table_or_the_reason(asked):
    text = render_paper(asked)
    assert all(f'id="figure-{one.number}"' in text for one in FIGURES if one.draw)
    assert all(f'id="table-{one.number}"' in text for one in TABLES if one.fill)
    assert text.count("it is a diagram") == text.count("it lists symbols") == 1


def test_commands_read_run_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(("train", "--encoding", "nope", "--epochs", "1", "--examples", "60")) == 0
    capsys.readouterr()
    assert main(("paper", "table", "1", "--runs", "runs", "--json")) == 0
    rope = json.loads(capsys.readouterr().out)[2]
    assert (rope["method"], rope["task"], rope["paper"]) == ("rope", "distance", 92.64)
    assert (rope["estimate"], rope["seeds"]) == (None, 0)  # The runs are of another size.
    assert main(("paper", "figure", "2", "--runs", "runs")) == BAD_INPUT
    assert "has no runs to draw" in capsys.readouterr().err
    assert main(("paper", "page", "--runs", "runs", "--out", "page.html")) == 0
    assert main(("paper", "figure", "2", "--runs", "nowhere")) == BAD_INPUT
    assert "nowhere is not a folder" in capsys.readouterr().err
    assert main(("paper", "figure", "2", "--condition", "none")) == BAD_INPUT
    assert "unknown condition 'none'" in capsys.readouterr().err
