"""Claim 24: does PoPE separate what from where?"""

from collections.abc import Iterator

from spectrope.study.arms import TASKS, Arms, run_of
from spectrope.study.band_arms import LOST, BandClaim
from spectrope.study.predictions import AtMost, Values
from spectrope.study.quantities import Seen
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

FILLS = ("ablation-position-only", "ablation-content-only")


class WhatAndWhere(BandClaim, name="what-and-where"):
    """Heads that need both content and position, with PoPE and with RoPE, on both tasks."""

    number = 24
    title = "Both tasks: fewer heads need both content and position with PoPE than with RoPE"
    statement = "PoPE decouples the what and the where of attention, which RoPE entangles."
    source = (
        'Gopalakrishnan et al. (2025), Decoupling the "What" and "Where" With Polar Coordinate Positional '
        "Embeddings, title and abstract; the test is ours"
    )
    prediction = "share of heads that need both, PoPE minus RoPE, mean of both tasks < 0"
    test = (
        "A head needs both if it costs more than 5 points when it attends by positions only, and when it "
        "attends by content only, by the lower end of the 95 % interval, on 2,000 held-out examples. "
        "Differences are paired by seed and averaged over tasks; a seed counts if all four runs have learned "
        "their task. Student's t over seeds."
    )
    tables = FILLS

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return {
            f"{task}/{name}": run_of(task, name, condition, scale, seed)
            for task in TASKS
            for name in ("pope", "rope")
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        by_task = [
            seen.minus(f"{task}/pope", f"{task}/rope", needing_both, only_learned=True) for task in TASKS
        ]
        yield Part(
            quantity="both tasks, PoPE minus RoPE, share of heads that need content and position",
            prediction=AtMost(0.0, "of the heads"),
            values=_mean(by_task),
        )
        for words, values in zip(TASKS.values(), by_task, strict=True):
            yield Part(
                quantity=f"{words}, PoPE minus RoPE, share of heads that need content and position",
                prediction=AtMost(0.0, "of the heads"),
                values=values,
            )


def needing_both(row: StudyRow) -> float | None:
    """Share of the heads that cost more than 5 points under either fill."""
    tables = [table for name in FILLS if (table := row.tables.get(name)) is not None]
    if len(tables) < len(FILLS):
        return None
    costly = [set(table.filter(table["low"] > LOST).select("layer", "head").rows()) for table in tables]
    return len(set.intersection(*costly)) / len(tables[0])


def _mean(values: list[Values]) -> Values:
    """The mean of several values per seed, where all are defined."""
    seeds = set.intersection(*(set(one) for one in values))
    return {seed: sum(one[seed] for one in values) / len(values) for seed in sorted(seeds)}
