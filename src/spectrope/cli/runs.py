"""`spectrope runs`: what lies in a folder of runs."""

from dataclasses import dataclass

from spectrope.cli.options import ROOT, RunsRoot
from spectrope.cli.show import complain, table
from spectrope.core.errors import ConfigError
from spectrope.store import Run, survey
from spectrope.sweeps.laboratories import MARK, read_experiment


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs of a folder, finished or not."""

    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Print a row per run, and a line for each folder that cannot be read."""
        columns = ("run", "task", "encoding", "scale", "condition", "seed", "held-out %")
        found, broken = survey(self.runs)
        rows = []
        for run in found:
            try:
                rows.append(_row(run))
            except ConfigError as error:
                broken.append((run.path, str(error)))
        table("", columns, rows, ("seed", "held-out %"))
        for path, reason in broken:
            complain(f"{path.name}: {reason}")


def _row(run: Run) -> tuple[str, ...]:
    config, result = run.config, _held_out(run)
    if MARK in config:
        one = read_experiment(config)
        return run.id, one.label, "", "", "", str(one.seed), result
    names = (config["encoding_name"], config["scale"], config["condition"], str(config["seed"]))
    return run.id, config["task"]["kind"], *names, result


def _held_out(run: Run) -> str:
    if not run.finished:
        return "unfinished"
    accuracy = run.manifest["test_accuracy"]
    return "" if accuracy is None else f"{100 * accuracy:.1f}"
