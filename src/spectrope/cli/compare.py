"""`spectrope compare`: the main job."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.cli.options import ROOT, WORKERS, Condition, DeviceOption, Epochs, Examples, RunsRoot, Scale
from spectrope.cli.show import bars, console, table
from spectrope.core.errors import require
from spectrope.encodings.foreign import is_foreign, laws_of, load_encoding
from spectrope.report import write_report
from spectrope.store import Run
from spectrope.sweeps.local import execute
from spectrope.tasks.base import TASKS
from spectrope.training.scales import experiment

ENCODINGS = ("nope", "sinusoidal", "learned", "random", "t5", "relative", "alibi", "rope")


@dataclass(frozen=True, kw_only=True)
class Compare:
    """Train a decoder with each encoding on each task, ablate every head, and write a report."""

    encodings: Annotated[
        tuple[str, ...], tyro.conf.arg(help="Names that `spectrope encodings` lists, or file.py:Class.")
    ] = ENCODINGS
    tasks: Annotated[tuple[str, ...], tyro.conf.arg(help="Names of tasks.")] = ("distance", "counting")
    scale: Scale = "mini"
    condition: Condition = "controlled"
    seeds: Annotated[tuple[int, ...], tyro.conf.arg(help="One run per seed, task and encoding.")] = (0,)
    epochs: Epochs = None
    examples: Examples = None
    runs: RunsRoot = ROOT
    out: Annotated[Path, tyro.conf.arg(help="The report, one self-contained HTML file.")] = Path(
        "report.html"
    )
    device: DeviceOption = "auto"
    workers: Annotated[int, tyro.conf.arg(help="Processes on a CPU; one per core by default.")] = WORKERS

    def run(self) -> None:
        """Run what is not in the run folders yet, print the table, write the report."""
        require(self.workers >= 1, self, "workers", "at least 1")
        for field in ("encodings", "tasks", "seeds"):
            require(len(getattr(self, field)) > 0, self, field, "at least one")
        for task in self.tasks:
            TASKS[task]
        names = [own(spec) if is_foreign(spec) else spec for spec in self.encodings]
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
            for encoding in names
        ]
        plan = list(dict.fromkeys(plan))  # two workers must not write one run
        with bars([one.label for one in plan]) as progress:
            finished = execute(
                plan, self.runs, device=self.device, workers=self.workers, watch=progress.watch
            )
        show(finished)
        write_report(finished, self.out)
        console.print(f"Report: {self.out.resolve()}", highlight=False, soft_wrap=True)


def own(spec: str) -> str:
    """Load the user's own encoding, print which of its declared laws hold, and return its name."""
    name = load_encoding(spec)
    rows = [
        (
            check.law.name.lower().replace("_", " "),
            "declared" if check.declared else "not declared",
            "holds" if check.holds else f"broken, error {check.error:.1e}",
            "" if check.honest else "the declaration is wrong",
        )
        for check in laws_of(name)
    ]
    table(f"{name}, from {spec}", ("law", "declaration", "measured", "note"), rows)
    return name


def show(runs: list[Run]) -> None:
    """Print accuracy, ceiling and the most indispensable head of each run, in 80 columns."""
    columns = ("task", "encoding", "seed", "train", "held-out", "ceiling", "drop", "head", "s")
    title = "accuracy in %; drop in points when the worst head (layer.head) is silenced"
    table(title, columns, [_row(run) for run in runs], numeric=columns[2:])


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
