"""`spectrope claims pilots`: rate and epochs of a planned scale, by the plan's rules."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Annotated, Any

import tyro

from spectrope.console import (
    ROOT,
    EngineOptions,
    JsonOption,
    RunsRoot,
    complain,
    lasting,
    plan_bar,
    print_json,
    say,
    table,
)
from spectrope.core import choose_device
from spectrope.lab import Pace, makespan, threads_each
from spectrope.store import check_place
from spectrope.study.arms import TASKS
from spectrope.study.commands._common import ROUGH, Results, costing
from spectrope.study.pilots import Pilots
from spectrope.study.rows import StudyRows
from spectrope.study.study import RESULTS, carry_out, harvest, outstanding, tidy


@dataclass(frozen=True, kw_only=True)
class RunPilots(EngineOptions):
    """Choose the learning rate and epochs of a scale by pilot runs, which never count as results.

    Examples:
    $ spectrope claims pilots --dry-run
    $ spectrope claims pilots --workers 1
    """

    scale: Annotated[
        str, tyro.conf.arg(help="Scale whose learning rates and epochs the pilot runs choose.")
    ] = "mid"
    rows: Results = RESULTS
    runs: RunsRoot = ROOT
    dry_run: Annotated[bool, tyro.conf.arg(help="Print the plan and its cost, and exit.")] = False
    json: JsonOption = False

    def run(self) -> None:
        """Train what is missing, then print the losses and the choice."""
        engine = self.chosen_engine()
        pilots = Pilots(self.scale)
        place = pilots.file(self.rows)
        if not self.dry_run:
            check_place(place)
        rows = StudyRows.load(place)
        for complaint in rows.complaints:
            complain(f"left out: {complaint}")
        rows = rows.unwritten() if self.dry_run else rows
        if self.runs.exists():
            self._gather(pilots, rows)
        while left := outstanding(pilots.jobs(rows), rows):
            device = choose_device(self.computes_on)
            workers = 1 if device.type == "cuda" else min(self.n_workers, len(left))
            threads = 1 if self.engine == "ray" else threads_each(workers)
            with costing(device, threads, rough=self.dry_run) as cost:
                costs = [*map(cost, left)]
            budget = pilots.seconds_left(rows, StudyRows.load(self.rows / f"{self.scale}.jsonl"))
            fitting = bisect_right([*accumulate(threads * cost.training for cost in costs)], budget)
            if fitting < len(left):
                say(f"{len(left) - fitting} pilot runs exceed the plan's hours of training and are left out.")
                left, costs = left[:fitting], costs[:fitting]
            if not left:
                break
            total = makespan([cost.total for cost in costs], workers)
            say(f"{len(left)} pilot runs to do: about {lasting(total)}, {workers} at a time.")
            if self.dry_run:
                say(ROUGH)
                break
            pace = Pace([c.training for c in costs], [c.measuring for c in costs], workers)
            with plan_bar([job.experiment.label for job in left], pace) as watch:
                carry_out(left, rows, self.runs, engine, watch)
        if self.runs.exists() and not self.dry_run:
            tidy(self.runs, (job.experiment for job in pilots.jobs(rows)))
        show_choice(pilots, rows)
        if self.json:
            print_json(choices(pilots, rows))

    def _gather(self, pilots: Pilots, rows: StudyRows) -> None:
        """Take up finished runs; those of more epochs are asked for once the others are there."""
        n_new, complaints = harvest(self.runs, {job.experiment for job in pilots.jobs(rows)}, rows)
        if n_new:
            _, complaints = harvest(self.runs, {job.experiment for job in pilots.jobs(rows)}, rows)
        for complaint in complaints:
            complain(f"left out: {complaint}")


def choices(pilots: Pilots, rows: StudyRows) -> dict[str, Any]:
    """Rate and epochs chosen for each task, as JSON-ready values; null while runs are missing."""
    found = {name: pilots.choice(task, rows) for task, name in TASKS.items()}
    return {
        name: None
        if one is None
        else {"rate": one.rate, "epochs": one.epochs, "at_the_edge": pilots.at_the_edge(one)}
        for name, one in found.items()
    }


def show_choice(pilots: Pilots, rows: StudyRows) -> None:
    """Print the mean losses that there are, and what the rules choose by them."""
    lines = []
    for task, name in TASKS.items():
        choice = pilots.choice(task, rows)
        for setting in pilots.settings(task, rows):
            losses = pilots.losses(task, setting, rows)
            mean = f"{fmean(losses):.4g}" if losses else "—"
            chosen = "chosen" if setting == choice else ""
            lines.append((name, f"{setting.rate:g}", str(setting.epochs), mean, chosen))
    columns = ("task", "rate", "epochs", "validation loss", "")
    table(f"Pilots at {pilots.scale}", columns, lines, columns[1:3])
    for task, name in TASKS.items():
        choice = pilots.choice(task, rows)
        if choice is None:
            say(f"{name}: undecided until all runs are finished.")
            continue
        edge = pilots.at_the_edge(choice)
        told = f", the {edge} of those tried" if edge else ""
        say(f"{name}: rate {choice.rate:g}{told}, {choice.epochs} epochs.")
