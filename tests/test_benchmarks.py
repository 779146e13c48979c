"""The benchmarks' harness: nothing is timed behind a shut gate, and what is timed is stored."""

import json

import pytest
import torch
from benchmarks import harness
from benchmarks.harness import Case, peak_mib, run


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "RESULTS", tmp_path / "results")
    threads = torch.get_num_threads()
    monkeypatch.setattr(harness, "PEAK_SIDE", 64)
    yield tmp_path / "results"
    torch.set_num_threads(threads)


def shut() -> None:
    raise AssertionError("2 is not 3")


def test_a_wrong_result_gets_no_time_and_the_others_are_kept(results, capsys):
    timed = []
    wrong = Case("wrong", gate=shut, fast=lambda: timed.append("wrong"))
    right = Case("right", gate=lambda: None, fast=lambda: timed.append("fast"), goal="< 1 s")
    with pytest.raises(SystemExit, match="wrong: wrong result, not timed: 2 is not 3"):
        run("two", [wrong, right], repeats=3)
    stored = json.loads((harness.place() / "two.json").read_text())
    assert [row["label"] for row in stored["rows"]] == ["right"]
    assert timed == ["fast"] * 4  # one untimed
    assert stored["machine"]["torch"] == torch.__version__
    assert all(peak > 0 for peak in stored["product_gflops"].values())
    assert "right" in capsys.readouterr().out


def test_both_sides_take_turns_and_their_ratio_is_stored(results):
    turns = []
    sides = [lambda: turns.append("fast"), lambda: (turns.append("reference"), sum(range(200_000)))]
    run("sides", [Case("both", lambda: None, *sides)], repeats=2)
    (row,) = json.loads((harness.place() / "sides.json").read_text())["rows"]
    assert turns == ["fast", "reference"] * 3
    assert row["ratio"] == row["reference"]["seconds"] / row["fast"]["seconds"]
    assert row["ratio"] > 1
    assert 1 < row["quartiles"][0] <= row["quartiles"][1]


def test_quartiles_are_those_of_the_turns(results):
    ticks = iter([0, 1, 0, 2, 0, 1, 0, 3, 0, 1, 0, 4])  # A start and an end of each side, turn by turn.
    case = Case("paired", lambda: None, lambda: None, lambda: None, clock=lambda: next(ticks))
    run("paired", [case], repeats=3)
    (row,) = json.loads((harness.place() / "paired.json").read_text())["rows"]
    assert (row["ratio"], row["quartiles"]) == (3, [2.5, 3.5])


def test_peak_memory_counts_what_a_run_holds_at_once():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert peak_mib(lambda: torch.ones(30, 2**20, dtype=torch.uint8, device=device)) == pytest.approx(
        30, abs=3
    )


def test_results_of_two_processors_lie_apart(results, monkeypatch):
    folders = []
    for capability, accelerator in (("AVX2", "none"), ("AVX512", "none"), ("AVX512", "NVIDIA H100")):
        here = {"processor": "AMD EPYC", "capability": capability, "accelerator": accelerator}
        monkeypatch.setattr(harness, "machine", lambda here=here: here)
        folders.append(harness.place().relative_to(results).as_posix())
    assert folders == ["amd-epyc-avx2", "amd-epyc-avx512", "nvidia-h100"]


def test_the_peak_is_of_float32_and_of_what_training_takes(results):
    assert harness.product_peak().keys() >= {"float32"}
