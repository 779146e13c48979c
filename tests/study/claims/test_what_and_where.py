"""Claim 24 on rows with known drops."""

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import row, rows_of

from spectrope.lab.job import Job, complete
from spectrope.study.claims.what_and_where import FILLS, WhatAndWhere, needing_both
from spectrope.study.rows import StudyRow

CLAIM = WhatAndWhere()


def drops(costly: set[int], n: int = 10) -> pl.DataFrame:
    """Drops of one layer of heads, some of which cost more than 5 points."""
    found = [9.0 if head in costly else 5.5 for head in range(n)]
    return pl.DataFrame(
        {
            "layer": [0] * n,
            "head": list(range(n)),
            "drop": found,
            "low": [drop - 1 for drop in found],
            "high": [drop + 1 for drop in found],
        }
    )


def tables(positions: set[int], content: set[int]) -> dict[str, pl.DataFrame]:
    return dict(zip(FILLS, (drops(positions), drops(content)), strict=True))


def say(pope: int, rope: int, jittered: bool = True, test: float = 95.0):
    def tell(arm, seed):
        n = (pope if arm.endswith("pope") else rope) + (seed % 2 if jittered and "pope" in arm else 0)
        both = set(range(n))
        return {"test": test, "tables": tables(both | {8}, both | {9})}

    return tell


def test_heads_that_cost_under_both_fills_are_counted():
    experiment = CLAIM.plan("controlled", "mini", (0,))[0]
    assert needing_both(row(experiment, tables=tables({0, 1, 2}, {1, 2, 3}))) == 0.2
    assert needing_both(row(experiment, tables=tables({0}, {1}))) == 0.0
    assert needing_both(row(experiment, tables={FILLS[0]: drops({0})})) is None


@pytest.mark.parametrize(
    ("tell", "word"),
    [
        (say(1, 5), "reproduced"),
        (say(5, 1), "contradicted"),
        (say(1, 5, test=40.0), "not testable here"),
    ],
)
def test_known_shares(tell, word):
    assert CLAIM.judge(rows_of(CLAIM, tell)).word == word


def test_tasks_are_averaged_by_seed():
    def tell(arm, seed):
        n = {"distance/pope": 1, "distance/rope": 5, "counting/pope": 4, "counting/rope": 2}[arm]
        return {"tables": tables(set(range(n + seed % 2 * (arm == "distance/pope"))), set(range(8)))}

    headline = CLAIM.judge(rows_of(CLAIM, tell)).headline
    assert list(headline.part.values.values()) == pytest.approx([-0.1, -0.05] * 3)


@pytest.mark.parametrize("encoding", ["rope", "pope"])
def test_a_run_has_the_tables(encoding, tmp_path):
    run = complete(Job(tiny(encoding), FILLS), tmp_path, torch.device("cpu"))
    kept = StudyRow.of(run)
    assert set(FILLS) <= set(kept.tables)
    assert 0 <= needing_both(kept) <= 1
