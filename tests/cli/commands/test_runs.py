"""`spectrope runs` and `report`: what is listed, shown and named as damaged."""

import re

import polars as pl
import pytest
import torch
from tests.cli.typed import SMALL, refused
from tests.figures.synthetic import make_run

from spectrope.cli import main
from spectrope.store import find_runs, load_run, open_run

pytestmark = pytest.mark.usefixtures("here")


def test_a_run_is_trained_ablated_listed_and_reported(tmp_path, capsys, trained):
    assert main(("ablate", trained[:5], "--examples", "10")) == 0
    out = capsys.readouterr().out
    assert re.search(r"layer +head +drop ", out)
    assert "deposit" in out
    assert main(("runs",)) == 0
    assert re.search(rf"{trained} +distance +rope +mini +controlled +0 +[\d.]+", capsys.readouterr().out)
    assert main(("report", trained, "--out", "page.html")) == 0
    assert capsys.readouterr().out.rstrip().splitlines()[-1] == f"Wrote {tmp_path / 'page.html'}"
    assert main(("report", "--figure", "heatmap", "--out", "heatmap.svg")) == 0
    assert (tmp_path / "heatmap.svg").read_text().startswith("<svg")


def test_runs_name_their_precision(tmp_path, capsys):
    first, second = make_run(tmp_path / "runs", "rope"), make_run(tmp_path / "runs", "alibi")
    first.finish(first.manifest | {"precision": "bfloat16"})
    second.finish(second.manifest | {"precision": "bfloat16"})
    assert main(("runs",)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("matrix products in bfloat16\n")
    assert max(map(len, shown.splitlines())) <= 80
    second.finish(second.manifest | {"precision": "float32"})
    assert main(("runs",)) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"{first.id} .* 0 +bfloat16 +[\d.]+", shown)
    assert re.search(rf"{second.id} .* 0 +float32 +[\d.]+", shown)


def test_an_unfinished_run_alone_is_listed_within_80_columns(tmp_path, capsys):
    run = make_run(tmp_path / "runs", "rope")
    run.finish({name: value for name, value in run.manifest.items() if name != "precision"})
    assert main(("runs",)) == 0
    shown = capsys.readouterr().out
    assert run.id in shown
    assert "precision" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_figure_without_a_place_is_named_after_itself(tmp_path, capsys):
    make_run(tmp_path / "runs", "rope")
    assert main(("report", "--figure", "accuracy")) == 0
    assert capsys.readouterr().out.rstrip() == f"Wrote {tmp_path / 'accuracy.svg'}"
    assert not (tmp_path / "report.html").exists()


def test_a_damaged_run_hides_no_other(tmp_path, capsys, trained):
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text('{"config": ')
    assert main(("runs",)) == 0
    shown = capsys.readouterr()
    assert trained in shown.out
    assert "broken: " in shown.err
    assert "is damaged" in shown.err


def test_a_run_that_lacks_a_field_hides_no_other(tmp_path, capsys):
    whole = make_run(tmp_path / "runs", "rope")
    fields = whole.config
    others = {
        "it has no 'seed'": open_run(tmp_path / "runs", {k: v for k, v in fields.items() if k != "seed"}, 1),
        "its task has no name": open_run(tmp_path / "runs", fields | {"task": {}}, 1),
        "'test_accuracy' is not a number": open_run(tmp_path / "runs", fields | {"seed": 5}, 1),
    }
    others["'test_accuracy' is not a number"].finish({"seconds": 1.0})
    assert main(("runs",)) == 0
    shown = capsys.readouterr()
    assert whole.id in shown.out
    for told, run in others.items():
        assert re.search(rf"^spectrope: {run.id}: its \w+ is damaged: .*{told}", shown.err, re.MULTILINE)


