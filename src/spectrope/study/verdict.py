"""From the parts of a claim to its verdict."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spectrope.stats import Outcome, holm
from spectrope.study.predictions import ALPHA, Evidence, Prediction, Values
from spectrope.study.quantities import Seen


@dataclass(frozen=True, kw_only=True)
class Part:
    """One prediction of a claim, and what the seeds say.

    Args:
        quantity: What is measured, such as "RoPE minus ALiBi, held-out accuracy".
        prediction: What is predicted of it.
        values: One per seed.
        paper: The same quantity in the paper, in the same unit, where it gives one.
        premise: Whether the claim has nothing to say unless this holds.
        note: What a reader must know of it.
    """

    quantity: str
    prediction: Prediction
    values: Values
    paper: float | None = None
    premise: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """A part with its outcome.

    Args:
        part: The part.
        evidence: None with fewer than two seeds.
        p_fails: Its p-value of "the prediction is true", after Holm's correction over the claim's parts.
        outcome: Of this part.
        enough: Whether it has the seeds that a verdict takes.
    """

    part: Part
    evidence: Evidence | None
    p_fails: float
    outcome: Outcome
    enough: bool

    @property
    def n_seeds(self) -> int:
        """Seeds that it rests on."""
        return len(self.part.values)

    @property
    def spared(self) -> bool:
        """Whether it would fail by itself, and Holm's correction leaves it open."""
        alone = self.enough and self.evidence is not None and self.evidence.p_fails <= ALPHA
        return alone and self.outcome == "inconclusive"


@dataclass(frozen=True, kw_only=True)
class ClaimVerdict:
    """What some runs say of a claim under one condition.

    Args:
        claim: Its name.
        condition: Whose confounds the runs keep.
        scale: Their size; the verdict speaks for no other.
        outcome: "holds" if every part does, "fails" if one does not, else "inconclusive".
        reason: Why, in a few words.
        findings: Part by part.
        left_out: Rows that exist but do not count.
    """

    claim: str
    condition: str
    scale: str
    outcome: Outcome
    reason: str
    findings: tuple[PartResult, ...]
    left_out: tuple[str, ...] = ()

    @property
    def n_seeds(self) -> int:
        """Seeds of the part that has fewest, among those that the outcome rests on."""
        failing = [f for f in self.findings if f.outcome == "fails" and not f.part.premise]
        deciding = failing if self.outcome == "fails" else self.findings
        return min((finding.n_seeds for finding in deciding), default=0)


def decide(
    claim: str, condition: str, scale: str, parts: Sequence[Part], seen: Seen, minimum: int
) -> ClaimVerdict:
    """Judge each part, then the claim.

    A claim holds if every part does, which needs no correction for their number (an intersection-union
    test); it fails if any part fails, so those p-values are Holm's, over all parts but premises. Each is
    decided at one-sided 2.5 %, which for means says on which side of the smallest effect of interest the
    95 % interval lies. A part with fewer seeds than the minimum decides nothing.
    """
    enough = [len(part.values) >= minimum for part in parts]
    evidence = [_weighed(part) for part in parts]
    raw = [weighed.p_fails if weighed and ok else 1.0 for weighed, ok in zip(evidence, enough, strict=True)]
    premise, adjusted = np.array([part.premise for part in parts], bool), np.array(raw)
    adjusted[~premise] = holm(adjusted[~premise])
    findings = tuple(
        PartResult(
            part=part, evidence=weighed, p_fails=float(p), outcome=_outcome(weighed, float(p), ok), enough=ok
        )
        for part, weighed, p, ok in zip(parts, evidence, adjusted, enough, strict=True)
    )
    outcome, reason = _whole(findings, seen, minimum)
    n_lost = len(seen.left_out)
    reason += f"; {n_lost} run{'s' * (n_lost != 1)} left out" if n_lost else ""
    return ClaimVerdict(
        claim=claim,
        condition=condition,
        scale=scale,
        outcome=outcome,
        reason=reason,
        findings=findings,
        left_out=seen.left_out,
    )


def _weighed(part: Part) -> Evidence | None:
    return part.prediction.weigh(np.array(list(part.values.values()))) if len(part.values) >= 2 else None


def _outcome(evidence: Evidence | None, p_fails: float, enough: bool) -> Outcome:
    if evidence is None or not enough:
        return "inconclusive"
    if evidence.p_holds <= ALPHA:
        return "holds"
    return "fails" if p_fails <= ALPHA else "inconclusive"


def _whole(findings: Sequence[PartResult], seen: Seen, minimum: int) -> tuple[Outcome, str]:
    if findings and not any(finding.n_seeds for finding in findings):
        return "inconclusive", "no complete seed yet" if seen.rows else "no run yet"
    if missing := next((f for f in findings if f.part.premise and f.outcome != "holds"), None):
        return "inconclusive", f"its premise {_told(missing)}: {missing.part.quantity}"
    parts = [finding for finding in findings if not finding.part.premise]
    if not parts:
        return "inconclusive", "no difference that is worth explaining"
    counts = Counter(finding.outcome for finding in parts)
    failed, undecided = counts["fails"], counts["inconclusive"]
    few = [f for f in parts if not f.enough]
    if failed:
        lack = f"; {len(few)} {'have' if len(few) > 1 else 'has'} fewer than {minimum} seeds" if few else ""
        return "fails", _share(failed, len(parts), "fails" if failed == 1 else "fail") + lack
    if few:
        worst = min(few, key=lambda f: f.n_seeds)
        return "inconclusive", f"{worst.n_seeds} of at least {minimum} seeds for {worst.part.quantity}"
    if undecided:
        return "inconclusive", _share(undecided, len(parts), "undecided")
    return "holds", f"all {len(parts)} parts hold" if len(parts) > 1 else "its one part holds"


def _share(some: int, of: int, what: str) -> str:
    return f"its one part {what}" if of == 1 else f"{some} of {of} parts {what}"


def _told(finding: PartResult) -> str:
    return "fails" if finding.outcome == "fails" else "is not shown"
