"""Planned runs of a scale, in their order, and their time budget."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from spectrope.lab import AnyExperiment, Job
from spectrope.study.claim import CLAIMS
from spectrope.study.plan import plan
from spectrope.study.rows import StudyRow, StudyRows

START, NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


class Slot(NamedTuple):
    """Where a planned run stands.

    Args:
        place: Its rank in the order.
        section: The section of the plan whose `core_hours` it draws on.
    """

    place: int
    section: str


@cache
def schedule(scale: str) -> Mapping[AnyExperiment, Slot]:
    """The planned runs of a scale; empty if the plan does not cover it."""
    runs: dict[AnyExperiment, Slot] = {}
    for section, planned in plan().items():
        for entry in planned.get("order", ()) if planned.get("scale") == scale else ():
            for run in _runs(entry, planned, scale):
                runs.setdefault(run, Slot(len(runs), section))
    return runs


def scheduled(jobs: Iterable[Job], scale: str) -> list[Job]:
    """The jobs whose runs the plan has, in its order; all of them, as they are, at a scale without a plan."""
    slots = schedule(scale)
    if not slots:
        return list(jobs)
    return sorted((job for job in jobs if job.experiment in slots), key=lambda job: slots[job.experiment])


def in_turn(jobs: Iterable[Job], rows: StudyRows, scale: str) -> list[Job]:
    """The jobs that can be run now: all earlier runs of their section of the plan are done or among the jobs.

    Args:
        jobs: In the plan's order.
        rows: All rows of the scale.
        scale: Theirs.

    Returns:
        Of each section, the jobs before the first planned run that has neither a row nor a job here, so that
        naming some claims cannot change the order; all jobs at a scale without a plan.
    """
    slots, wanted = schedule(scale), list(jobs)
    gaps = {slots[run].section: slots[run].place for run in first_gaps(wanted, rows, scale)}
    return [
        job
        for job in wanted
        if (slot := slots.get(job.experiment)) is None or slot.place < gaps.get(slot.section, len(slots))
    ]


def first_gaps(jobs: Iterable[Job], rows: StudyRows, scale: str) -> list[AnyExperiment]:
    """The first planned run that has neither a row nor a job, of each section that has some of the jobs."""
    slots = schedule(scale)
    asked = {job.experiment for job in jobs}
    sections = {slots[run].section for run in asked if run in slots}
    gaps: dict[str, AnyExperiment] = {}
    for run, slot in slots.items():
        if slot.section in sections and run not in asked and rows.get(run) is None:
            gaps.setdefault(slot.section, run)
    return list(gaps.values())


def affordable(
    jobs: Sequence[Job], seconds: Callable[[Job], float], spent: Mapping[str, float], scale: str
) -> list[Job]:
    """The first jobs that fit into what is left of the plan's hours of training.

    Args:
        jobs: In the plan's order.
        seconds: What a job is expected to take on one core, which is not asked beyond the first of a section
            that does not fit.
        spent: Seconds that the runs of each section have taken, pilots included.
        scale: Theirs.

    Returns:
        Of each section, the jobs before the first one that does not fit; all jobs at a scale without a plan.
    """
    slots, used, closed = schedule(scale), dict(spent), set[str]()
    fitting: list[Job] = []
    for job in jobs:
        if (slot := slots.get(job.experiment)) is not None:
            if slot.section in closed:
                continue
            used[slot.section] = used.get(slot.section, 0.0) + seconds(job)
            if used[slot.section] > 3600 * plan()[slot.section]["core_hours"]:
                closed.add(slot.section)
                continue
        fitting.append(job)
    return fitting


def core_seconds(row: StudyRow) -> float:
    """Seconds on one core that the training of a run has taken; 0 where they were not recorded.

    These are processor time, or, of rows that lack it and on an accelerator, wall time times threads.
    """
    machine = row.facts["machine"] or {}
    used = row.facts.get("cpu_seconds")
    if used is None or machine.get("accelerator", "none") != "none":
        return wall_seconds(row)
    return used


def unclocked_seconds(row: StudyRow) -> float:
    """Wall time times threads of a run whose processor time was not recorded; 0 of any other."""
    return 0.0 if row.facts.get("cpu_seconds") is not None else wall_seconds(row)


def wall_seconds(row: StudyRow) -> float:
    """Wall time of the training of a run, times its threads; 0 where it was not recorded."""
    threads = (row.facts["machine"] or {}).get("threads")
    return (threads if isinstance(threads, int) else 1) * (row.facts["seconds"] or 0.0)


def spent_seconds(
    rows: Iterable[StudyRow],
    pilots: Iterable[StudyRow],
    scale: str,
    seconds: Callable[[StudyRow], float] = core_seconds,
) -> dict[str, float]:
    """Seconds that the training of planned runs has taken, by section of the plan.

    Args:
        rows: All rows of the scale.
        pilots: Rows of its pilots, which draw on the section that plans them.
        scale: Theirs.
        seconds: Those of a run, by default on one core.
    """
    slots = schedule(scale)
    counted = [(slots[row.experiment].section, row) for row in rows if row.experiment in slots]
    counted += [(scale, row) for row in pilots]
    spent: dict[str, float] = {}
    for section, row in counted:
        spent[section] = spent.get(section, 0.0) + seconds(row)
    return spent


def _runs(entry: Mapping[str, Any], planned: Mapping[str, Any], scale: str) -> Iterator[AnyExperiment]:
    """Arm by arm, then condition by condition, then seed by seed."""
    claim = CLAIMS[entry["claim"]]()
    conditions = entry.get("conditions", planned["conditions"])
    for arm in entry["arms"]:
        for condition in conditions:
            for seed in entry.get("seeds", planned["seeds"]):
                arms = claim.arms(condition, scale, seed)
                if arm in arms:
                    yield arms[arm]


def out_of_turn(rows: StudyRows, scale: str) -> list[StudyRow]:
    """Rows that had ended before an earlier run of their section of the plan began, or without that run.

    A run begins as many seconds before its end as it trained; runs of several workers overlap, and are in
    turn. One that was interrupted began earlier than that, so that a row can be listed wrongly.
    """
    latest: dict[str, datetime] = {}
    found: list[StudyRow] = []
    for run, slot in schedule(scale).items():
        row = rows.get(run)
        before = latest.get(slot.section, START)
        if row is None:
            latest[slot.section] = NEVER
            continue
        ended = datetime.fromisoformat(row.facts["finished_at"])
        if ended < before:
            found.append(row)
        latest[slot.section] = max(before, ended - timedelta(seconds=row.facts["seconds"] or 0.0))
    return found
