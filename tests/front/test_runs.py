"""Runs of a folder, and the table of all."""

import pytest
from tests.figures.synthetic import make_run
from tests.front.made import SMALL

import spectrope as sp
from spectrope.core.errors import SpectropeWarning, StoreError
from spectrope.lab.runs import run_for


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
    with pytest.raises(StoreError, match="is no folder"):
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


def test_a_folder_of_a_report_leaves_out_trials_and_other_laboratories(tmp_path):
    with pytest.raises(StoreError, match="no finished run in"):
        sp.report(tmp_path)