def test_weights_and_drops_of_something_else_are_one_line(tmp_path, capsys, trained):
    run = load_run(tmp_path / "runs" / trained)
    run.write_frame("ablation", pl.DataFrame({"layer": [1], "head": [1]}))
    line = refused(capsys, "spectrum", trained, "--examples", "8")
    assert "table 'ablation' does not hold a layer, a head and a drop in each row" in line
    run.remove("ablation")
    weights, _ = run.read_tensors("weights")
    first = next(iter(weights))
    for tensors in (weights | {first: torch.zeros(1)}, {k: v for k, v in weights.items() if k != first}):
        run.write_tensors("weights", tensors, {})
        for command in (("ablate",), ("spectrum",), ("attention", "plan")):
            line = refused(capsys, *command, trained)
            assert f"run {trained} is damaged: its weights do not fit its configuration" in line
            assert first in line


def test_a_diverged_run_is_named(tmp_path, capsys, trained):
    run = load_run(tmp_path / "runs" / trained)
    run.finish(run.manifest | {"test_loss": None})
    told = "distance/rope/seed 0 diverged: its held-out loss is not finite; a lower learning rate may help."
    assert main(("train", *SMALL)) == 0
    assert capsys.readouterr().err == f"spectrope: {told}\n"
    assert main(("compare", "--encodings", "rope", "--tasks", "distance", *SMALL, "--workers", "1")) == 0
    assert capsys.readouterr().err == f"spectrope: {told}\n"
    assert "the held-out loss is not finite" in (tmp_path / "report.html").read_text()


def test_a_run_near_chance_is_named(tmp_path, capsys, trained):
    run = load_run(tmp_path / "runs" / trained)
    facts = {"test_accuracy": 0.09, "chance_accuracy": 0.08, "bayes_accuracy": 1.0}
    run.finish(run.manifest | facts)
    assert main(("train", *SMALL)) == 0
    told = capsys.readouterr().err
    assert told.startswith(
        "spectrope: distance/rope/seed 0 is near chance: 9.0 % held-out accuracy, 8.0 % by guessing."
    )
    assert main(("compare", "--encodings", "rope", "--tasks", "distance", *SMALL, "--workers", "1")) == 0
    assert capsys.readouterr().err == told
    page = (tmp_path / "report.html").read_text()
    assert "Near chance, so that drops of heads are not meaningful" in page
    run.finish(run.manifest | {"test_accuracy": 0.5})
    assert main(("train", *SMALL)) == 0
    assert capsys.readouterr().err == ""


def test_a_report_names_the_runs_that_it_leaves_out(tmp_path, capsys, trained):
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text('{"config": ')
    assert main(("report",)) == 0
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"spectrope: left out: broken: .*config\.json is damaged: it is not valid JSON; move its folder .*\n",
        told,
    )
    assert trained in (tmp_path / "report.html").read_text()


def test_runs_of_the_grokking_laboratory_are_listed_and_are_in_no_report(tmp_path, capsys, trained):
    quick = ("--p", "7", "--fraction", "0.7", "--model", "mlp", "--steps", "2", "--evaluate-every", "1")
    assert main(("grok", *quick, "--runs", "runs")) == 0
    (other,) = (run for run in find_runs(tmp_path / "runs") if run.id != trained)
    foreign = open_run(tmp_path / "runs", {"laboratory": "another", "seed": 0}, 1)
    capsys.readouterr()
    assert main(("runs",)) == 0
    shown = capsys.readouterr()
    # The precision is a column where runs differ in it, else the table's title has it.
    precision = "" if "matrix products in float32" in shown.out else "float32 +"
    assert re.search(rf"{other.id} +add mod 7, random, mlp, seed 0 +0 +{precision}[\d.]+", shown.out)
    assert re.search(rf"{trained} +distance +rope", shown.out)
    told = rf"spectrope: {foreign.id}: unknown laboratory 'another'; known: decoder, .*\n"
    assert re.fullmatch(told, shown.err)
    assert main(("report",)) == 0
    assert trained in (tmp_path / "report.html").read_text()
    assert f"run {other.id} is not a training run" in refused(capsys, "report", other.id)
