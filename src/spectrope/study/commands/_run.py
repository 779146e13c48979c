"""`spectrope claims run`: the runs that claims still need, their plan and cost."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
import tyro

from spectrope.console import (
    RARE,
    ROOT,
    EngineOptions,
    RunsRoot,
    complain,
    lasting,
    plan_bar,
    print_json,
    say,
    table,
)
from spectrope.core import ConfigError, Interrupted, Precision, SpectropeError, choose_device
from spectrope.lab import AnyExperiment, Engine, EngineError, Job, JobCost, Pace, makespan, threads_each
from spectrope.store import check_place
from spectrope.study.claim import Claim, chosen_claims
from spectrope.study.claims.tuned import TUNED, tuned_claims
from spectrope.study.commands._common import (
    ROUGH,
    Asked,
    Conditions,
    costing,
    gather,
    load_rows,
    scope_of,
    verdict_records,
)
from spectrope.study.conditions import THROWN
from spectrope.study.pilots import Pilots, piloted, require_frozen
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import affordable, first_gaps, in_turn, spent_seconds
from spectrope.study.study import (
    RESULTS,
    Study,
    carry_out,
    outstanding,
    place_of_rows,
    tidy,
    usual_precision,
)


@dataclass(frozen=True, kw_only=True)
class RunClaims(Asked, EngineOptions):
    """Train the runs that claims still need. The command can be interrupted and resumed.

    Examples:
    $ spectrope claims run 1 --dry-run
    $ spectrope claims run 1 7 --seeds 0:6
    """

    conditions: Conditions = tuple(THROWN)
    runs: RunsRoot = ROOT
    precision: Annotated[
        Precision,
        tyro.conf.arg(
            help="Precision of matrix products. Only results of one precision count; auto: that of most "
            "results, "
            "or else the fastest on the device."
        ),
        RARE,
    ] = "auto"
    tune: Annotated[
        bool,
        tyro.conf.arg(help="Test claims 1 and 2 at each encoding's best rate."),
    ] = False
    dry_run: Annotated[bool, tyro.conf.arg(help="Print the plan and its cost, and exit.")] = False

    def run(self) -> None:
        """Add finished runs, print the plan, execute it, and print the verdicts."""
        engine = self.chosen_engine()
        if not self.dry_run:
            require_frozen(self.scale)
            check_place(self.rows / f"{self.scale}.jsonl")
        rows, claims = load_rows(self.rows, self.scale), chosen_claims(self.names)
        rows = rows.unwritten() if self.dry_run else rows
        claims = self._tuned(claims, rows) if self.tune else claims
        study = self.study(claims, self.conditions)
        if self.precision != "auto":
            self._require_effect_of_precision(study.jobs(rows))
        if self.runs.exists():
            gather(self.runs, study, rows)  # In a dry run, for its plan alone.
        if place_of_rows(self.rows) not in (None, self.rows):
            complain(f"no folder {RESULTS} here: the rows that the package comes with do not count.")
        if self.dry_run:
            self._show_plan(study, rows)
        else:
            self._carry_out_all(study, rows, engine)

    def _show_plan(self, study: Study, rows: StudyRows) -> None:
        left = outstanding(study.jobs(rows), rows)
        self._planned(left, study, rows)
        if left:
            say(ROUGH)
        show_later(study, rows)
        if self.json:
            print_json(plan_record(study, rows))

    def _carry_out_all(self, study: Study, rows: StudyRows, engine: Engine) -> None:
        mistake = self._done(study, rows, engine)
        if self.runs.exists():
            tidy(self.runs, (job.experiment for job in study.jobs(rows)))
        show_verdicts(study, rows)
        if self.json:
            print_json(verdict_records(study, rows))
        if mistake is not None:
            raise mistake

    def _done(self, study: Study, rows: StudyRows, engine: Engine) -> SpectropeError | None:
        """Do what can be planned, then what its rows ask for, and so on; the last error, others told."""
        left, failed, before = outstanding(study.jobs(rows), rows), set[AnyExperiment](), None
        while True:
            mistake = self._carry_out(left, study, rows, engine)
            failed |= {job.experiment for job in left if not rows.covers(job)}
            left = [job for job in outstanding(study.jobs(rows), rows) if job.experiment not in failed]
            if not left or isinstance(mistake, EngineError):
                return mistake or before
            if mistake is not None:
                complain(str(mistake))
            before = mistake or before
            say("The results so far require more runs.")

    def _carry_out(
        self, left: list[Job], study: Study, rows: StudyRows, engine: Engine
    ) -> SpectropeError | None:
        """Print the plan of what is left, and do it; the error of a job that failed, after the others."""
        jobs, pace = self._planned(left, study, rows)
        if not left:
            return None
        try:
            with plan_bar([job.experiment.label for job in jobs], pace) as watch:
                carry_out(jobs, rows, self.runs, engine, watch)
        except Interrupted:
            raise
        except SpectropeError as mistake:
            return mistake
        return None

    def _planned(self, left: list[Job], study: Study, rows: StudyRows) -> tuple[list[Job], Pace]:
        """Print the plan of what is left; the jobs that it allows, and their pace."""
        usual = usual_precision(study.rows_of(rows) or rows)
        precision = usual if self.precision == "auto" else self.precision
        jobs = [replace(job, precision=precision) for job in left]
        workers = max(1, min(self._workers, len(jobs)))
        with costing(self._device, self._threads(workers), rough=self.dry_run) as cost:
            jobs = self._allowed(jobs, cost, rows)
            costs = {job.experiment: cost(job) for job in jobs}
        show_plan(study, rows, costs, workers)
        if precision != "auto" and any(job.experiment.precision == "auto" for job in left):
            say(f"Precision of experiments that do not set it: {precision}.")
        each = costs.values()
        return jobs, Pace([c.training for c in each], [c.measuring for c in each], workers)

    def _allowed(self, jobs: list[Job], cost: Callable[[Job], JobCost], rows: StudyRows) -> list[Job]:
        """The jobs that the order and the hours of training in the plan allow; says how many they do not."""
        pilots = Pilots(self.scale).file(self.rows) if self.scale in piloted() else None
        spent = spent_seconds(rows, StudyRows.load(pilots) if pilots else (), self.scale)
        turn = in_turn(jobs, rows, self.scale)
        if len(turn) < len(jobs):
            first = ", ".join(run.label for run in first_gaps(jobs, rows, self.scale))
            say(f"{len(jobs) - len(turn)} runs wait for earlier ones of the plan, the first of them {first}.")
        threads = self._threads(max(1, min(self._workers, len(jobs))))
        fitting = affordable(turn, lambda job: threads * cost(job).training, spent, self.scale)
        if len(fitting) < len(turn):
            used = ", ".join(f"{seconds / 3600:.1f} for {name}" for name, seconds in spent.items())
            say(
                f"{len(turn) - len(fitting)} runs exceed the plan's hours of training and are omitted; spent "
                f"so far: {used or 'none'}."
            )
        return fitting

    def _tuned(self, claims: list[Claim], rows: StudyRows) -> list[Claim]:
        if self.scale in piloted():
            raise ConfigError(f"--tune is not planned at {self.scale}, where pilots choose one rate for all.")
        tuned = tuned_claims(claims, rows)
        if plain := [claim.kind for claim in claims if claim.kind not in TUNED]:
            say(f"Left out, since their rates are not tuned: {', '.join(plain)}.")
        return tuned

    def _require_effect_of_precision(self, jobs: list[Job]) -> None:
        if self.precision != "auto" and all(job.experiment.precision != "auto" for job in jobs):
            raise ConfigError(f"--precision {self.precision}: no run of these claims leaves it open.")

    @property
    def _device(self) -> torch.device:
        return choose_device(self.computes_on)

    @property
    def _workers(self) -> int:
        """Jobs at a time, as far as is known here: 1 of a cluster whose size is its own affair."""
        if self.engine == "ray":
            sharing = int(max(1, torch.cuda.device_count()) / self.gpus) if self.gpus else self.n_workers
            return max(1, min(self.n_workers, sharing)) if self.address is None else 1
        return 1 if self._device.type == "cuda" else self.n_workers

    def _threads(self, workers: int) -> int:
        """Threads of each job: on Ray those of the processors that it asks for, one."""
        return 1 if self.engine == "ray" else threads_each(workers)


def plan_record(study: Study, rows: StudyRows) -> list[dict[str, Any]]:
    """How many runs each claim needs under each condition, and how many of them are left to do."""
    return [
        {
            "claim": claim.number,
            "kind": claim.kind,
            "condition": condition,
            "runs": len(jobs),
            "to_do": len(outstanding(jobs, rows)),
        }
        for claim, condition in study.cases()
        for jobs in [study.jobs_of(claim, condition, rows)]
    ]


def show_plan(study: Study, rows: StudyRows, costs: dict[AnyExperiment, JobCost], workers: int) -> None:
    """Print what each claim still needs, what the runs to do can show, and what all of it will cost."""
    lines, unfinished = [], dict[Claim, None]()
    for claim, condition in study.cases():
        jobs = study.jobs_of(claim, condition, rows)
        missing = [job for job in jobs if job.experiment in costs]
        seconds = makespan([costs[job.experiment].total for job in missing], workers)
        lines.append(
            (f"{claim.number} {claim.kind}", condition, str(len(jobs)), str(len(missing)), lasting(seconds))
        )
        if missing:
            unfinished[claim] = None
    table(
        "", ("claim", "condition", "runs", "to do", "if run alone"), lines, ("runs", "to do", "if run alone")
    )
    seconds = makespan([cost.total for cost in costs.values()], workers)
    say(f"{len(costs)} runs to do, each once for all claims: about {lasting(seconds)}, {workers} at a time.")
    for claim in unfinished:
        say(f"{claim.number} {claim.kind}: {study.power(claim, rows)}")


def show_later(study: Study, rows: StudyRows) -> None:
    """Print which follow-up runs will be chosen from the results of the present ones."""
    for claim in study.claims:
        jobs = (job for one, name in study.cases() if one == claim for job in study.jobs_of(one, name, rows))
        if claim.planned_later and outstanding(jobs, rows):
            say(f"{claim.number} {claim.kind}: then {claim.planned_later}.")


def show_verdicts(study: Study, rows: StudyRows) -> None:
    """Print a row per claim and condition."""
    lines = []
    for (claim, condition), verdict in zip(study.cases(), study.verdicts(rows), strict=True):
        lines.append((f"{claim.number} {claim.kind}", condition, verdict.word, verdict.reason))
    table(
        scope_of(study.scale),
        ("claim", "condition", "verdict", "why"),
        lines,
    )
