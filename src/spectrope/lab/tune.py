"""Run the trials of a grid of learning rates, and then a plan at the rates that they choose."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spectrope.core import Device, Watch, unwatched
from spectrope.lab.engines.base import Engine
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job
from spectrope.lab.runs import run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.trials import FACTORS, Trial, Tuning, differ_by_seed, first_seeds, grid, trials_of, tuned
from spectrope.store import Run


def tune(
    plan: Sequence[Experiment],
    root: Path,
    *,
    factors: Sequence[float] = FACTORS,
    device: Device = "auto",
    workers: int = 1,
    engine: Engine | None = None,
    watch: Watch = unwatched,
) -> list[Tuning]:
    """Choose a learning rate for each task and encoding of a plan; trials are ordinary runs under `root`.

    Every encoding gets the same grid, with its first seed; its other seeds use the chosen rate.

    Args:
        plan: The experiments, of any number of seeds.
        root: Folder of the run folders.
        factors: Learning rates, as multiples of each experiment's own.
        device: Device to compute on.
        workers: Processes on a CPU.
        engine: Engine that carries out the runs (default: this machine).
        watch: Progress callback; trials are numbered in the order of `trials_of`.

    Raises:
        Interrupted: After Ctrl-C, once every unfinished trial is saved.
    """
    jobs = [Job(trial, tables=()) for trial in trials_of(plan, factors)]
    runs = execute(jobs, root, device=device, workers=workers, engine=engine, watch=watch)
    pairs = zip(trials_of(plan, factors), runs, strict=True)
    trials = iter([Trial.of(trial, run.manifest, run.id) for trial, run in pairs])
    return [Tuning(one, tuple(next(trials) for _ in grid(one, factors))) for one in first_seeds(plan)]


def run_tuned(
    plan: Sequence[Experiment],
    tunings: Sequence[Tuning],
    root: Path,
    *,
    untuned: Sequence[Run] = (),
    device: Device = "auto",
    workers: int = 1,
    engine: Engine | None = None,
    watch: Watch = unwatched,
) -> list[Run]:
    """Train and ablate a plan at the chosen rates, and store the table "tuning" with each run.

    Args:
        plan: The experiments at their original learning rates.
        tunings: Results of `tune`.
        root: Folder of the run folders.
        untuned: Finished runs of the plan, in its order; one that already has the chosen rate is copied
            instead of being trained again.
        device: Device to compute on.
        workers: Processes on a CPU.
        engine: Engine that carries out the runs (default: this machine).
        watch: Progress callback; it is called with the progress of each experiment.

    Raises:
        Interrupted: After Ctrl-C, once every unfinished run is saved.
    """
    chosen = [tuned(one, tunings) for one in plan]
    for one, before, twin in zip(chosen, plan, untuned, strict=False):
        run = run_for(one, root)
        if replace(one, tuning="none") == before and not run.finished:
            run.take_over(twin)
    runs = execute(chosen, root, device=device, workers=workers, engine=engine, watch=watch)
    for run, one in zip(runs, plan, strict=True):
        tuning = next(tuning for tuning in tunings if differ_by_seed(tuning.of, one))
        with run.lock():
            run.write_frame("tuning", tuning.table())
    return runs
