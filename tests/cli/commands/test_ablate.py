"""`spectrope ablate` on a run: what each method leaves."""

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.store import find_runs

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("options", "table"),
    [
        (("--method", "adaptive"), "adaptive"),
        (("--method", "adaptive", "--threshold", "7.5"), "adaptive-above-7.5"),
        (("--method", "adaptive", "--half-width", "20", "--fill", "mean"), "adaptive-within-20-mean"),
        (("--method", "cumulative", "--fill", "mean"), "cumulative-mean"),
        (("--method", "screen", "--fill", "resample"), "screen-resample"),
        (("--protocol", "R10"), "ablation-all"),
        (("--protocol", "R9"), "ablation-unrestored"),
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


def test_ablate_refuses_a_method_of_checkpoints(capsys, trained):
    line = refused(capsys, "ablate", trained, "--method", "screened-adaptive")
    assert "--method screened-adaptive is for checkpoints; a run takes exact, adaptive, cumulative" in line
