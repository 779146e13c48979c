"""`spectrope runs`: what lies in a folder of runs."""

from dataclasses import dataclass

from spectrope.console import ROOT, RunsRoot, complain, table
from spectrope.core import SpectropeError, StoreError
from spectrope.lab import MARK, OWN, read_experiment
from spectrope.store import Run, survey

NAMES = ("task", "encoding_name", "scale", "condition", "seed")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """List the runs of a folder, finished or not."""

    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Print a row per run, and a line for each folder that cannot be read."""
        columns = ("run", "task", "encoding", "scale", "condition", "seed", "held-out %")
        runs, broken = survey(self.runs)
        rows = []
        for run in runs:
            try:
                rows.append(_row(run))
            except SpectropeError as error:
                broken.append((run.path, str(error)))
        table("", columns, rows, ("seed", "held-out %"))
        for path, reason in broken:
            complain(f"{path.name}: {reason}")


def _row(run: Run) -> tuple[str, ...]:
    config, result = run.config, _held_out(run)
    if MARK in config and isinstance(config.get(OWN), dict):  # No file is run to list it.
        return run.id, str(config[MARK]), ", ".join(config[OWN]), "", "", str(config.get("seed", "")), result
    if MARK in config:
        one = read_experiment(config)
        return run.id, one.label, "", "", "", str(one.seed), result
    if missing := [name for name in NAMES if name not in config]:
        raise StoreError(f"its configuration is damaged: it has no {missing[0]!r}.")
    task = config["task"]
    if not (isinstance(task, dict) and "kind" in task):
        raise StoreError("its configuration is damaged: its task has no name.")
    return run.id, str(task["kind"]), *(str(config[name]) for name in NAMES[1:]), result


def _held_out(run: Run) -> str:
    if not run.finished:
        return "unfinished"
    accuracy = run.manifest.get("test_accuracy", "")
    if not isinstance(accuracy, int | float | None):
        raise StoreError("its manifest is damaged: 'test_accuracy' is no number; train it again.")
    return "" if accuracy is None else f"{100 * accuracy:.1f}"
