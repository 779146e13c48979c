"""Sections of the page: a claim with its verdicts, pictures and plan."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from spectrope.lab import Job
from spectrope.stats import holm
from spectrope.study.claim import Claim
from spectrope.study.page.cells import cell
from spectrope.study.predictions import ALPHA
from spectrope.study.rows import StudyRows
from spectrope.study.study import outstanding
from spectrope.study.verdict import ClaimVerdict

PREMISE = " (premise)"  # Behind what is predicted.


@dataclass(frozen=True)
class Picture:
    """A chart as a file beside the page.

    Args:
        path: Relative to the page.
        caption: How to read it.
    """

    path: str
    caption: str


@dataclass(frozen=True)
class Planned:
    """Completeness of a plan.

    Args:
        runs: All of it.
        untrained: Runs without a row.
        unmeasured: Runs whose row lacks a table.
    """

    runs: int
    untrained: int
    unmeasured: int

    @classmethod
    def of(cls, jobs: Sequence[Job], rows: StudyRows) -> "Planned":
        """Look up each job."""
        left = outstanding(jobs, rows)
        untrained = sum(rows.get(job.experiment) is None for job in left)
        return cls(len(jobs), untrained, len(left) - untrained)


@dataclass(frozen=True)
class ClaimSection:
    """One claim of the page.

    Args:
        claim: The claim.
        verdicts: One per condition that it is tested under.
        pictures: Its charts.
        planned: Its plan by condition.
        power: What the planned seeds can show.
        one_left_out: What becomes of the verdict without one of its seeds, by condition, where that is
            another word.
    """

    claim: Claim
    verdicts: list[ClaimVerdict]
    pictures: list[Picture]
    planned: dict[str, Planned]
    power: str
    one_left_out: dict[str, str] = field(default_factory=dict)

    @property
    def is_planned(self) -> bool:
        """Whether any of its runs are planned at this scale."""
        return any(plan.runs for plan in self.planned.values())

    def where_planned(self) -> "ClaimSection":
        """The section without the conditions under which none of its runs are planned."""
        return replace(self, verdicts=[one for one in self.verdicts if self.planned[one.condition].runs])

    @property
    def lines(self) -> list[list[str]]:
        """The table of parts that have a seed: what is predicted, the paper's number, and what each condition
        says."""
        return [[name, *self._line(name)] for name, seeds in self._seeds().items() if seeds]

    @property
    def unseen(self) -> list[str]:
        """The parts that have no seed under any condition, and what is predicted of them."""
        names = (name for name, seeds in self._seeds().items() if not seeds)
        return [f"{name} ({self._line(name)[0].replace(PREMISE, ', premise')})" for name in names]

    def _seeds(self) -> dict[str, int]:
        """Each part with the number of its seeds under the condition that has most."""
        found: dict[str, int] = {}
        for finding in (one for verdict in self.verdicts for one in verdict.findings):
            found[finding.part.quantity] = max(finding.n_seeds, found.get(finding.part.quantity, 0))
        return found

    def _line(self, name: str) -> list[str]:
        found = [
            (verdict, next((f for f in verdict.findings if f.part.quantity == name), None))
            for verdict in self.verdicts
        ]
        first = next(finding for _, finding in found if finding is not None).part
        predicted = "for comparison" if first.for_comparison else first.prediction.words()
        predicted += PREMISE * first.premise
        paper = "" if first.paper is None else f"{first.paper:.1f}"
        return [predicted, paper, *("" if one is None else cell(one, verdict.word) for verdict, one in found)]


def families(sections: Sequence[ClaimSection]) -> list[list[ClaimVerdict]]:
    """Verdicts that are corrected together: those of one plan, so that later claims do not change others."""
    by_plan: dict[str, list[ClaimVerdict]] = {}
    for section in sections:
        by_plan.setdefault(section.claim.plan_page, []).extend(section.verdicts)
    return list(by_plan.values())


def left_open(verdicts: Sequence[ClaimVerdict]) -> set[tuple[str, str]]:
    """Claims and conditions whose verdicts are not significant after Holm's correction over all decided
    headline parts."""
    tested = [v for v in verdicts if v.headline and v.word not in ("not testable here", "saturated")]
    levels = np.array([v.headline.p for v in tested if v.headline])
    adjusted = holm(levels) if len(levels) else levels
    return {
        (v.claim, v.condition)
        for v, p in zip(tested, adjusted, strict=True)
        if p > ALPHA and v.word != "undecided"
    }
