"""The table of headlines: a line per claim with the words of its verdicts, and notes below it."""

import re
from collections import Counter
from collections.abc import Container, Sequence

from spectrope.study.claim import Claim
from spectrope.study.page.cells import effect
from spectrope.study.page.sections import ClaimSection
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study
from spectrope.study.verdict import ClaimVerdict, Part

LEFT = re.compile(r"; \d+ (of \d+ planned runs to do|runs? left out).*")  # What a reason counts at its end.


def headline_table(
    sections: Sequence[ClaimSection], conditions: Sequence[str], open_words: Container[tuple[str, str]]
) -> list[list[str]]:
    """A line per claim: what is claimed, the paper's sentence and its place, the paper's number, what
    decides, and the words."""
    lines = []
    for section in sections:
        claim, verdicts = section.claim, {verdict.condition: verdict for verdict in section.verdicts}
        cells = [
            headline_cell(verdicts[name], open_words) if name in verdicts else "–" for name in conditions
        ]
        quote = f" “{claim.quote}”" * bool(claim.quote)
        entry = f"{claim.number}. [{claim.title}](#{claim.kind}){quote} ({claim.source})"
        headlines = (verdict.headline for verdict in section.verdicts)
        decides = next((f"{one.part.quantity}: {_predicted(one.part)}" for one in headlines if one), "")
        lines.append([entry, claim.paper, decides, *cells])
    return lines


def headline_cell(verdict: ClaimVerdict, open_words: Container[tuple[str, str]] = ()) -> str:
    """The word of a verdict, with the effect that decides it."""
    if verdict.word == "not testable here":
        return verdict.word
    finding = verdict.headline
    assert finding is not None
    mark = "†" if (verdict.claim, verdict.condition) in open_words else ""
    mark += "‡" if finding.part.untrained else ""
    return f"**{verdict.word}**{mark} {effect(finding)}"


def headline_notes(sections: Sequence[ClaimSection]) -> list[str]:
    """A line per claim: what its effects alone do not tell, condition by condition."""
    lines = []
    for section in sections:
        told: dict[str, list[str]] = {}  # Conditions of which the same is to be told.
        for verdict in section.verdicts:
            note = headline_note(verdict, section.one_left_out.get(verdict.condition, ""))
            told.setdefault(note, []).append(f"`{verdict.condition}`")
        notes = " ".join(f"{' and '.join(names)}: {note}." for note, names in told.items() if note)
        if notes:
            lines.append(f"{section.claim.number}. [{section.claim.title}](#{section.claim.kind}). {notes}")
    return lines


def without_one_seed(study: Study, claim: Claim, verdict: ClaimVerdict, rows: StudyRows) -> str:
    """How often a verdict is another one without one of its seeds; empty if never, and if none is given."""
    if verdict.word == "not testable here":
        return ""
    words = study.words_without_one(claim, verdict, rows).values()
    others = Counter(word for word in words if word != verdict.word)
    told = ", ".join(f"{word} in {n}" for word, n in others.items())
    return f"without one of its seeds: {told} of {len(words)} cases" if told else ""


def headline_note(verdict: ClaimVerdict, one_left_out: str = "") -> str:
    """Why a verdict decides nothing; else what is to be known beside its effect; empty if nothing is.

    Args:
        verdict: It.
        one_left_out: What becomes of it without one of its seeds, where that is another word.
    """
    if verdict.word == "not testable here":
        reason = LEFT.sub("", verdict.reason)
        return f"not testable here: {reason}{_exploratory(verdict, reason)}"
    finding = verdict.headline
    assert finding is not None
    unfinished = f"correct answers on training examples: {finding.part.untrained}"
    notes = (unfinished * bool(finding.part.untrained), finding.part.beside, one_left_out, _against(verdict))
    return "; ".join(note for note in notes if note)


def _exploratory(verdict: ClaimVerdict, reason: str) -> str:
    """The effect of the part that would decide, and its name where the reason has that of another one."""
    finding = verdict.headline
    if finding is None or not finding.evidence:
        return ""
    named = any(one.part.quantity in reason for one in verdict.findings)
    name = f" for {finding.part.quantity}" * (named and finding.part.quantity not in reason)
    return f" (exploratory: {effect(finding)}{name})"


def _predicted(part: Part) -> str:
    return f"predicted {part.prediction.words()}"


def _against(verdict: ClaimVerdict) -> str:
    """How many of the claim's other predictions are contradicted; empty if none is."""
    told = [f for f in verdict.findings if not (f.headline or f.part.premise or f.part.for_comparison)]
    others = [finding for finding in told if finding.enough]
    n = sum(finding.word == "contradicted" for finding in others)
    return f"{n} of {len(others)} other prediction{'s' * (len(others) != 1)} contradicted" if n else ""
