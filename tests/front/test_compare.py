"""Comparisons and training from Python."""

import re
from functools import partial

import polars as pl
import pytest
from tests.figures.synthetic import make_run
from tests.front.made import SMALL

import spectrope as sp
from spectrope import lab
from spectrope.core.errors import ConfigError, SpectropeWarning, UnknownNameError
from spectrope.core.progress import Progress
from spectrope.front.compare import _by_length
from spectrope.lab.compare import COMPARED, comparison_plan


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    root = tmp_path_factory.mktemp("compared") / "runs"
    return root, sp.compare(["rope", "nope"], "distance", seeds=(0, 1), root=root, **SMALL)


def test_it_has_a_run_for_each_seed_and_encoding_in_order(compared):
    root, found = compared
    rows = found.to_frame()
    assert rows.select("seed", "encoding").rows() == [(0, "rope"), (0, "nope"), (1, "rope"), (1, "nope")]
    assert rows["path"].to_list() == [str(run.path) for run in found.runs]
    for run, row in zip(found.runs, rows.iter_rows(named=True), strict=True):
        drops = run.frame("ablation")
        assert row["test"] == 100 * run.manifest["test_accuracy"]
        assert row["drop"] == drops["drop"].max()
        here = drops.filter((pl.col("layer") == row["layer"]) & (pl.col("head") == row["head"]))
        assert here["drop"].item() == row["drop"]
    assert {run.path.parent for run in found.runs} == {root}


def test_finished_runs_are_read(compared):
    root, found = compared
    seen: list[Progress] = []
    again = sp.compare(["rope", "nope"], "distance", (0, 1), root=root, **SMALL | {"watch": seen.append})
    assert again == found
    assert {progress.stage for progress in seen} == {"done"}


def test_it_shows_its_table_as_text_and_in_a_notebook(compared):
    _, found = compared
    text, html = repr(found), found._repr_html_()
    assert "accuracy in %; drop in points if the most important head" in text
    assert "matrix products in " in " ".join(text.split())
    assert re.search(r"distance +rope +1 +[\d.]+ +[\d.]+ +100\.0 ", text)
    assert html.count("<tr>") == 5
    assert html.count("<td") == 4 * 9


def test_tables_figures_and_reports_take_it_as_it_is(compared, tmp_path):
    root, found = compared
    assert list(found) == list(found.runs)
    assert len(found) == 4
    assert sp.table(found).equals(found.to_frame())
    assert set(sp.table(str(root))["run"]) == {run.id for run in found}
    assert sp.figure(found).spec == sp.figure(found.runs, "heatmap").spec == found.figure().spec
    assert sp.report(found, tmp_path / "report.html").exists()


def test_classes_and_configurations_stand_for_names(compared):
    root, found = compared
    encodings = [sp.encodings.RoPE, sp.encodings.NoPE()]
    assert sp.compare(encodings, sp.tasks.Distance, range(2), root=root, **SMALL) == found


def test_fields_of_a_task_replace_the_scale_s():
    task = sp.tasks.Counting(length=16, max_count=4)
    (one,) = comparison_plan("rope", task, epochs=1, n_examples=60)
    assert one.task == task.config
    assert one.model.max_length == task.max_length


def test_it_draws_and_reports(compared, tmp_path):
    _, found = compared
    assert found.report(tmp_path / "report.html").stat().st_size > 10_000
    assert found.figure("accuracy").save(tmp_path / "a.svg").read_text().startswith("<svg")


def test_a_grid_of_rates_is_shown_beside_the_runs(tmp_path):
    found = sp.compare("nope", "distance", rates=(1.0, 3.0), root=tmp_path / "runs", **SMALL)
    assert len(found.runs) == len(found.tuned) == len(found.tunings) == 1
    assert found.to_frame()["tuning"].to_list() == ["none", "chosen"]
    text = repr(found)
    assert re.search(r"distance +nope +0\.003: [\d.]+ +0\.009: [\d.]+ +0\.00[39]\* +\d", text)
    assert "The grids took 2 runs" in text
    assert "the same at the learning rates chosen above" in text


def test_the_usual_plan_is_that_of_the_paper():
    plan = comparison_plan()
    assert [one.encoding_name for one in plan[:8]] == list(COMPARED)
    assert [one.task.kind for one in plan[::8]] == ["distance", "counting"]
    assert len(comparison_plan(["rope", "rope"], "distance")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((), "distance"), "a comparison's encodings must be at least one; got none"),
        (("rope", ()), "a comparison's tasks must be at least one; got none"),
        (("rope", "distance", ()), "a comparison's seeds must be at least one; got none"),
    ],
)
def test_nothing_is_no_plan(arguments, message):
    with pytest.raises(ConfigError, match=message):
        comparison_plan(*arguments)


