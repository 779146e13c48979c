"""`spectrope spectrum` as a user types it."""

import re
from pathlib import Path

import polars as pl
import pytest

from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console
from spectrope.store import find_runs, open_run


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 80)


def test_a_run_is_measured_and_its_tables_are_kept(tmp_path, capsys):
    assert main(("train", "--epochs", "1", "--examples", "100")) == 0
    (run,) = find_runs(tmp_path / "runs")
    capsys.readouterr()
    assert main(("spectrum", run.id[:5], "--examples", "16", "--draws", "9")) == 0
    out = capsys.readouterr().out
    assert re.search(r"layer +head +Toeplitz +p +contr\. +residual +rank +content +raw", out)
    assert "No correlation with drops: they are not measured" in " ".join(out.split())
    bands = out[out.index("mean energy of bands of frequencies, 1 to 0.") :].splitlines()[2:7]
    assert bands[0].split() == ["layer", *"01234567"]
    assert sum(map(float, bands[2].split()[1:])) == pytest.approx(1, abs=0.02)
    assert out.endswith(
        f"Tables in {run.path.relative_to(tmp_path)}, named as spectrum-16-examples-9-draws.\n"
    )
    heads = run.frame("spectrum-16-examples-9-draws").select("layer", "head")
    run.write_frame("ablation", heads.with_columns(drop=1.0 * pl.col("head")))
    assert main(("spectrum", run.id, "--examples", "16", "--draws", "9")) == 0
    out = capsys.readouterr().out
    assert "rank correlation with the drop" in out
    assert max(map(len, out[out.index("tokens of") :].splitlines()[:-2])) <= 80
    assert not run.has_frame("spectrum")
    run.remove("ablation")
    assert main(("report", "--figure", "predictors", "--out", "figure.svg")) == 0


def test_the_terms_of_logits_are_told_for_both_designs_and_kept(tmp_path, capsys):
    size = ("--epochs", "1", "--examples", "100", "--set", "n_layers=1", "n_heads=2")
    assert main(("train", "--encoding", "sinusoidal", *size)) == 0
    (run,) = find_runs(tmp_path / "runs")
    capsys.readouterr()
    assert main(("spectrum", run.id, "--terms", "--examples", "8", "--draws", "3")) == 0
    out = capsys.readouterr().out
    assert out.index("design: held-out") < out.index("design: balanced")
    assert "commutes" in out
    terms = run.frame("terms-8-examples-3-draws")
    sums = terms.group_by("design", "layer", "head").agg((pl.col("share") + pl.col("covariance")).sum())
    assert sums["share"].to_list() == pytest.approx([1] * len(sums))
    assert len(sums) == 2 * 1 * 2
    assert (terms["p_adjusted"].drop_nulls() >= terms["p_value"].drop_nulls()).all()
    assert not run.has_frame("position_factor-8-examples-3-draws")
    for figure in ("terms", "term_kernel"):
        assert main(("report", "--figure", figure, "--out", f"{figure}.svg")) == 0


def test_layers_without_terms_say_why(tmp_path, capsys):
    assert main(("train", "--encoding", "path", "--epochs", "1", "--examples", "60")) == 0
    (run,) = find_runs(tmp_path / "runs")
    assert main(("spectrum", run.id, "--terms", "--examples", "8", "--draws", "3")) == 0
    assert "layers without such terms" in capsys.readouterr().out
    assert len(run.frame("undefined_terms-8-examples-3-draws")) == 6
    assert not run.has_frame("terms-8-examples-3-draws")


@pytest.mark.parametrize("option", ["texts", "layers", "batch", "length", "out"])
def test_options_of_checkpoints_are_refused_with_a_run(tmp_path, capsys, option):
    run = open_run(tmp_path / "runs", {}, 1)
    assert main(("spectrum", run.id, f"--{option}", "3")) == BAD_INPUT
    told = f"--{option} is for checkpoints; runs/{run.id} is a run with its own examples."
    assert capsys.readouterr().err == f"spectrope: {told}\n"


def test_an_encoding_is_bounded_without_a_model(tmp_path, capsys):
    assert main(("spectrum", "--encoding", "alibi", "--length", "512", "--out", "tables")) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "…" not in out
    said = " ".join(out.split())
    assert "At this length, Szegő's theorem says nothing of 8 of 8 distances: at least 75%" in said
    assert "At this length, Avram and Parter's theorem says nothing of 8 of 8 distances" in said
    assert re.search(r"0 +0 +-0\.5 +-2 +-8 +-32 +-128", out)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        "distances.parquet",
        "extremes.parquet",
        "lags.parquet",
        "symbol.parquet",
    }
    ends = pl.read_parquet(tmp_path / "tables" / "extremes.parquet").row(0, named=True)
    assert ends["largest_estimate"] == pytest.approx(0.2026 * 0.5 * 512**2, rel=0.01)
    assert ends["smallest_estimate"] == pytest.approx(-0.347 * 0.5 * 512**2, rel=0.01)


def test_the_page_shows_what_the_command_prints(monkeypatch, capsys):
    monkeypatch.setattr(console, "width", 80)
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "spectrum.md").read_text("utf-8")
    block = page.partition("With `--encoding rope`, the output ends with:\n\n```\n")[2].partition("\n```")[0]
    assert main(("spectrum", "--encoding", "rope")) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    shown = [line.rstrip() for line in block.splitlines()]
    assert len(shown) > 12
    assert [line for line in printed if line][-len([one for one in shown if one]) :] == [*filter(None, shown)]


def test_rope_shows_the_eigenvalues_that_need_not_vanish(capsys):
    assert main(("spectrum", "--encoding", "rope")) == 0
    assert "16 eigenvalues that need not vanish: 182.7, 50.45" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "spectrum takes exactly one of a run, a checkpoint and --encoding NAME."),
        (("abc", "--encoding", "rope"), "exactly one of"),
        (("abc",), "'abc' is neither a run in runs"),
        (("--encoding", "rop"), "unknown encoding 'rop'; did you mean rope"),
        (("--encoding", "nope"), "NoPE has no Toeplitz matrix of its own: NoPE does not change"),
        (("--encoding", "rope", "--length", "1"), "length must be at least 2; got 1."),
        (("--encoding", "rope", "--n-heads", "0"), "n_heads must be at least 1; got 0."),
        (("--encoding", "rope", "--out", "file"), "a file stands where a folder should"),
    ],
)
def test_a_mistake_gets_one_line(tmp_path, capsys, arguments, message):
    (tmp_path / "file").write_text("mine")
    assert main(("spectrum", *arguments)) == BAD_INPUT
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert message in err
