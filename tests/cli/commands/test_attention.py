"""`spectrope attention`, as a user types it."""

import json
import re
from dataclasses import replace

import pytest
from tests.checkpoints.adapters.tokenizers import save_tokenizer
from tests.checkpoints.audit.families import CHANGED, FAMILIES

from spectrope.cli import BAD_INPUT, main
from spectrope.console.terminal import console
from spectrope.core.config import strict_json, to_dict
from spectrope.fast import calibration, lag_weights
from spectrope.fast.costs import DEFAULT, read_costs
from spectrope.lab.engines.local import execute
from spectrope.lab.training.scales import experiment
from spectrope.store import find_runs


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A run and checkpoints: with rotation, with ALiBi, with a window, with two stacks."""
    root = tmp_path_factory.mktemp("models")
    execute([experiment("distance", "rope", epochs=1, n_examples=100)], root / "runs", device="cpu")
    for family in ("gpt2", "smollm3", "bloom", "mistral", "t5", "capped", "sinks"):
        (FAMILIES | CHANGED)[family]().save_pretrained(root / family)
    save_tokenizer(root / "smollm3")
    (root / "texts").write_text("w5 w6 w7 w8 w9\nw9 w10 w11\nw5 w7 w9 w9 w7\nw8 w8 w8 w9\n")
    return root


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "width", 200)


def planned(capsys, *arguments: str) -> dict:
    capsys.readouterr()
    assert main(("attention", "plan", *arguments, "--json")) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_is_planned_head_by_head(models, capsys):
    (run,) = find_runs(models / "runs")
    found = planned(capsys, str(run.path), "--length", "4096", "--tolerance", "0.05")
    assert (found["length"], found["tolerance"]) == (4096, 0.05)
    assert [(h["layer"], h["head"]) for h in found["heads"]] == [(la, h) for la in range(3) for h in range(8)]
    for head in found["heads"]:
        assert head["reach_bound"] > 0
        certified = head["error_bound"] is not None
        assert (head["degree"] is not None) == (head["speedup_estimate"] is not None) == certified
        assert (head["choice"] == "polynomial") == (certified and head["speedup_estimate"] > 1)
        assert (head["reason"] == "") == (head["choice"] == "polynomial")


def test_a_checkpoint_is_planned_on_random_tokens_or_texts(models, capsys):
    source = str(models / "smollm3")
    drawn = planned(capsys, source, "--length", "65536", "--tokens", "16", "--examples", "4")
    assert drawn["tokens"] == 16
    assert [(h["layer"], h["head"]) for h in drawn["heads"]] == [(la, h) for la in range(4) for h in range(4)]
    assert all(h["choice"] == "polynomial" and h["error_bound"] <= 1e-2 for h in drawn["heads"])
    read = planned(capsys, source, "--texts", str(models / "texts"), "--tokens", "4")
    assert [h["reach_bound"] for h in read["heads"]] != [h["reach_bound"] for h in drawn["heads"]]


def test_heads_whose_logits_are_capped_are_exact(models, capsys):
    found = planned(capsys, str(models / "capped"), "--length", "16", "--tokens", "16")
    assert {head["choice"] for head in found["heads"]} == {"exact"}
    assert all("form GENERAL" in head["reason"] for head in found["heads"])


def test_the_table_says_how_many_and_why_not(models, capsys):
    assert main(("attention", "plan", str(models / "bloom"), "--tokens", "16")) == 0
    out = capsys.readouterr().out
    assert "can compute 0 of 8 heads at 65,536 tokens" in out
    assert "8 exact: fast attention computes forms DOT and DOT_PLUS_LAG" in out
    assert main(("attention", "plan", str(models / "mistral"), "--tokens", "24")) == 0
    assert "a mask of keys alone" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "nobody/nothing"), "is neither a run in runs"),
        (("plan", "{root}/t5"), "T5ForConditionalGeneration has two stacks; plans are made for one"),
        (("plan", "{root}/smollm3", "--length", "0"), "length must be from 1 to 16777216; got 0"),
        (
            ("plan", "{root}/smollm3", "--length", "99999999999999"),
            "length must be from 1 to 16777216; got 9",
        ),
        (
            ("plan", "{root}/gpt2", "--tokens", "200"),
            "does not run at length 200; its configuration gives it 128",
        ),
        (("plan", "{root}/smollm3", "--tolerance", "1"), "tolerance must be between 0 and 1; got 1"),
        (("plan", "{root}/smollm3", "--tokens", "1"), "tokens must be at least 2; got 1"),
        (("plan", "{root}/smollm3", "--examples", "1"), "examples must be at least 2; got 1"),
        (("plan", "{root}/sinks", "--tokens", "8"), "model.layers.0.self_attn has attention sinks"),
        (
            ("plan", "{root}/smollm3", "--costs", "{root}/none.json"),
            "none.json holds no costs that can be read",
        ),
        (("plan", "{root}/smollm3", "--costs", "{root}/texts"), "texts holds no costs that can be read"),
        (("bench", "--head-dim", "7"), "head_dim must be even and at least 2; got 7"),
        (("bench", "--reach", "-1"), "reach must be positive and at most 12"),
        (("bench", "--bias", "rope"), "bias must be an encoding that adds a bias of the lag; got 'rope'"),
        (("bench", "--bias", "nothing"), "unknown encoding 'nothing'"),
        (
            ("bench", "--kernels", "flash"),
            "kernels must be names from polynomial, toeplitz_fft",
        ),
        (("bench", "--tolerance", "0"), "tolerance must be between 0 and 1"),
        (("bench", "--shortest", "0"), "shortest must be at least 1"),
        (("bench", "--longest", "8"), "longest must be at least as many as --shortest"),
        (("bench", "--out", "picture.gif"), "a figure is saved as .png, .svg, .pdf, .html, .json"),
        (("bench", "--reach", "9", "--longest", "1024"), "nothing to time at 1,024 tokens: no degree"),
    ],
)
def test_a_mistake_gets_one_line(models, capsys, arguments, message):
    given = tuple(a.replace("{root}", str(models)) for a in arguments)
    capsys.readouterr()
    assert main(("attention", *given)) == BAD_INPUT
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("spectrope:")]
    assert len(said) == 1
    assert message in said[0]


@pytest.mark.parametrize("suffix", ["png", "svg", "html"])
def test_bench_prints_and_draws(tmp_path, capsys, suffix):
    out = tmp_path / f"picture.{suffix}"
    sizes = ("--shortest", "64", "--longest", "128", "--head-dim", "4", "--causal", "--out", str(out))
    assert main(("attention", "bench", *sizes)) == 0
    said = capsys.readouterr().out
    assert "One head of width 4, rope, causal, float32" in said
    for kernel in ("polynomial", "toeplitz_fft", "relative_fft"):
        assert re.search(rf"(faster than {kernel} up to|: {kernel} is faster from)", said)
    assert "certified" in said
    assert out.stat().st_size > 1000


def test_a_bench_leaves_out_what_does_not_serve_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lag_weights, "LONGEST_NEAR", 40)
    out = tmp_path / "picture.svg"
    sizes = ("--shortest", "32", "--longest", "64", "--head-dim", "2", "--bias", "kerple_log")
    assert main(("attention", "bench", *sizes, "--kernels", "toeplitz_fft", "--out", str(out))) == 0
    assert "One head of width 2, kerple_log, no mask" in capsys.readouterr().out
    assert "toeplitz_fft" in out.read_text()
    assert "polynomial" not in out.read_text()
    assert main(("attention", "bench", *sizes)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Not timed from 64 tokens on: polynomial: nothing to time at 64 tokens" in said
    only = ("--shortest", "64", "--longest", "64", "--head-dim", "2", "--bias", "kerple_log")
    assert main(("attention", "bench", *only, "--kernels", "polynomial")) == BAD_INPUT
    assert "needs a lag bias that is straight" in capsys.readouterr().err


def test_the_record_of_a_bench(capsys):
    sizes = ("--shortest", "64", "--longest", "200", "--head-dim", "4")
    assert main(("attention", "bench", *sizes, "--json")) == 0
    record = json.loads(capsys.readouterr().out)
    assert sorted({t["length"] for t in record["timings"]}) == [64, 128]
    assert len(record["timings"]) == 16
    assert [e["degree"] for e in record["errors"]] == list(range(1, 9))
    for e in record["errors"]:
        assert e["error_bound"] is None or e["error"] <= e["error_bound"]
    assert set(record["crossover"]) == {"polynomial", "toeplitz_fft", "relative_fft"}
    assert set(record["crossover"]["polynomial"]) == {"forward", "both"}
    assert record["refused"] == []


@pytest.fixture
def quick(monkeypatch):
    """A calibration of a few short cases."""
    monkeypatch.setattr(calibration, "LENGTHS", {"cpu": (64,), "cuda": (64,)})
    monkeypatch.setattr(calibration, "ROUNDS", 2)


@pytest.mark.usefixtures("quick")
def test_measured_costs_are_used_where_a_plan_is_given_them_and_nowhere_else(models, tmp_path, capsys):
    before = set(models.iterdir())
    path = tmp_path / "new" / "costs.json"
    assert main(("attention", "calibrate", "--device", "cpu", "--out", str(path))) == 0
    out = capsys.readouterr().out
    assert "one floating-point operation" in out
    assert "Predicted over measured time in 26 cases" in out
    costs = read_costs(path)
    source, options = str(models / "smollm3"), ("--tokens", "8", "--examples", "2")
    usual = planned(capsys, source, *options)
    assert usual["costs"] == to_dict(DEFAULT)
    assert planned(capsys, source, *options, "--costs", str(path))["costs"] == to_dict(costs)
    path.write_text(strict_json(to_dict(replace(costs, call=1e15))))
    dear = planned(capsys, source, *options, "--costs", str(path))
    assert {head["choice"] for head in dear["heads"]} == {"exact"}
    assert planned(capsys, source, *options) == usual
    assert main(("attention", "plan", source, *options)) == 0
    assert f"predicted from operation counts ({DEFAULT.source})." in capsys.readouterr().out
    assert main(("attention", "plan", source, *options, "--costs", str(path))) == 0
    assert f"predicted from operation counts ({costs.source})." in capsys.readouterr().out
    assert set(models.iterdir()) == before


@pytest.mark.usefixtures("quick")
def test_the_record_of_a_calibration_is_the_costs(capsys):
    assert main(("attention", "calibrate", "--device", "cpu", "--json")) == 0
    assert set(json.loads(capsys.readouterr().out)) == {
        "flop",
        "byte",
        "exponential",
        "call",
        "source",
        "transform",
    }
