"""What a page says of the plan of its scale: hours of one core, and the choices of its pilots."""

from collections.abc import Sequence
from dataclasses import dataclass

from spectrope.study.arms import TASKS
from spectrope.study.pilots import Pilots, piloted
from spectrope.study.plan import plan
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import core_seconds, spent_seconds, unclocked_seconds, wall_seconds
from spectrope.study.study import RESULTS


@dataclass(frozen=True)
class CoreHours:
    """Hours of one core that a section of the plan has for training.

    Args:
        section: Its name.
        conditions: Under which it trains.
        hours: All of them.
        spent: Those that are spent, pilots included.
        unclocked: Those of them that are wall time times threads, as their processor time was not recorded.
        by_wall: All of them as wall time times threads, in which waiting for a core counts.
        lacks_pilots: Whether its pilots have no rows here, and are not counted.
    """

    section: str
    conditions: Sequence[str]
    hours: float
    spent: float
    unclocked: float
    by_wall: float
    lacks_pilots: bool


def budget(scale: str, rows: StudyRows) -> list[CoreHours]:
    """The sections of the plan of a scale; none where the plan does not cover it."""
    place = RESULTS if rows.source is None else rows.source.parent
    pilots = StudyRows.load(Pilots(scale).file(place)) if scale in piloted() else StudyRows()
    spent, unclocked, by_wall = (
        spent_seconds(rows, pilots, scale, of) for of in (core_seconds, unclocked_seconds, wall_seconds)
    )
    return [
        CoreHours(
            section=name,
            conditions=one["conditions"],
            hours=float(one["core_hours"]),
            spent=spent.get(name, 0.0) / 3600,
            unclocked=unclocked.get(name, 0.0) / 3600,
            by_wall=by_wall.get(name, 0.0) / 3600,
            lacks_pilots="pilots" in one and not len(pilots),
        )
        for name, one in plan().items()
        if one.get("scale") == scale
    ]


def edges(scale: str) -> str:
    """That pilots chose the lowest or the highest rate that they tried; empty if they did not."""
    section = plan().get(scale, {})
    rates = section.get("pilots", {}).get("rates", ())
    ends = {min(rates): "lowest", max(rates): "highest"} if rates else {}
    told: dict[str, list[str]] = {}
    for task, chosen in section.get("chosen", {}).items():
        if (end := ends.get(chosen["learning_rate"])) is not None:
            told.setdefault(f"{chosen['learning_rate']:g}, the {end} that was tried", []).append(TASKS[task])
    return "".join(f"; the rate of {' and '.join(tasks)} is {words}" for words, tasks in told.items())
