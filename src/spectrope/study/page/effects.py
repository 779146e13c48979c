"""Every part of every claim as a table: effects with intervals, which other analyses can start from."""

from collections.abc import Container, Iterable

import polars as pl
from polars import selectors as cs

from spectrope.study.claim import Claim
from spectrope.study.verdict import ClaimVerdict, PartResult

DIGITS = 10  # Significant ones; processors differ in the last of 16.
KEYS = {"claim": pl.Int64, "kind": pl.String, "scale": pl.String, "condition": pl.String}
SCHEMA = {
    **KEYS,
    "claim_verdict": pl.String,
    "left_open": pl.Boolean,
    "part": pl.String,
    "role": pl.String,
    "predicted": pl.String,
    "chosen_from": pl.Int64,
    "unit": pl.String,
    "paper": pl.Float64,
    "estimate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "level": pl.Float64,
    "limit": pl.String,
    "training_unfinished": pl.String,
    "untestable": pl.String,
    "seeds": pl.Int64,
    "p_reproduced": pl.Float64,
    "p_direction": pl.Float64,
    "p_contradicted": pl.Float64,
}


def effects(
    judged: Iterable[tuple[Claim, ClaimVerdict]], open_words: Container[tuple[str, str]] | None = None
) -> pl.DataFrame:
    """A row per claim, condition and part, in the order of the page.

    `claim_verdict` is the word of the claim under that condition, whatever its part; `left_open` says that
    Holm's correction over the page leaves it open (its dagger), and is null without `open_words`. `role` is
    "headline" for the part that decides the claim, "premise" for one without which the claim is not
    testable, "comparison" for one of which nothing is predicted, which has no p-values, else "appendix".
    `training_unfinished` says which arms had not finished training (its double dagger). `limit` is "at
    least" or "at most" where an arm errs too seldom for its odds to be measured, and "not measured" where
    both do. Estimates and p-values are null there, and with fewer than two seeds; p-values also where all
    seeds tie exactly, or where `untestable` says why the part decides nothing. p-values are one-sided. Where
    `chosen_from` exceeds 1, the estimate is that of the quantity which came out largest, or nearest, of so
    many, and the p-values allow for that choice; they are not corrected for the number of parts. Numbers
    have ten significant digits.

    Args:
        judged: Claims with their verdicts.
        open_words: Names and conditions of the verdicts that are left open; None where no page was judged.
    """
    rows = [
        {
            "claim": claim.number,
            "kind": claim.kind,
            "scale": verdict.scale,
            "condition": verdict.condition,
            "claim_verdict": verdict.word,
            "left_open": None if open_words is None else (verdict.claim, verdict.condition) in open_words,
            **_part(finding),
        }
        for claim, verdict in judged
        for finding in verdict.findings
    ]
    return pl.DataFrame(rows, schema=SCHEMA).with_columns(cs.float().round_sig_figs(DIGITS))


def _role(finding: PartResult) -> str:
    if finding.part.premise:
        return "premise"
    if finding.part.for_comparison:
        return "comparison"
    return "headline" if finding.headline else "appendix"


def _part(finding: PartResult) -> dict[str, str | float | int | None]:
    part = finding.part
    evidence = None if part.limit == "not measured" else finding.evidence
    interval = None if evidence is None else evidence.interval
    p_values = {} if evidence is None or part.untestable else finding.p_values
    return {
        "part": part.quantity,
        "role": _role(finding),
        "predicted": "" if part.for_comparison else part.prediction.words(),
        "chosen_from": part.prediction.candidates,
        "unit": part.prediction.unit,
        "paper": part.paper,
        "estimate": interval and interval.estimate,
        "low": interval and interval.low,
        "high": interval and interval.high,
        "level": interval and interval.level,
        "limit": part.limit,
        "training_unfinished": part.untrained,
        "untestable": part.untestable,
        "seeds": finding.n_seeds,
        "p_reproduced": p_values.get("reproduced"),
        "p_direction": p_values.get("direction only"),
        "p_contradicted": p_values.get("contradicted"),
    }
