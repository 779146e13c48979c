"""`spectrope claims`: every statement of the paper, tested."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from tyro.conf import subcommand

from spectrope.claims.base import Claim, chosen_claims
from spectrope.claims.study import (
    Study,
    carry_out,
    harvest,
    leaves_precision_open,
    outstanding,
    usual_precision,
)
from spectrope.claims.tuned import TUNED, tried_claims, tuned_claims, tuned_forms
from spectrope.cli.options import ROOT, WORKERS, DeviceOption, RunsRoot, Scale
from spectrope.cli.show import complain, console, lasting, plan_bar, say, table
from spectrope.core.device import Precision, choose_device
from spectrope.core.errors import ConfigError, SpectropeError, require
from spectrope.report.replication import write_replication
from spectrope.report.shell import check_page
from spectrope.store import check_place
from spectrope.sweeps.calibrate import Cost, calibrate
from spectrope.sweeps.engine import Engine
from spectrope.sweeps.job import Job
from spectrope.sweeps.laboratories import AnyExperiment
from spectrope.sweeps.local import Local
from spectrope.sweeps.pace import Pace
from spectrope.sweeps.ray import Ray
from spectrope.sweeps.rows import Rows
from spectrope.training.conditions import THROWN
from spectrope.training.interrupt import Interrupted

Names = Annotated[
    tyro.conf.Positional[tuple[str, ...]],
    tyro.conf.arg(name="claim", help="Names or numbers; none means all."),
]
Conditions = Annotated[tuple[str, ...], tyro.conf.arg(help="Whose confounds to keep.")]
Results = Annotated[Path, tyro.conf.arg(name="rows", help="Folder of the rows, a file per scale.")]
Seeds = Annotated[int, tyro.conf.arg(help="Seeds of every run; 6 are the fewest that decide.")]
FirstSeed = Annotated[
    int,
    tyro.conf.arg(
        help="The first of them, of those that chose nothing: 6 checks a surprise on fresh ones alone."
    ),
]
RESULTS, PAGE = Path("results"), Path("docs/replication.md")


def seeds_from(first: int, count: int) -> tuple[int, ...]:
    """Seeds in a row."""
    return tuple(range(first, first + count))


def load_rows(folder: Path, scale: str) -> Rows:
    """The rows of a scale; those that cannot be read are named on standard error."""
    rows = Rows.load(folder / f"{scale}.jsonl")
    for complaint in rows.complaints:
        complain(f"left out: {complaint}")
    return rows


def existing_rows(folder: Path, scale: str) -> Rows:
    """The rows of a scale in a folder that there is; the usual one may wait for its first study.

    Raises:
        ConfigError: If another one is missing, as where its name is misspelt.
    """
    if folder != RESULTS and not folder.is_dir():
        raise ConfigError(f"--rows {folder} is no folder; `spectrope claims run --rows {folder}` makes it.")
    return load_rows(folder, scale)


@dataclass(frozen=True, kw_only=True)
class List:
    """What the claims say, and what the rows say of them so far."""

    names: Names = ()
    scale: Scale = "mini"
    seeds: Seeds = 6
    first_seed: FirstSeed = 0
    rows: Results = RESULTS

    def run(self) -> None:
        """Print a row per claim."""
        rows, seeds = existing_rows(self.rows, self.scale), seeds_from(self.first_seed, self.seeds)
        study = Study(tuple(chosen_claims(self.names)), tuple(THROWN), self.scale, seeds)
        told: dict[Claim, list[str]] = {claim: [] for claim in study.claims}
        for (claim, condition), verdict in zip(study.cases(), study.verdicts(rows), strict=True):
            told[claim].append(f"{condition}: {verdict.outcome}, {verdict.n_seeds}")
        lines = [(f"{one.number} {one.kind}", one.title, "\n".join(told[one])) for one in study.claims]
        table("", ("claim", "says", "verdict, seeds"), lines)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Carry out the runs that claims need and no row holds yet; Ctrl-C keeps everything."""

    names: Names = ()
    conditions: Conditions = tuple(THROWN)
    scale: Scale = "mini"
    seeds: Seeds = 6
    first_seed: FirstSeed = 0
    rows: Results = RESULTS
    runs: RunsRoot = ROOT
    device: DeviceOption = "auto"
    precision: Annotated[
        Precision,
        tyro.conf.arg(
            help="Of matrix products; auto takes that of most rows, since claims leave others out, or else "
            "the device's."
        ),
    ] = "auto"
    workers: Annotated[int, tyro.conf.arg(help="Processes on a CPU; one per core by default.")] = WORKERS
    engine: Annotated[
        Literal["local", "ray"], tyro.conf.arg(help="This machine's processes, or a Ray cluster.")
    ] = "local"
    address: Annotated[
        str | None, tyro.conf.arg(help="Of a Ray cluster, such as auto; None starts one on this machine.")
    ] = None
    gpus: Annotated[
        float, tyro.conf.arg(help="GPUs that one run takes on Ray: 0.25 lets four share one, 0 is the CPU.")
    ] = 0.0
    replicas: Annotated[
        int, tyro.conf.arg(help="Most seeds that train as one batched model; worth it on GPUs alone.")
    ] = 1
    tune: Annotated[
        bool,
        tyro.conf.arg(help="Claims 1 and 2 at the best rate of one grid for all, judged on training data."),
    ] = False
    dry_run: Annotated[bool, tyro.conf.arg(help="Print the plan and what it will cost, and stop.")] = False

    def run(self) -> None:
        """Take up finished runs, print the plan, do it, print the verdicts."""
        require(self.seeds >= 1, self, "seeds", "at least 1")
        require(self.first_seed >= 0, self, "first_seed", "at least 0")
        require(self.workers >= 1, self, "workers", "at least 1")
        require(self.replicas >= 1, self, "replicas", "at least 1")
        require(self.gpus >= 0, self, "gpus", "at least 0")
        self._require_options_of_engine()
        if not self.dry_run:
            check_place(self.rows / f"{self.scale}.jsonl")
        rows, claims = load_rows(self.rows, self.scale), chosen_claims(self.names)
        rows = rows.unwritten() if self.dry_run else rows
        claims = self._tuned(claims, rows) if self.tune else claims
        study = Study(tuple(claims), self.conditions, self.scale, seeds_from(self.first_seed, self.seeds))
        self._require_effect_of_precision(study.jobs(rows))
        if self.runs.exists():
            gather(self.runs, study, rows)  # In a dry run, for its plan alone.
        left = self._carry_out(study, rows)
        if self.dry_run:
            for claim in study.claims:
                if claim.planned_later:
                    told = f"{claim.number} {claim.kind}: then {claim.planned_later}."
                    say(told)
            return
        while (more := outstanding(study.jobs(rows), rows)) and more != left:
            say("What has been found asks for more runs.")
            left = self._carry_out(study, rows)
        show_verdicts(study, rows)

    def _carry_out(self, study: Study, rows: Rows) -> list[Job]:
        """Print the plan, do what of it can be planned by the rows that there are, and return it."""
        left = outstanding(study.jobs(rows), rows)
        precision = usual_precision(rows) if self.precision == "auto" else self.precision
        jobs = [replace(job, precision=precision) for job in left]
        costs = self._costs(jobs)
        show_plan(study, rows, dict(zip((job.experiment for job in left), costs, strict=True)), self._workers)
        if precision != "auto" and any(leaves_precision_open(job.experiment) for job in left):
            say(f"Where an experiment leaves its precision open: {precision}.")
        if left and not self.dry_run:
            pace = Pace([c.training for c in costs], [c.measuring for c in costs], self._workers)
            try:
                with plan_bar([job.experiment.label for job in left], pace) as watch:
                    carry_out(jobs, rows, self.runs, self._engine(), watch)
            except Interrupted:
                raise
            except SpectropeError:
                show_verdicts(study, rows)  # Of the others, which are done.
                raise
        return left

    def _tuned(self, claims: list[Claim], rows: Rows) -> list[Claim]:
        tuned = tuned_claims(claims, rows)
        if plain := [claim.kind for claim in claims if claim.kind not in TUNED]:
            say(f"Left out, since their rates are not tuned: {', '.join(plain)}.")
        return tuned

    def _require_options_of_engine(self) -> None:
        if self.engine == "ray" and self.device != "auto":
            raise ConfigError(
                "--device is for --engine local; on Ray --gpus says what a run takes, 0 being the CPU."
            )
        if self.engine == "local" and (self.gpus or self.address is not None):
            option = "--gpus" if self.gpus else "--address"
            raise ConfigError(f"{option} is for --engine ray; this machine's processes take --device.")

    def _require_effect_of_precision(self, jobs: list[Job]) -> None:
        if self.precision != "auto" and not any(leaves_precision_open(job.experiment) for job in jobs):
            raise ConfigError(f"--precision {self.precision}: no run of these claims leaves it open.")

    def _engine(self) -> Engine:
        if self.engine == "ray":
            return Ray(address=self.address, workers=self.workers, gpus=self.gpus, replicas=self.replicas)
        return Local(self.device, self.workers, self.replicas)

    @property
    def _device(self) -> torch.device:
        return choose_device("cpu" if self.engine == "ray" and not self.gpus else self.device)

    @property
    def _workers(self) -> int:
        """Jobs at a time, as far as is known here: 1 of a cluster whose size is its own affair."""
        if self.engine == "ray":
            sharing = int(max(1, torch.cuda.device_count()) / self.gpus) if self.gpus else self.workers
            return max(1, min(self.workers, sharing)) if self.address is None else 1
        return 1 if self._device.type == "cuda" else self.workers

    def _costs(self, jobs: list[Job]) -> list[Cost]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if self.engine == "ray" else max(1, WORKERS // self._workers))
        try:
            with console.status("Timing a few steps of each kind of run"):
                return calibrate(jobs, self._device, self.replicas)
        finally:
            torch.set_num_threads(threads)


@dataclass(frozen=True, kw_only=True)
class Harvest:
    """Take the rows of finished runs, such as those of `spectrope compare`, that some claim needs."""

    names: Names = ()
    scale: Scale = "mini"
    seeds: Seeds = 6
    first_seed: FirstSeed = 0
    rows: Results = RESULTS
    runs: RunsRoot = ROOT

    def run(self) -> None:
        """Add rows, and name the runs that cannot be read."""
        rows, claims = load_rows(self.rows, self.scale), chosen_claims(self.names)
        every = (*claims, *tuned_forms(claims, rows))
        study = Study(every, tuple(THROWN), self.scale, seeds_from(self.first_seed, self.seeds))
        gather(self.runs, study, rows)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write the page of verdicts, with its pictures, from the rows alone."""

    names: Names = ()
    conditions: Conditions = tuple(THROWN)
    scale: Scale = "mini"
    seeds: Seeds = 6
    first_seed: FirstSeed = 0
    rows: Results = RESULTS
    out: Annotated[
        Path | None,
        tyro.conf.arg(help=f"Markdown file to write; {PAGE} where the rest is as it is by default."),
    ] = None

    def run(self) -> None:
        """Write the page and print its path last."""
        rows, claims = existing_rows(self.rows, self.scale), chosen_claims(self.names)
        out = PAGE if self.out is None and self == Report() else self.out
        if out is None:
            raise ConfigError(f"{PAGE} is of the whole study; a page of anything else wants --out.")
        check_page(out, ".md")
        claims = tried_claims(claims, rows, self.scale)
        study = Study(tuple(claims), self.conditions, self.scale, seeds_from(self.first_seed, self.seeds))
        write_replication(study, rows, out)
        say(f"Wrote {out.resolve()}")


Action = (
    Annotated[List, subcommand("list")]
    | Annotated[Run, subcommand("run")]
    | Annotated[Harvest, subcommand("harvest")]
    | Annotated[Report, subcommand("report")]
)


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Test every statement of the paper: with its confounds, as its code ran it, and without them."""

    action: Action

    def run(self) -> None:
        """Do what is asked."""
        self.action.run()


def gather(root: Path, study: Study, rows: Rows) -> None:
    """Take the rows of finished runs, and of those that these ask for, and say how many."""
    total, complaints = harvest(root, {job.experiment for job in study.jobs(rows)}, rows)
    found = total
    while found:
        found, complaints = harvest(root, {job.experiment for job in study.jobs(rows)}, rows)
        total += found
    for complaint in complaints:
        complain(f"left out: {complaint}")
    say(f"{total} new rows from {root}; {len(rows)} in all.")


def show_plan(study: Study, rows: Rows, costs: dict[AnyExperiment, Cost], workers: int) -> None:
    """Print what each claim still needs, what it can show, and what all of it will cost."""
    lines = []
    for claim, condition in study.cases():
        jobs = study.jobs_of(claim, condition, rows)
        missing = [job for job in jobs if not rows.covers(job)]
        seconds = sum(costs[job.experiment].total for job in missing) / workers
        lines.append(
            (f"{claim.number} {claim.kind}", condition, str(len(jobs)), str(len(missing)), lasting(seconds))
        )
    table("", ("claim", "condition", "runs", "to do", "by itself"), lines, ("runs", "to do", "by itself"))
    seconds = sum(cost.total for cost in costs.values()) / workers
    say(f"{len(costs)} runs to do, each once for all claims: about {lasting(seconds)}, {workers} at a time.")
    for claim in study.claims:
        say(f"{claim.number} {claim.kind}: {study.power(claim, rows)}")


def show_verdicts(study: Study, rows: Rows) -> None:
    """Print a row per claim and condition."""
    lines = []
    for (claim, condition), verdict in zip(study.cases(), study.verdicts(rows), strict=True):
        lines.append((f"{claim.number} {claim.kind}", condition, verdict.outcome, verdict.reason))
    table(
        f"Verdicts at scale {study.scale}, which speak for no other",
        ("claim", "condition", "verdict", "why"),
        lines,
    )
