"""Effects of parts of a claim as cells of tables."""

from spectrope.study.predictions import LEVEL
from spectrope.study.verdict import PartResult, Word

MOST_DIGITS = 6  # Behind the point.


def effect(finding: PartResult) -> str:
    """Estimate, interval, unit and seeds of a part; seeds that all agree have no interval."""
    assert finding.evidence is not None
    interval = finding.evidence.interval
    estimate, low, high = (number(finding, x) for x in (interval.estimate, interval.low, interval.high))
    if interval.low * interval.high > 0:  # An end that is not 0 must not be printed as 0.
        low, high = (number(finding, end, apart=True) for end in (interval.low, interval.high))
    if finding.part.limit == "not measured":
        return (
            f"not measured: both arms are almost always right, or almost always wrong, n = {finding.n_seeds}"
        )
    limit = f"{finding.part.limit} " if finding.part.limit else ""
    if interval.low == interval.high:
        same = "tied" if finding.part.tied else f"{estimate} {finding.part.prediction.unit}"
        return f"{same} in each of {finding.n_seeds} seeds"
    level = "" if interval.level == LEVEL else f"; {100 * interval.level:.1f} % interval"
    return f"{limit}{estimate} [{low} to {high}{level}] {finding.part.prediction.unit}, n = {finding.n_seeds}"


def measured(finding: PartResult) -> str:
    """The effect of a part and what training it had; empty without an interval."""
    if finding.evidence is None:
        return ""
    unfinished = f"; training unfinished: {finding.part.untrained}" * bool(finding.part.untrained)
    note = f"; {finding.part.note}" * bool(finding.part.note)
    return f"{effect(finding)}{unfinished}{note}"


def number(finding: PartResult, value: float, *, apart: bool = False) -> str:
    """A value of a part in as many digits as its unit deserves, or as tell it apart from 0."""
    digits = 1 if finding.part.prediction.unit == "points" else 2
    while apart and digits < MOST_DIGITS and round(value, digits) == 0:
        digits += 1
    return f"{round(value, digits) + 0.0:.{digits}f}"  # Adding 0 takes the sign from -0.


def cell(finding: PartResult, word: Word) -> str:
    """Estimate and interval as the table of parts shows them; that which decides has the verdict's word."""
    told = (
        finding.part.note,
        f"training unfinished: {finding.part.untrained}" * bool(finding.part.untrained),
        f"not testable here: {finding.part.untestable}" * bool(finding.part.untestable),
    )
    note = "".join(f"; {one}" for one in told if one)
    if finding.evidence is None:
        return f"{finding.n_seeds} seed{'s' * (finding.n_seeds != 1)}" + note * bool(finding.n_seeds)
    decided = f" **{word}**" if finding.headline and word != "not testable here" else ""
    return f"{effect(finding)}{decided}{note}"
