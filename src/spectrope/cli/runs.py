"""`spectrope runs`: what lies in a folder of runs."""

from dataclasses import dataclass

from spectrope.cli.options import ROOT, RunsRoot
from spectrope.cli.show import complain, table
from spectrope.store import Run, broken_runs, find_runs


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs of a folder, finished or not."""

    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Print a row per run, and a line for each folder that cannot be read."""
        columns = ("run", "task", "encoding", "scale", "condition", "seed", "held-out %")
        table("", columns, [_row(run) for run in find_runs(self.runs)], ("seed", "held-out %"))
        for path, reason in broken_runs(self.runs):
            complain(f"{path.name}: {reason}")


def _row(run: Run) -> tuple[str, ...]:
    config = run.config
    result = f"{100 * run.manifest['test_accuracy']:.1f}" if run.finished else "unfinished"
    names = (config["encoding_name"], config["scale"], config["condition"], str(config["seed"]))
    return run.id, config["task"]["kind"], *names, result
