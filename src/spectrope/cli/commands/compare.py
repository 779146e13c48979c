"""`spectrope compare`: the main job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from spectrope.console import (
    ROOT,
    WORKERS,
    Condition,
    DeviceOption,
    Epochs,
    Examples,
    RunsRoot,
    Scale,
    bars,
    explain,
    refuse_given,
    say,
    table,
    try_own,
    try_task,
    warn_of_failure,
)
from spectrope.core import require
from spectrope.figures import check_page, write_report
from spectrope.lab import (
    FACTORS,
    Experiment,
    Tuning,
    execute,
    experiment,
    experiment_of,
    run_tuned,
    trials_of,
)
from spectrope.lab.tune import tune
from spectrope.store import Run
from spectrope.tasks import TASKS

ENCODINGS = ("nope", "sinusoidal", "learned", "random", "t5", "relative", "alibi", "rope")


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Train a decoder with each encoding on each task, ablate every head, and write a report."""

    encodings: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="Names that `spectrope encodings` lists, mla+NAME, or file.py:Class."),
    ] = ENCODINGS
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(help=f"{', '.join(TASKS)}, or file.py:Class.")] = (
        "distance",
        "counting",
    )
    scale: Scale = "mini"
    condition: Condition = "controlled"
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(help="One run per seed, task and encoding.")] = (0,)
    epochs: Epochs = None
    examples: Examples = None
    tune: Annotated[
        bool,
        tyro.conf.arg(help="Also run each encoding at the best rate of one grid, judged on training data."),
    ] = False
    rates: Annotated[
        tuple[float, ...], tyro.conf.arg(help="The grid, as multiples of the scale's learning rate.")
    ] = FACTORS
    runs: RunsRoot = ROOT
    out: Annotated[Path, tyro.conf.arg(help="The report, one self-contained HTML file.")] = Path(
        "report.html"
    )
    device: DeviceOption = "auto"
    workers: Annotated[int, tyro.conf.arg(help="Processes on a CPU; one per core by default.")] = WORKERS

    def run(self) -> None:
        """Run what is not in the run folders yet, print the table, write the report."""
        require(self.workers >= 1, self, "workers", "at least 1")
        for field in ("encodings", "tasks", "seeds", "rates"):
            require(len(getattr(self, field)) > 0, self, field, "at least one")
        check_page(self.out)
        require(all(rate > 0 for rate in self.rates), self, "rates", "positive")
        if not self.tune:
            refuse_given(self, ("rates",), "goes with --tune.")
        plan = [
            experiment(
                task,
                encoding,
                scale=self.scale,
                condition=self.condition,
                seed=seed,
                epochs=self.epochs,
                n_examples=self.examples,
            )
            for task in self.tasks
            for seed in self.seeds
            for encoding in self.encodings
        ]
        for spec, one in zip(self.encodings, plan, strict=False):  # The plan begins with each of them once.
            try_own(spec, one.model)
        for task in dict.fromkeys(one.task for one in plan):
            try_task(task)
        plan = list(dict.fromkeys(plan))  # two workers must not write one run
        with bars([one.label for one in plan]) as progress:
            finished = execute(plan, self.runs, watch=progress.watch, **self._place)
        show(finished)
        if self.tune:
            tuned = self.tuned(plan, finished)
            show(tuned, "the same at the learning rates chosen above")
            finished += tuned
        write_report(finished, self.out)
        say(f"Report: {self.out.resolve()}")

    def tuned(self, plan: list[Experiment], untuned: list[Run]) -> list[Run]:
        """Choose learning rates, print what they and the choice cost, and run the plan at them."""
        trials = trials_of(plan, self.rates)
        with bars([one.label for one in trials]) as progress:
            tunings = tune(plan, self.runs, factors=self.rates, watch=progress.watch, **self._place)
        show_tunings(tunings)
        with bars([f"{one.label}, tuned" for one in plan]) as progress:
            return run_tuned(plan, tunings, self.runs, untuned=untuned, watch=progress.watch, **self._place)

    @property
    def _place(self) -> dict[str, Any]:
        return {"device": self.device, "workers": self.workers}


def show_tunings(tunings: list[Tuning]) -> None:
    """Print what each learning rate reached, the chosen one marked, and what the grids cost."""
    factors = max((len(tuning.trials) for tuning in tunings), default=0)
    columns = ("task", "encoding", *(f"rate {n}" for n in range(1, factors + 1)), "chosen", "s")
    rows = [
        (
            tuning.task,
            tuning.encoding,
            *(f"{trial.rate:.2g}: {100 * trial.accuracy:.1f}" for trial in tuning.trials),
            f"{tuning.chosen.rate:.2g}{'*' if tuning.at_edge else ''}",
            f"{tuning.seconds:.0f}",
        )
        for tuning in tunings
    ]
    title = "learning rates: accuracy in % on training examples that were left out"
    table(title, columns, rows, numeric=columns[2:])
    cost = sum(tuning.seconds for tuning in tunings)
    runs = sum(len(tuning.trials) for tuning in tunings)
    edge = (
        " * is an end of the grid: a better rate may lie beyond." if any(t.at_edge for t in tunings) else ""
    )
    explain(f"The grids took {runs} runs and {cost:.0f} s of training.{edge}")


SHOWN = "accuracy in %; drop in points when the worst head (layer.head, from 0) is silenced"


def show(runs: list[Run], title: str = SHOWN) -> None:
    """Print accuracy, ceiling and the most indispensable head of each run, in 80 columns."""
    columns = ("task", "encoding", "seed", "train", "held-out", "ceiling", "drop", "head", "s")
    table(title, columns, [_row(run) for run in runs], numeric=columns[2:])
    for run in runs:
        warn_of_failure(experiment_of(run).label, run.manifest)


def _row(run: Run) -> tuple[str, ...]:
    config, manifest = run.config, run.manifest
    top = run.frame("ablation").sort("drop", descending=True).row(0, named=True)
    return (
        config["task"]["kind"],
        config["encoding_name"],
        str(config["seed"]),
        *(f"{100 * manifest[key]:.1f}" for key in ("train_accuracy", "test_accuracy", "bayes_accuracy")),
        f"{top['drop']:.1f}",
        f"{top['layer']}.{top['head']}",
        f"{manifest['seconds']:.0f}",
    )
