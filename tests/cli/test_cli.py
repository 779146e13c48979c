"""Commands as a user types them: what they print, what they leave behind, how they refuse."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import polars as pl
import pytest
import torch
from tests.report.synthetic import make_run

from spectrope.attention import cost
from spectrope.attention.cost import Refused
from spectrope.attention.heads import ATTENTIONS
from spectrope.cli import BAD_INPUT, INTERRUPTED, Command, main
from spectrope.cli.runs import Runs
from spectrope.cli.show import console
from spectrope.core.config import to_dict
from spectrope.core.errors import StoreError
from spectrope.encodings import foreign
from spectrope.encodings.base import ENCODINGS
from spectrope.store import check_place, find_runs, load_run, open_run
from spectrope.sweeps.runs import experiment_of
from spectrope.training.scales import experiment

COMMANDS = [get_args(command)[1].name for command in get_args(Command)]
SMALL = ("--epochs", "1", "--examples", "60")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(console, "width", 200)


def refused(capsys, *arguments: str) -> str:
    """The one line that a mistaken command prints."""
    assert main(arguments) == BAD_INPUT
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("spectrope: ")
    return err


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory) -> Path:
    """A folder of one run, to be copied."""
    root = tmp_path_factory.mktemp("once") / "runs"
    assert main(("train", *SMALL, "--runs", str(root))) == 0
    return root


@pytest.fixture
def trained(here, trained_once, tmp_path, capsys) -> str:
    shutil.copytree(trained_once, tmp_path / "runs")
    capsys.readouterr()
    (run,) = find_runs(tmp_path / "runs")
    return run.id


def test_compare_ends_with_the_path_of_its_report(tmp_path, capsys):
    arguments = ("compare", "--encodings", "rope", "nope", "--tasks", "distance", *SMALL, "--workers", "1")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.rstrip().splitlines()[-1] == f"Report: {tmp_path / 'report.html'}"
    assert (tmp_path / "report.html").stat().st_size > 10_000
    for encoding in ("rope", "nope"):
        assert re.search(rf"distance/{encoding}/seed 0: done, held-out [\d.]+ %", out)
        assert re.search(rf"distance +{encoding} +0 ", out)
    assert len(find_runs(tmp_path / "runs")) == 2


def test_naming_an_encoding_twice_runs_it_once(tmp_path, capsys):
    arguments = ("--encodings", "nope", "nope", "--tasks", "distance", *SMALL, "--workers", "2")
    assert main(("compare", *arguments)) == 0
    assert capsys.readouterr().out.count("distance/nope/seed 0: done") == 1
    assert len(find_runs(tmp_path / "runs")) == 1


def test_compare_tunes_every_encoding_on_one_grid_and_reports_both(tmp_path, capsys):
    arguments = ("--encodings", "mla", "--tasks", "distance", *SMALL, "--workers", "1", "--tune")
    assert main(("compare", *arguments, "--rates", "1", "3")) == 0
    out = capsys.readouterr().out
    assert re.search(r"distance +mla +0\.003: [\d.]+ +0\.009: [\d.]+ +0\.00[39]\* +\d", out)
    assert re.search(r"The grids took 2 runs and \d+ s of training\. \* is an end of the grid", out)
    assert out.count("/rate 0.009: done") == 1
    assert len(re.findall(r"distance +mla +0 ", out)) == 2
    page = (tmp_path / "report.html").read_text()
    assert "distance, tuned" in page
    assert main(("report", "--out", "again.html")) == 0  # of all runs but trials
    assert "distance, tuned</h" in (tmp_path / "again.html").read_text()
    assert len(find_runs(tmp_path / "runs")) == 4


def test_a_grid_needs_positive_rates(capsys):
    assert "rates must be positive; got (0.0,)" in refused(capsys, "compare", "--tune", "--rates", "0")
    assert "rates must be at least one" in refused(capsys, "compare", "--tune", "--rates")


MINE = """
from dataclasses import dataclass
from spectrope.encodings.base import Encoding, EncodingConfig, Tag

class Mine(Encoding, name="mine"):
    tags = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE})
    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        factor: float = 2.0
    def rotate(self, x, pos, side):
        return x * self.config.factor
