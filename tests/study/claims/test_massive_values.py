"""Claim 25 on rows with known coordinates."""

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of

from spectrope.lab.job import Job, complete
from spectrope.study.claims.massive_values import MassiveValues, largest_ratio, massive_share
from spectrope.study.rows import StudyRow

CLAIM = MassiveValues()


def spectrum(queries: list[float], keys: list[float]) -> pl.DataFrame:
    n = len(queries)
    return pl.DataFrame(
        {"layer": [0] * n, "head": range(n), "massive_queries": queries, "massive_keys": keys}
    )


def test_the_larger_ratio_of_queries_and_keys_counts():
    (experiment, _) = CLAIM.plan("controlled", "mini", (0,))
    one = row(experiment, tables={"spectrum": spectrum([2.0, 1.5], [1.0, 6.0])})
    assert largest_ratio(one) == 4.0
    assert massive_share(one) == 0.5


def test_rows_that_are_older_than_these_columns_have_no_value():
    (experiment, _) = CLAIM.plan("controlled", "mini", (0,))
    older = row(experiment, tables={"spectrum": spectrum([2.0], [1.0]).select("layer", "head")})
    assert (largest_ratio(older), massive_share(older)) == (None, None)
    assert largest_ratio(row(experiment)) is None


@pytest.mark.parametrize(
    ("difference", "word"), [(1.0, "reproduced"), (-1.0, "contradicted"), (0.02, "undecided")]
)
def test_known_differences(difference, word):
    def tell(arm, seed):
        ratio = 3.0 + (difference + 0.1 * jitter(seed)) * (arm == "rope")
        return {"tables": {"spectrum": spectrum([ratio, ratio], [1.0, 1.0])}}

    assert CLAIM.judge(rows_of(CLAIM, tell)).word == word


def test_a_run_has_the_columns(tmp_path):
    kept = StudyRow.of(complete(Job(tiny("rope"), ("spectrum",)), tmp_path, torch.device("cpu")))
    assert largest_ratio(StudyRow.read(kept.record())) == pytest.approx(largest_ratio(kept), rel=1e-5)
    assert 1.0 <= largest_ratio(kept) <= tiny("rope").model.head_dim
