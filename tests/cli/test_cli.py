"""The program as a user types it: exit codes, refusals, places to write to, help."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.typed import SMALL, refused
from tests.figures.synthetic import make_run

from spectrope import cli
from spectrope.cli import main
from spectrope.cli.commands.runs import Runs
from spectrope.console.terminal import console, with_options
from spectrope.core.errors import EnvironmentLostError, StoreError
from spectrope.store import check_place

pytestmark = pytest.mark.usefixtures("here")


def test_a_fault_of_the_program_is_no_answer(capsys, monkeypatch):
    def fail(self):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(Runs, "run", fail)
    assert main(("runs",)) == 70
    assert "ZeroDivisionError: by nothing" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "kept"), [("train", True), ("parity", False), ("audit", False)])
def test_an_interruption_promises_to_resume_what_is_resumed(name, kept, capsys, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "parse", interrupt)
    assert main((name,)) == 130
    told = " ".join(capsys.readouterr().err.split())
    resumed = "; finished runs are kept, and the same command resumes unfinished ones"
    assert told == f"spectrope: interrupted{resumed if kept else ''}."


def test_words_that_stand_for_an_option_are_understood(capsys):
    assert main(("version",)) == 0
    assert capsys.readouterr().out.startswith("spectrope ")
    for words, option in ((("help",), ("--help",)), (("help", "runs"), ("runs", "--help"))):
        assert main(words) == 0
        shown = capsys.readouterr().out
        assert main(option) == 0
        assert capsys.readouterr().out == shown


class Closed(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, text):
        raise BrokenPipeError


def test_whoever_stops_reading_ends_the_command_without_a_word(tmp_path, capsys, monkeypatch):
    with (tmp_path / "pipe").open("w") as pipe, monkeypatch.context() as patched:
        closed = Closed()
        patched.setattr(closed, "fileno", pipe.fileno)
        patched.setattr(sys, "stdout", closed)
        assert main(("encodings",)) == 141
    console.print()  # what could not be written waits in the console
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
        (("report", "--out", "runs/RUN/config.json"), "this page is saved as .html; got 'config.json'."),
        (
            ("report", "--figure", "accuracy", "--out", "runs/RUN/config.json"),
            "is the folder of a run; choose",
        ),
        (("report", "--out", "runs/RUN/page.html"), "is the folder of a run; choose another place."),
        (
            ("report", "--out", "folder.html"),
            "cannot write folder.html: a folder exists where a file should be",
        ),
        (("report", "--out", "file/page.html"), "a file stands where a folder should"),
        (("report", "--figure", "acuracy"), "unknown figure 'acuracy'; did you mean accuracy"),
        (("claims", "report", "--out", "page.pdf"), "this page is saved as .md; got 'page.pdf'."),
        (("compare", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
        (("grok", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
        (("grok-shapes", "--out", "page.pdf"), "this page is saved as .html; got 'page.pdf'."),
        (("lock", "absent", "--out", "file/a.lock"), "a file stands where a folder should"),
        (("attention", "calibrate", "--out", "folder.html"), "a folder exists where a file should be"),
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


def test_a_place_that_is_forbidden_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # As for others than the superuser.
    with pytest.raises(StoreError, match=r"page\.html: permission is denied"):
        check_place(tmp_path / "new" / "page.html")
    run = make_run(tmp_path / "runs", "rope")
    assert f"{run.id}: permission is denied" in refused(capsys, "measure", run.id, "spectrum")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --every 5", "--every goes with --probe."),
        ("train --recipe r.json --seed 1", "--seed does not go with --recipe; change it in r.json."),
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
        ("spectrum RUN --n-heads 4", "--n-heads goes with --encoding; a model has its own."),
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
        ("ablate RUN --method adaptive --examples 9", "--examples cannot be combined with --method adaptive"),
        (
            "ablate RUN --method adaptive --half-width 9 --threshold 9",
            "--threshold cannot be combined with --half-w",
        ),
        ("ablate RUN --method screen --protocol R10", "--protocol cannot be combined with --method screen"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare", "--encodings", "rop"), "unknown encoding 'rop'; did you mean rope"),
        (("compare", "--tasks", "cuonting"), "unknown task 'cuonting'; did you mean counting"),
        (("compare", "--scale", "papr"), "unknown scale 'papr'; did you mean paper"),
        (("compare", "--encodings"), "--encodings must be followed by at least one value; got none."),
        (("compare", "--seeds"), "--seeds must be followed by at least one value; got none."),
        (("compare", "--workers", "0"), "Compare.workers must be at least 1; got 0."),
        (("train", "--condition", "control"), "unknown condition 'control'; did you mean controlled"),
        (("train", "--epochs", "0"), "TrainingConfig.epochs must be at least 1; got 0."),
        (("train", "--examples", "1"), "Experiment.n_test must be at least 1; got 0."),
        (("train", "--seed", "-1"), "Experiment.seed must be at least 0; got -1."),
        (("ablate", "abc"), "'abc' is neither a run in runs nor a checkpoint (a folder, or a model"),
        (("report",), "runs is not a folder; compare and train make one."),
        (("runs", "--runs", "nowhere"), "nowhere is not a folder"),
        (("encodings", "rop"), "unknown encoding 'rop'; did you mean rope"),
        (("ablate", "a" * 300), "aaa: File name too long."),
        (("report", "a" * 300), "aaa: File name too long."),
    ],
)
def test_a_mistake_gets_one_line(capsys, arguments, message):
    assert message in refused(capsys, *arguments)


def test_a_file_where_the_runs_should_go_is_refused(tmp_path, capsys):
    (tmp_path / "runs").write_text("mine")
    assert "a file stands where a folder should" in refused(capsys, "train", *SMALL)
    assert (tmp_path / "runs").read_text() == "mine"


def test_a_narrow_terminal_cuts_nothing_off(tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path / "runs", "rope")
    monkeypatch.setattr(console, "width", 40)
    assert main(("runs",)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert "…" not in "".join(lines)
    below = next(place for place, line in enumerate(lines) if "─" in line) + 1
    assert (
        "".join(line.split()[0] for line in lines[below:] if line[:1] == " " and line[1:2].strip()) == run.id
    )
    assert "Omitted" in "".join(lines)  # Columns of numbers that do not fit are named, not folded.


def test_an_unknown_command_exits_with_two():
    shown = subprocess.run([sys.executable, "-m", "spectrope", "compair"], capture_output=True, text=True)
    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr


def test_the_installed_script_is_the_same_program():
    script = Path(sys.executable).parent / "spectrope"
    shown = subprocess.run([script, "runs", "--runs", "nowhere"], capture_output=True, text=True)
    assert shown.returncode == 2
    assert shown.stderr.startswith("spectrope: nowhere is not a folder")


def test_lost_workers_end_with_a_code_of_their_own(monkeypatch, capsys):
    def lose(self):
        raise EnvironmentLostError("the Ray cluster was lost.")

    monkeypatch.setattr(Runs, "run", lose)
    assert main(("runs",)) == 4
    assert capsys.readouterr().err == "spectrope: the Ray cluster was lost.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("grok", "--seeds", "3:3"), "--seeds takes ranges of 1 to 1,000,000 seeds; got '3:3'."),
        (
            ("compare", "--seeds", "0:9999999999"),
            "--seeds takes ranges of 1 to 1,000,000 seeds; got '0:9",
        ),
        (("compare", "--seeds", f"0:{10**22}"), "--seeds takes numbers below 2^63, or ranges such as 0:6"),
        (("train", "--set", "learning_rate=1", "learning_rate=2"), "--set gives learning_rate twice."),
        (("compare", "--seeds", "0:3", "--set", "seed=1"), "--set changes all seeds to one; name seeds by"),
    ],
)
def test_what_is_given_twice_or_not_at_all_is_refused(capsys, arguments, told):
    assert told in refused(capsys, *arguments)


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 7 TiB"), RuntimeError("not enough memory: 9")]
)
def test_too_little_memory_is_no_fault_of_the_program(capsys, monkeypatch, error):
    def fails(*arguments):
        raise error

    monkeypatch.setattr(cli, "_run", fails)
    assert "not enough memory: " in refused(capsys, "train")


def test_a_closed_standard_error_does_not_mean_no(monkeypatch, tmp_path):
    with (tmp_path / "pipe").open("w") as pipe, monkeypatch.context() as patched:
        closed = Closed()
        patched.setattr(closed, "fileno", pipe.fileno)
        patched.setattr(sys, "stderr", closed)
        assert main(("runs", "--runs", "nowhere")) == 141


def test_no_standard_output_is_no_fault(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(("encodings", "--quiet")) == 0


def test_advice_in_words_of_python_is_given_in_options():
    told = with_options("there is no GPU; use device='cpu', or 'auto'.")
    assert told == "there is no GPU; use --device cpu, or 'auto'."
    assert with_options("call f(fill='mean', n=3)") == "call f(fill='mean', n=3)"