"""


def test_compare_takes_an_encoding_from_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ENCODINGS, "_classes", {name: ENCODINGS[name] for name in ENCODINGS})
    monkeypatch.setattr(foreign, "_loaded", {})
    (tmp_path / "mine.py").write_text(MINE)
    arguments = ("--encodings", "./mine.py:Mine", "nope", "--tasks", "distance", *SMALL, "--workers", "2")
    assert main(("compare", *arguments)) == 0
    out = capsys.readouterr().out
    assert re.search(r"shift invariant +declared +holds", out)
    assert re.search(r"isometric +not declared +broken, error", out)
    assert "the declaration is wrong" not in out
    assert "distance/mine/seed 0: done" in out
    (mine,) = (run for run in find_runs(tmp_path / "runs") if run.config["encoding_name"] == "mine")
    assert list(mine.config["own_encodings"]) == ["mine"]
    assert experiment_of(mine).encoding_name == "mine"
    monkeypatch.setattr(foreign, "_digests", {})
    assert "encoding 'mine' comes from a file, and none is run unasked" in refused(capsys, "ablate", mine.id)
    assert main(("report", mine.id, "--out", "page.html")) == 0
    capsys.readouterr()


def test_a_fault_of_the_program_is_no_answer(capsys, monkeypatch):
    def fail(self):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Runs, "run", fail)
    assert main(("runs",)) == 70
    assert "ZeroDivisionError: by nothing" in capsys.readouterr().err


class Closed(io.TextIOWrapper):
    """A pipe that nobody reads any more."""

    def write(self, text):
        raise BrokenPipeError


def test_whoever_stops_reading_ends_the_command_without_a_word(tmp_path, capsys, monkeypatch):
    with (tmp_path / "pipe").open("wb") as file:
        monkeypatch.setattr(sys, "stdout", Closed(file))
        assert main(("encodings",)) == 141
    assert capsys.readouterr().err == ""


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'. Change the suffix"),
        (("report", "--out", "runs/RUN/config.json"), "this page is saved as .html; got 'config.json'."),
        (
            ("report", "--figure", "accuracy", "--out", "runs/RUN/config.json"),
            "is a run's own folder; choose",
        ),
        (("report", "--out", "runs/RUN/page.html"), "is a run's own folder; choose another place."),
        (("report", "--out", "folder.html"), "cannot write folder.html: a folder stands where a file should"),
        (("report", "--out", "file/page.html"), "a file stands where a folder should"),
        (("report", "--figure", "acuracy"), "unknown figure 'acuracy'; did you mean accuracy"),
        (("claims", "report", "--out", "page.pdf"), "this page is saved as .md; got 'page.pdf'."),
        (("compare", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
        (("grok", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
        (("grok-shapes", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
    ],
)
def test_a_place_for_a_page_is_refused_before_anything_is_done(tmp_path, capsys, arguments, message):
    run = make_run(tmp_path / "runs", "rope")
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    assert message in refused(capsys, *(word.replace("RUN", run.id) for word in arguments))
    assert sorted(tmp_path.rglob("*")) == before
    assert run.config["encoding_name"] == "rope"


def test_a_place_that_is_forbidden_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # As for others than the superuser.
    with pytest.raises(StoreError, match=r"page\.html: permission is denied"):
        check_place(tmp_path / "new" / "page.html")


def test_a_figure_without_a_place_is_named_after_itself(tmp_path, capsys):
    make_run(tmp_path / "runs", "rope")
    assert main(("report", "--figure", "accuracy")) == 0
    assert capsys.readouterr().out.rstrip() == f"Wrote {tmp_path / 'accuracy.svg'}"
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("action", ["list", "report"])
def test_rows_of_a_misspelt_folder_are_refused(tmp_path, capsys, action):
    line = refused(capsys, "claims", action, "--rows", "resluts")
    assert "--rows resluts is no folder; `spectrope claims run --rows resluts` makes it." in line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --every 5", "--every goes with --probe."),
        ("compare --rates 1 3", "--rates goes with --tune."),
        ("encodings --length 9", "--length goes with --bench."),
        (
            "spectrum --encoding rope --layers 0:4",
            "--layers is for runs or checkpoints; an encoding by itself",
        ),
        ("spectrum --encoding rope --batch 3", "--batch is for runs or checkpoints;"),
        ("spectrum --encoding rope --examples 9", "--examples is for runs or checkpoints;"),
        ("spectrum --encoding rope --draws 9", "--draws is for runs or checkpoints;"),
        ("spectrum --encoding rope --texts t", "--texts is for runs or checkpoints;"),
        ("spectrum RUN --heads 4", "--heads goes with --encoding; a model has its own."),
        (
            "spectrum RUN --dtype float32",
            "--dtype is for checkpoints; runs/RUN is a run with its own examples.",
        ),
        ("attention plan RUN --dtype float32", "--dtype is for checkpoints; runs/RUN is a run with its own"),
        ("attention plan RUN --tokens 9", "--tokens is for checkpoints;"),
        ("attention plan RUN --texts t", "--texts is for checkpoints;"),
        ("ablate RUN --dtype float32", "--dtype is for checkpoints; runs/RUN is a run with its own task."),
        ("ablate RUN --length 9", "--length is for checkpoints;"),
        ("ablate RUN --batch 0", "--batch is for checkpoints;"),
        ("ablate RUN --half-width 9", "--half-width goes with --method adaptive."),
        ("ablate RUN --method screen --threshold 9", "--threshold goes with --method adaptive."),
        ("ablate RUN --method adaptive --examples 9", "--examples does not go with --method adaptive"),
        (
            "ablate RUN --method adaptive --half-width 9 --threshold 9",
            "--threshold does not go with --half-w",
        ),
        ("ablate RUN --method screen --protocol R10", "--protocol does not go with --method screen"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(tmp_path, capsys, arguments, message):
    run = make_run(tmp_path / "runs", "rope")
    before = sorted(tmp_path.rglob("*"))
    assert message.replace("RUN", run.id) in refused(capsys, *arguments.replace("RUN", run.id).split())
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("out", ["[red]/page.html", "[/b]/page.html", ":smile:/page.html"])
def test_paths_are_printed_as_they_are(tmp_path, capsys, trained, out):
    assert main(("report", "--out", out)) == 0
    assert capsys.readouterr().out.rstrip() == f"Wrote {tmp_path / out}"
    assert (tmp_path / out).exists()


def test_a_run_is_measured_as_it_trains(tmp_path, capsys):
    options = ("train", "--encoding", "nope", "--epochs", "1", "--examples", "150", "--probe", "learning")
    assert main((*options, "--every", "1")) == 0
    (run,) = find_runs(tmp_path / "runs")
    assert run.frame("learning").height == 2 * 24
    capsys.readouterr()
    assert "LearningProbe.every must be at least 1; got 0" in refused(capsys, *options, "--every", "0")


def test_a_recipe_is_an_experiment(tmp_path, capsys, trained):
    recipe = tmp_path / "recipe.json"
    recipe.write_text((tmp_path / "runs" / trained / "config.json").read_text())
    assert main(("train", "--recipe", "recipe.json")) == 0
    assert trained in capsys.readouterr().out
    fields = json.loads(recipe.read_text())["config"]
    fields["training"]["epocs"] = 3
    recipe.write_text(json.dumps(fields))
    assert "training.epocs: Unexpected keyword argument" in refused(
        capsys, "train", "--recipe", "recipe.json"
    )


@pytest.mark.parametrize("field", ["vocabulary", "n_labels", "max_length"])
def test_a_recipe_whose_model_is_too_small_for_its_task_is_refused(tmp_path, capsys, field):
    fields = to_dict(experiment("distance", "nope"))
    least = fields["model"][field]
    fields["model"][field] = least - 1
    (tmp_path / "r.json").write_text(json.dumps(fields))
    line = refused(capsys, "train", "--recipe", "r.json")
    told = f"DecoderConfig.{field} must be at least {least}; got {least - 1}. Task 'distance' has as many."
    assert told in line
    assert not (tmp_path / "runs").exists()


def test_a_probe_that_cannot_measure_a_model_is_refused_before_there_is_a_run(tmp_path, capsys):
    line = refused(capsys, "train", "--encoding", "mla", "--probe", "learning", *SMALL)
    assert "multi-head attention alone; got Latent." in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is no JSON"),
        ("[1]", "must hold one JSON object"),
        ("[" * 100_000 + "]" * 100_000, "recipe r.json is nested too deep; see recipes/ for examples."),
        ('{"config": 5}', '"config" must hold a JSON object; got 5.'),
    ],
)
def test_a_recipe_that_is_none_is_refused(tmp_path, capsys, content, message):
    if content is not None:
        (tmp_path / "r.json").write_text(content)
    assert message in refused(capsys, "train", "--recipe", "r.json")


def test_the_catalogue_names_every_encoding(capsys):
    assert main(("encodings",)) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w+) \(", out, re.MULTILINE) == [*ENCODINGS, *ATTENTIONS]
    assert main(("encodings", "rope")) == 0
    shown = capsys.readouterr().out
    assert "laws: content-free, isometric, shift-invariant" in shown
    assert "schedule=geometric" in shown
    assert main(("encodings", "mla")) == 0
    shown = capsys.readouterr().out
    assert "laws" not in shown
    assert "defaults: latent=128, query_latent=128, rotary_dim=16, rotary_queries=per_head" in shown


def test_costs_are_printed_beside_none_also_when_interrupted(capsys, monkeypatch):
    monkeypatch.setattr(cost, "REPEATS", 2)
    monkeypatch.setattr(cost, "SAMPLE_SECONDS", 0.0)
    assert main(("encodings", "rope", "alibi", "--bench", "--length", "9")) == 0
    out = capsys.readouterr().out
    assert "16 heads of width 16, 8 x 9 tokens, float32" in out
    number = r"[\d.]+"
    ratio = rf"{number} \({number}, {number}\)"
    assert re.search(rf"rope +explicit +{ratio} +{ratio} +{number} +{number}", out)

    def once(names, length, device):
        yield Refused("rope", "too long.")
        raise KeyboardInterrupt

    monkeypatch.setattr("spectrope.cli.encodings.costs", once)
    assert main(("encodings", "--bench")) == INTERRUPTED
    assert "rope: too long." in capsys.readouterr().out


def test_costs_of_what_is_unknown_are_refused_without_a_table(capsys):
    assert "did you mean rope" in refused(capsys, "encodings", "ropee", "--bench")
    assert "length must be at least 1; got 0" in refused(capsys, "encodings", "--length", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "--encodings", "rop"), "unknown encoding 'rop'; did you mean rope"),
        (("compare", "--tasks", "cuonting"), "unknown task 'cuonting'; did you mean counting"),
        (("compare", "--scale", "papr"), "unknown scale 'papr'; did you mean paper"),
        (("compare", "--encodings"), "Compare.encodings must be at least one; got ()."),
        (("compare", "--seeds"), "Compare.seeds must be at least one; got ()."),
        (("compare", "--workers", "0"), "Compare.workers must be at least 1; got 0."),
        (("train", "--condition", "control"), "unknown condition 'control'; did you mean controlled"),
        (("train", "--epochs", "0"), "TrainingConfig.epochs must be at least 1; got 0."),
        (("train", "--examples", "1"), "Experiment.n_test must be at least 1; got 0."),
        (("train", "--seed", "-1"), "Experiment.seed must be at least 0; got -1."),
        (("ablate", "abc"), "'abc' is neither a run in runs (`spectrope runs --runs runs` lists them) nor"),
        (("report",), "runs is no folder; `spectrope compare --runs runs` makes it."),
        (("runs", "--runs", "nowhere"), "nowhere is no folder"),
        (("encodings", "rop"), "unknown encoding 'rop'; did you mean rope"),
        (("ablate", "a" * 300), "aaa: File name too long."),
        (("report", "a" * 300), "aaa: File name too long."),
    ],
)
def test_a_mistake_gets_one_line(capsys, arguments, message):
    assert message in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("options", "table"),
    [
        (("--method", "adaptive"), "adaptive"),
        (("--method", "adaptive", "--half-width", "20"), "adaptive"),
        (("--method", "cumulative", "--fill", "mean"), "cumulative-mean"),
        (("--method", "screen", "--fill", "resample"), "screen-resample"),
        (("--protocol", "R10"), "ablation-all"),
        (("--protocol", "R9"), "ablation-value-bias-unrestored"),
    ],
)
def test_ablate_keeps_what_each_method_finds(capsys, tmp_path, trained, options, table):
    assert main(("ablate", trained, *options)) == 0
    assert f"\n{table}\n" in capsys.readouterr().out
    (run,) = find_runs(tmp_path / "runs")
    assert run.frame(table).height == 24


def test_ablate_refuses_an_unknown_protocol(capsys, trained):
    line = refused(capsys, "ablate", trained, "--protocol", "release")
    assert "unknown protocol 'release'; did you mean released" in line


def test_ablate_refuses_no_examples(capsys, trained):
    assert "Ablate.examples must be at least 4; got 0." in refused(
        capsys, "ablate", trained, "--examples", "0"
    )


def test_a_file_where_the_runs_should_go_is_refused(tmp_path, capsys):
    (tmp_path / "runs").write_text("mine")
    assert "a file stands where a folder should" in refused(capsys, "train", *SMALL)
    assert (tmp_path / "runs").read_text() == "mine"


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
        "'test_accuracy' is no number": open_run(tmp_path / "runs", fields | {"seed": 5}, 1),
    }
    others["'test_accuracy' is no number"].finish({"seconds": 1.0})
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


def test_a_narrow_terminal_cuts_nothing_off(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path / "runs", "rope")
    monkeypatch.setattr(console, "width", 40)
    assert main(("runs",)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert "…" not in "".join(lines)
    below = next(place for place, line in enumerate(lines) if "─" in line) + 1
    assert "".join(line.split()[0] for line in lines[below:] if line[1:2].strip()) == run.id
    assert re.search(r" 0 +\d+\.\d$", lines[below].rstrip())


def test_a_diverged_run_is_named(tmp_path, capsys, trained):
    manifest = tmp_path / "runs" / trained / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"test_loss": None}))
    told = "distance/rope/seed 0 diverged: its held-out loss is not finite; a lower learning rate may help."
    assert main(("train", *SMALL)) == 0
    assert capsys.readouterr().err == f"spectrope: {told}\n"
    assert main(("compare", "--encodings", "rope", "--tasks", "distance", *SMALL, "--workers", "1")) == 0
    assert capsys.readouterr().err == f"spectrope: {told}\n"
    assert "the held-out loss is not finite" in (tmp_path / "report.html").read_text()


def test_a_report_names_the_runs_that_it_leaves_out(tmp_path, capsys, trained):
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text('{"config": ')
    assert main(("report",)) == 0
    told = capsys.readouterr().err
    assert re.fullmatch(r"spectrope: left out: broken: .*config\.json is damaged: it is no JSON\.\n", told)
    assert trained in (tmp_path / "report.html").read_text()


def test_runs_of_the_grokking_laboratory_are_listed_and_are_in_no_report(tmp_path, capsys, trained):
    quick = ("--p", "7", "--fraction", "0.7", "--model", "mlp", "--steps", "2", "--evaluate-every", "1")
    assert main(("grok", *quick, "--runs", "runs")) == 0
    (other,) = (run for run in find_runs(tmp_path / "runs") if run.id != trained)
    foreign = open_run(tmp_path / "runs", {"laboratory": "another", "seed": 0}, 1)
    capsys.readouterr()
    assert main(("runs",)) == 0
    shown = capsys.readouterr()
    assert re.search(rf"{other.id} +add mod 7, random, mlp, seed 0 +0 +[\d.]+", shown.out)
    assert re.search(rf"{trained} +distance +rope", shown.out)
    assert re.fullmatch(rf"spectrope: {foreign.id}: Experiment\..*\n", shown.err)
    assert main(("report",)) == 0
    assert trained in (tmp_path / "report.html").read_text()
    assert f"run {other.id} is no training run" in refused(capsys, "report", other.id)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_states_defaults(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        main((command, "--help"))
    assert not ended.value.code
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert 5 < len(lines) <= 50
    options = [line for line in lines if re.search(r"--[a-z]", line)]
    assert shown.count("default:") + shown.count("required") >= len(options) - 2


def test_an_unknown_command_exits_with_two():
    shown = subprocess.run([sys.executable, "-m", "spectrope", "compair"], capture_output=True, text=True)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr


def test_the_installed_script_is_the_same_program():
    script = Path(sys.executable).parent / "spectrope"
    shown = subprocess.run([script, "runs", "--runs", "nowhere"], capture_output=True, text=True)
    assert shown.returncode == 2
    assert shown.stderr.startswith("spectrope: nowhere is no folder")
