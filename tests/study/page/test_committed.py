"""The committed page has the verdicts of the committed rows."""

from pathlib import Path

import polars as pl

from spectrope.study.claim import chosen_claims
from spectrope.study.claims.tuned import tried_claims
from spectrope.study.conditions import THROWN
from spectrope.study.page.page import left_open
from spectrope.study.study import Study

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "replication.csv"


def test_the_page_has_the_verdicts_of_the_rows(committed):
    claims = [claim for claim in chosen_claims(()) if claim.kind != "toy"]
    study = Study(tuple(tried_claims(claims, committed, "mini")), tuple(THROWN), "mini", tuple(range(6)))
    verdicts = study.verdicts(committed)
    is_open = left_open(verdicts)
    found = {
        (one.claim, one.condition): (one.word, (one.claim, one.condition) in is_open)
        for one in verdicts
        if one.findings
    }
    told = pl.read_csv(PAGE, infer_schema_length=None).select("kind", "condition", "verdict", "left_open")
    assert {(kind, condition): (word, mark) for kind, condition, word, mark in told.unique().rows()} == found
