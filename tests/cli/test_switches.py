"""What every command understands: --json, --quiet, --verbose, --version, and lists that load no torch."""

import json
import subprocess
import sys
from functools import partial

import pytest
from tests.cli.typed import SMALL, refused
from tests.figures.synthetic import make_run

from spectrope.attention.heads import ATTENTIONS
from spectrope.cli import main
from spectrope.cli.help import pages
from spectrope.cli.static import members
from spectrope.console.options import steps_or_never
from spectrope.console.terminal import console
from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.positions.base import POSITIONS
from spectrope.encodings.schedules.base import SCHEDULES
from spectrope.grokking.commands import grok_theory
from spectrope.grokking.least_norm import NormDescent

pytestmark = pytest.mark.usefixtures("here")
COMPARE = ("compare", "--encodings", "rope", "--tasks", "counting", "--workers", "1", *SMALL)


def printed(capsys, *arguments):
    """What a command prints as JSON, alone."""
    assert main((*arguments, "--json")) == 0
    assert not console.quiet
    return json.loads(capsys.readouterr().out)


def test_every_command_prints_its_result_as_json():
    leaves = [page for one in pages().values() for page in (one.actions or {"": one}).values()]
    assert all("--json" in [option.name for option in page.options] for page in leaves)


def test_runs_and_their_reports_are_printed_as_json(tmp_path, capsys):
    compared = printed(capsys, *COMPARE)
    assert compared["report"] == str(tmp_path / "report.html")
    (row,) = compared["runs"]
    assert printed(capsys, "runs") == [row | {"finished": True, "settings": ""}]
    assert printed(capsys, "report")["path"] == str(tmp_path / "report.html")
    trained = printed(capsys, "train", "--task", "counting", *SMALL)
    assert trained["run"] == row["run"]
    assert trained["manifest"]["test_accuracy"] == row["test"] / 100
    ablated = printed(capsys, "ablate", row["run"])
    assert list(ablated) == ["ablation", "deposit"]
    assert len(ablated["ablation"]) == 24
    measured = printed(capsys, "measure", row["run"], "ablation")
    assert (measured["measure"], len(measured["rows"])) == ("ablation", 24)


def test_catalogue_spectra_and_faults_are_printed_as_json(capsys):
    listed = printed(capsys, "encodings")
    assert [one["part"] for one in listed if one["name"] == "learned"] == ["encodings", "schedules"]
    (card,) = printed(capsys, "encodings", "alibi")
    assert card["formula"].startswith("b_h(n)")
    assert set(printed(capsys, "spectrum", "--encoding", "alibi", "--length", "16")) >= {"lags", "extremes"}
    assert printed(capsys, "explain", "SPE101")["code"] == "SPE101"


def test_claims_are_printed_as_json(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    (first, *_) = printed(capsys, "claims", "list", "1")
    assert first["n_seeds"] == 0
    (plan, *_) = printed(capsys, "claims", "run", "1", "--dry-run", "--condition", "controlled")
    assert plan["runs"] == plan["to_do"] > 0


def test_a_laboratory_is_printed_as_json(capsys, monkeypatch):
    monkeypatch.setattr(grok_theory, "NormDescent", partial(NormDescent, fit=5, stages=1, steps=5))
    quick = ("--p", "7", "--fraction", "0.7", "--steps", "2", "--evaluate-every", "1")
    found = printed(capsys, "grok", *quick, "--set", "training.learning_rate=0.01")
    (run,) = found["runs"]
    assert run["config"]["training"]["learning_rate"] == 0.01
    assert set(printed(capsys, "grok-theory", "--p", "5", "--tokens", "3")) == {
        "norms",
        "arrangements",
        "coverage",
    }


def test_quiet_prints_errors_alone(capsys):
    assert main(("encodings", "--quiet")) == 0
    assert capsys.readouterr() == ("", "")
    assert "did you mean rope" in refused(capsys, "--quiet", "encodings", "ropee")
    assert not console.quiet


def test_verbose_tells_what_runs_and_where_an_error_was_raised(capsys):
    assert main(("encodings", "ropee", "--verbose")) == 2
    err = capsys.readouterr().err
    assert err.startswith("spectrope: version ")
    assert "Traceback" in err
    assert "did you mean rope" in err
    assert err.rstrip().endswith(" s")


def test_the_version_is_told_wherever_it_is_asked_for(capsys):
    for arguments in (("--version",), ("compare", "--version"), ("claims", "run", "--version")):
        assert main(arguments) == 0
        assert capsys.readouterr().out.startswith("spectrope 0.")


def test_a_closed_pipe_ends_a_command_without_a_traceback():
    typed = f"{sys.executable} -m spectrope encodings --json | head -c 9"
    ended = subprocess.run(["bash", "-c", typed], capture_output=True, text=True, check=True)
    assert ended.stderr == ""
    assert len(ended.stdout) == 9


@pytest.mark.parametrize(
    ("package", "registry"),
    [
        ("spectrope.encodings", ENCODINGS),
        ("spectrope.encodings.schedules", SCHEDULES),
        ("spectrope.encodings.positions", POSITIONS),
        ("spectrope.attention", ATTENTIONS),
    ],
)
def test_what_is_listed_without_imports_is_what_is_registered(package, registry):
    assert list(members(package)) == list(registry)


@pytest.mark.parametrize("arguments", [("encodings",), ("runs",)])
def test_lists_are_printed_without_torch(tmp_path, arguments):
    make_run(tmp_path / "runs", "rope")
    ask = "sys.exit('torch' in sys.modules)"
    code = f"import sys; from spectrope.cli import main; main({arguments!r}); {ask}"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_training_ends_early_or_never():
    assert (steps_or_never("500"), steps_or_never("never")) == (500, None)
    with pytest.raises(ConfigError, match="--stop-after takes a number of steps, or never; got 'soon'"):
        steps_or_never("soon")
