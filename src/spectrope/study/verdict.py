"""Verdict of a claim, decided by its headline part."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from spectrope.study.predictions import ALPHA, Evidence, Prediction, Values, Within
from spectrope.study.quantities import Seen

Word = Literal["saturated", "reproduced", "direction only", "contradicted", "undecided", "not testable here"]
Limit = Literal["", "at least", "at most", "not measured"]
WORDS: dict[Word, str] = {  # In the order in which they are tried, but for the last, which comes before all.
    "saturated": "too few errors, or too few correct answers, to determine the effect; also exact ties",
    "reproduced": "the interval lies beyond the smallest effect of interest",
    "direction only": "the interval excludes 0 in the predicted direction, but not the smallest effect of "
    "interest",
    "contradicted": "the interval lies below no effect, or within plus or minus the smallest one of interest",
    "undecided": "none of these",
    "not testable here": "for the reason given",
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One prediction of a claim, with the values of the seeds.

    Args:
        quantity: What is measured, such as "RoPE minus ALiBi, held-out accuracy".
        prediction: What is predicted of it.
        values: One per seed.
        paper: The same quantity in the paper, in the same unit, where it gives one.
        premise: Whether the claim has nothing to say unless this holds.
        for_comparison: Whether the claim predicts nothing of it: it has an interval, and no p-values.
        saturated: Whether its arms cannot be distinguished, because both make too few errors, or too few
            correct answers.
        limit: "at least" or "at most" where one arm errs too seldom for its odds to be measured, "not
            measured" where both do; else empty.
        untrained: The arms whose training was not finished, in words; empty if none.
        untestable: Why it decides nothing, whatever its values; empty if it may.
        note: What a reader must know of it.
        beside: A result that the table of claims shows beside this one, because the effect alone would
            mislead; empty if there is none.
    """

    quantity: str
    prediction: Prediction
    values: Values
    paper: float | None = None
    premise: bool = False
    for_comparison: bool = False
    saturated: bool = False
    limit: Limit = ""
    untrained: str = ""
    untestable: str = ""
    note: str = ""
    beside: str = ""

    @property
    def tied(self) -> bool:
        """Whether every seed shows exactly no effect."""
        return set(self.values.values()) == {self.prediction.null}


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """A part with its interval and its verdict.

    Args:
        part: The part.
        evidence: None with fewer than two seeds.
        enough: Whether it has the seeds that a verdict takes, no planned one waits for a run, and nothing
            else makes it untestable.
        headline: Whether it decides the claim; the word of any other part is not corrected for their number.
    """

    part: Part
    evidence: Evidence | None
    enough: bool
    headline: bool = False

    @classmethod
    def of(
        cls, part: Part, minimum: int, waiting: Collection[int] = (), *, headline: bool = False
    ) -> "PartResult":
        """Weigh a part.

        Args:
            part: The part.
            minimum: Seeds below which it decides nothing.
            waiting: Planned seeds that wait for a run; without a value of each of them it decides nothing.
            headline: Whether it decides its claim.
        """
        values = np.array(list(part.values.values()))
        evidence = part.prediction.weigh(values) if len(values) >= 2 else None
        enough = not part.untestable and len(values) >= minimum and set(waiting) <= part.values.keys()
        return cls(part=part, evidence=evidence, enough=enough, headline=headline)

    @property
    def n_seeds(self) -> int:
        """Seeds that it rests on."""
        return len(self.part.values)

    @property
    def word(self) -> Word:
        """The first that applies."""
        if self.evidence is None or not self.enough:
            return "not testable here"
        if self.part.saturated or self.part.tied:
            return "saturated"
        words: list[Word] = [word for word, p in self.p_values.items() if p <= ALPHA]
        return words[0] if words else "undecided"

    @property
    def p_values(self) -> dict[Word, float]:
        """Of each word that rejects something, in the order in which they are tried; none for exact ties, and
        where nothing is predicted."""
        one = self.evidence
        if one is None or self.part.tied or self.part.for_comparison:
            return {}
        return {
            "reproduced": one.p_reproduced,
            "direction only": one.p_direction,
            "contradicted": one.p_contradicted,
        }

    @property
    def p(self) -> float:
        """Of its word; 1 where that rejects nothing."""
        return self.p_values.get(self.word, 1.0)


@dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """Verdict on a claim under one condition.

    Args:
        claim: Its name.
        condition: Whose confounds the runs keep.
        scale: Their size; the verdict speaks for no other.
        word: That of its headline part, or "not testable here".
        reason: Why, in a few words.
        findings: Part by part.
        left_out: Rows that exist but do not count.
    """

    claim: str
    condition: str
    scale: str
    word: Word
    reason: str
    findings: tuple[PartResult, ...]
    left_out: tuple[str, ...] = ()

    @property
    def headline(self) -> PartResult | None:
        """The part that decides it; None where rows do not tell which parts there are."""
        return next((finding for finding in self.findings if finding.headline), None)

    @property
    def n_seeds(self) -> int:
        """Seeds of the headline part."""
        return self.headline.n_seeds if self.headline else 0


def decide(
    claim: str,
    condition: str,
    scale: str,
    parts: Sequence[Part],
    seen: Seen,
    minimum: int,
    headline: str | None = None,
    untestable: str = "",
    waiting: Collection[int] = (),
) -> ClaimVerdict:
    """Judge a claim by one part, which was named in advance; the others have intervals but decide nothing.
    Each verdict is decided at a one-sided level of 2.5 %. There is one decision per claim and condition, so
    no correction is applied here; the page marks verdicts that are not significant after correction for their
    number.

    Args:
        claim: Its name.
        condition: Whose confounds the runs keep.
        scale: Their size.
        parts: What it predicts.
        seen: The rows that there are.
        minimum: Seeds below which a part decides nothing.
        headline: Quantity of the part that decides; None takes the first that is no premise.
        untestable: Why the claim cannot be tested by such runs, whatever they show.
        waiting: Planned seeds that wait for a run; a part without a value of each of them decides nothing.
    """
    named = [part.quantity for part in parts if not part.premise and headline in (None, part.quantity)]
    findings = tuple(
        PartResult.of(part, minimum, waiting, headline=not part.premise and part.quantity in named[:1])
        for part in parts
    )
    word, reason = _whole(findings, seen, minimum, untestable, set(waiting))
    n_lost = len(seen.left_out)
    reason += f"; {n_lost} run{'s' * (n_lost != 1)} left out" if n_lost else ""
    return ClaimVerdict(
        claim=claim,
        condition=condition,
        scale=scale,
        word=word,
        reason=reason,
        findings=findings,
        left_out=seen.left_out,
    )


def _whole(
    findings: Sequence[PartResult], seen: Seen, minimum: int, untestable: str, waiting: set[int]
) -> tuple[Word, str]:
    refused: Word = "not testable here"
    deciding = next((finding for finding in findings if finding.headline), None)
    if seen.rows and not findings:
        return refused, "no difference that is worth explaining"
    if not seen.rows or not any(finding.n_seeds for finding in findings):
        return refused, seen.withdrawn or ("no complete seed yet" if seen.rows else "not run")
    if untestable:
        return refused, untestable
    if deciding is None:
        return refused, "the existing rows do not determine the headline part"
    if not (deciding.enough or deciding.part.untestable):
        return refused, _too_few(deciding, minimum, waiting)
    if bad := next((f for f in findings if f.part.premise and f.word != "reproduced"), None):
        return refused, f"its premise {_told(bad, minimum)}: {bad.part.quantity}"
    if deciding.part.untestable:
        return refused, deciding.part.untestable
    return deciding.word, _meaning(deciding)


def _meaning(finding: PartResult) -> str:
    """What the word of a part says of its interval; a bound has no direction in which it could fail."""
    sides: dict[Word, str] = {
        "reproduced": "the interval lies on the predicted side of the bound",
        "contradicted": "the interval lies on the other side of the predicted bound",
    }
    is_bound = finding.part.prediction.null is None and not isinstance(finding.part.prediction, Within)
    return sides.get(finding.word, WORDS[finding.word]) if is_bound else WORDS[finding.word]


def _told(premise: PartResult, minimum: int) -> str:
    if premise.n_seeds == 0:
        return "has no run that counts"
    if not premise.enough:
        lacks = premise.n_seeds < minimum
        return f"has {premise.n_seeds} of at least {minimum} seeds" if lacks else "waits for planned runs"
    return "fails" if premise.word == "contradicted" else "is not shown to hold"


def _too_few(deciding: PartResult, minimum: int, waiting: set[int]) -> str:
    if deciding.n_seeds < minimum:
        beside = f" ({deciding.part.beside})" if deciding.part.beside else ""
        return f"{deciding.n_seeds} of at least {minimum} seeds for {deciding.part.quantity}{beside}"
    n = len(waiting - deciding.part.values.keys())
    return f"{n} planned seed{'s wait' if n > 1 else ' waits'} for runs of {deciding.part.quantity}"