def test_mistakes_are_one_line(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown encoding 'rop'; did you mean rope"):
        sp.compare("rop", "distance", root=tmp_path)
    with pytest.raises(
        ConfigError, match=r"at least 4 held-out examples, .* 10 examples leave 3\. Take 12 or more\."
    ):
        sp.compare("rope", "distance", root=tmp_path, n_examples=10)
    with pytest.raises(ConfigError, match="workers must be at least 1; got 0"):
        sp.compare("rope", "distance", root=tmp_path, workers=0)
    with pytest.raises(ConfigError, match=r"rates must be at least one, and positive; got \(0\.0,\)"):
        sp.compare("rope", "distance", root=tmp_path, rates=(0.0,))


def test_an_experiment_by_itself_is_trained(tmp_path):
    one = sp.experiment("distance", "alibi", epochs=1, n_examples=60)
    run = sp.train(one, root=tmp_path, watch=sp.unwatched)
    assert run == sp.train("alibi", root=tmp_path, **SMALL)
    with pytest.raises(ConfigError, match="an experiment already has its task, scale and sizes"):
        sp.train(one, seed=1)  # pyright: ignore[reportCallIssue]


def test_a_diverged_run_is_warned_of(tmp_path):
    sp.train("nope", root=tmp_path, **SMALL)
    (run,) = sp.runs(tmp_path)
    run.finish(run.manifest | {"test_loss": None})
    with pytest.warns(SpectropeWarning, match="distance/nope/seed 0 diverged: its held-out loss"):
        sp.train("nope", root=tmp_path, **SMALL)


def test_no_plan_has_no_runs(tmp_path):
    assert sp.execute([], tmp_path) == []


def test_a_figure_is_drawn_of_a_folder(tmp_path):
    make_run(tmp_path, "rope")
    drawing = sp.figure(tmp_path, "accuracy")
    bundle = drawing._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    assert (
        bundle["text/plain"]
        == repr(drawing)
        == ("figure 'accuracy'; a notebook displays it, and .save('accuracy.svg') writes it")
    )
    with pytest.raises(UnknownNameError, match="unknown figure 'heat'; did you mean heatmap"):
        sp.figure(tmp_path, "heat")


@pytest.fixture(scope="module")
def by_length(compared):
    root, _ = compared
    scalings = ("none", "yarn", "drope")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab, "extrapolate", partial(lab.extrapolate, examples=100))
        return sp.compare(
            ["rope", "nope"], "distance", (0, 1), lengths=(1, 2), scalings=scalings, root=root, **SMALL
        )


class TestLengths:
    def test_every_run_is_scored_at_every_length_under_what_applies_to_it(self, by_length):
        scores = by_length.lengths
        assert scores is not None
        found = scores.select("encoding", "seed", "scaling", "factor").rows()
        assert found == [
            (encoding, seed, scaling, factor)
            for seed in (0, 1)
            for encoding, scalings in (("rope", ("none", "yarn", "drope")), ("nope", ("none",)))
            for scaling in scalings
            for factor in (1.0, 2.0)
        ]
        for run in by_length.runs:
            kept = run.frame("extrapolation")
            assert (
                scores.filter(pl.col("run") == run.id)["loss"].to_list()
                == kept.sort(pl.col("scaling").replace_strict({"none": 0, "yarn": 1, "drope": 2}), "factor")[
                    "loss"
                ].to_list()
            )

    def test_they_are_shown_and_drawn(self, by_length):
        assert "x2" in str(by_length)
        assert by_length.figure("lengths").name == "lengths"
        assert len(by_length.to_dict()["lengths"]) == 16

    def test_means_are_rounded_once(self):
        scores = pl.DataFrame(
            {
                "task": "distance",
                "encoding": "rope",
                "scaling": "none",
                "factor": 1.0,
                "accuracy": [0.1004, 0.1004, 0.1014],
            }
        )
        assert _by_length(scores)["x1"].to_list() == ["10.1"]

    def test_nothing_is_trained_where_one_cannot_be_scored(self, tmp_path):
        for changes in ({"lengths": (0.5,)}, {"lengths": (1,), "scalings": ("yarm",)}):
            with pytest.raises((ConfigError, UnknownNameError)):
                sp.compare("rope", "distance", root=tmp_path / "runs", **changes, **SMALL)
        assert not (tmp_path / "runs").exists()
