"""Runs of a folder, and the table of all."""

import json
import math

import pytest
from tests.figures.synthetic import make_run
from tests.front.made import SMALL

import spectrope as sp
from spectrope.cli import main
from spectrope.console.terminal import console
from spectrope.core.errors import SpectropeWarning, StoreError
from spectrope.front.runs import listing
from spectrope.grokking import GrokExperiment, ModularConfig
from spectrope.lab.runs import run_for
from spectrope.store import load_run, open_run


def test_finished_ones_are_found_and_unfinished_ones_on_request(tmp_path):
    run = make_run(tmp_path, "rope")
    begun = run_for(sp.experiment("distance", "nope", epochs=1, n_examples=60), tmp_path)
    assert sp.runs(tmp_path) == [run]
    assert set(sp.runs(tmp_path, unfinished=True)) == {run, begun}
    rows = sp.table(sp.runs(tmp_path, unfinished=True)).sort("finished")
    assert rows["finished"].to_list() == [False, True]
    assert rows["test"].is_null().to_list() == [True, False]


def test_what_is_left_out_is_warned_of(tmp_path):
    (tmp_path / "broken").mkdir()
    with pytest.warns(SpectropeWarning, match=r"left out: broken: .* is no run: it has no config\.json"):
        assert sp.runs(tmp_path) == []
    with pytest.raises(StoreError, match="is not a folder"):
        sp.runs(tmp_path / "none")


def test_the_table_holds_runs_of_any_laboratory(tmp_path, capsys):
    from spectrope.cli import main

    quick = ("--p", "7", "--fraction", "0.7", "--model", "mlp", "--steps", "2", "--evaluate-every", "1")
    assert main(("grok", *quick, "--runs", str(tmp_path), "--out", str(tmp_path / "grok.html"))) == 0
    capsys.readouterr()
    sp.train("rope", root=tmp_path, **SMALL)
    rows = sp.table(sp.runs(tmp_path)).sort("laboratory")
    assert rows["laboratory"].to_list() == ["decoder", "grokking"]
    assert rows["task"].to_list() == ["distance", "add mod 7, random, mlp, seed 0"]
    assert rows["encoding"].to_list() == ["rope", None]
    assert rows["drop"].is_null().all()  # Neither has been ablated.
    (run,) = (run for run in sp.runs(tmp_path) if "laboratory" not in run.config)
    assert sp.table(run)["run"].to_list() == [run.id]


def test_a_table_without_a_column_that_is_shown_is_an_error(tmp_path):
    run = make_run(tmp_path, "rope")
    run.write_frame("ablation", run.frame("ablation").drop("head"))
    with pytest.raises(StoreError, match="no column 'head'"):
        sp.table([run])


def test_a_folder_of_a_report_leaves_out_trials_and_other_laboratories(tmp_path):
    with pytest.raises(StoreError, match="no finished run in"):
        sp.report(tmp_path)


NAMES = {"task": {"kind": "distance"}, "encoding_name": "rope", "scale": "mini", "condition": "controlled"}


@pytest.mark.parametrize(
    "wrong", [{"seed": 10**400}, {"seed": "first"}, {"scale": [1]}, {"training": {"learning_rate": "high"}}]
)
def test_a_run_with_a_value_of_another_type_is_named_and_the_others_are_listed(tmp_path, wrong):
    whole = open_run(tmp_path, {**NAMES, "seed": 0, "training": [1]}, 1)
    broken = open_run(tmp_path, {**NAMES, "seed": 0, **wrong}, 1)
    listed, left_out = listing(tmp_path)
    assert listed["run"].to_list() == [whole.id]
    ((path, reason),) = left_out
    assert path == broken.path
    assert reason == "its configuration or one of its tables is damaged: a value has another type."


def test_runs_of_one_name_are_told_apart_by_their_settings(tmp_path, monkeypatch, capsys):
    base = {**NAMES, "seed": 0, "training": {"epochs": 3}}
    models = ({"dropout": 0.1, "encoding": {"base": 10.0}}, {"dropout": 0.3, "encoding": {"base": 10.0}})
    first, second = (open_run(tmp_path, base | {"model": model}, 1) for model in models)
    other = open_run(tmp_path, base | {"model": models[0], "seed": 1}, 1)
    listed, _ = listing(tmp_path)
    told = dict(listed.select("run", "settings").rows())
    assert told == {first.id: "dropout 0.1", second.id: "dropout 0.3", other.id: ""}
    monkeypatch.setattr(console, "width", 80)
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "scale mini, condition controlled" in printed
    assert "dropout 0.3" in printed
    assert "held-out %" in printed


def test_runs_of_other_laboratories_have_no_scale(tmp_path, capsys):
    for fraction in (0.3, 0.25):
        experiment = GrokExperiment(task=ModularConfig(p=5, fraction=fraction))
        run_for(experiment, tmp_path)
    assert main(["runs", "--runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "None" not in printed
    assert "fraction 0.25" in printed


def test_a_configuration_that_json_has_no_words_for_is_no_run(tmp_path):
    run = open_run(tmp_path, {**NAMES, "seed": 0}, 1)
    config = json.loads((run.path / "config.json").read_text())
    config["config"]["seed"] = math.nan
    (run.path / "config.json").write_text(json.dumps(config))
    (run.path / "config.json.sha256").unlink()
    with pytest.raises(StoreError, match=r"is no run: its config\.json describes none"):
        load_run(run.path)
