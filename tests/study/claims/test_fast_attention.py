"""Claim 17 on rows with known answers."""

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of

from spectrope.attention.bounded import Bounded
from spectrope.lab.job import Job, complete
from spectrope.study.claims.fast_attention import FastAttention, exponent, served
from spectrope.study.rows import StudyRow

CLAIM = FastAttention()


def planned(fast: int, power: float = 1.0) -> pl.DataFrame:
    """Plans of four heads at two lengths, of which some are fast."""
    heads = [
        (length, head, "polynomial" if head < fast else "exact")
        for length in (100, 1600)
        for head in range(4)
    ]
    return pl.DataFrame(
        [
            {"length": n, "layer": 0, "head": head, "choice": choice, "cost_estimate": float(n) ** power}
            for n, head, choice in heads
        ]
    )


def say(fast=4, power=1.0, cost=1.0):
    def tell(arm, seed):
        test = 99.0 - (cost if arm == "bounded" else 0.0) + 0.1 * jitter(seed)
        return {"test": test, "tables": {"attention-plan": planned(fast, power + 0.01 * jitter(seed))}}

    return tell


def test_shares_and_exponents_are_those_of_the_table():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    with_plans = row(one, tables={"attention-plan": planned(3, 1.2)})
    assert served(with_plans) == 0.75
    assert exponent(with_plans) == pytest.approx(1.2)
    assert exponent(row(one, tables={"attention-plan": planned(0)})) is None
    assert served(row(one)) is None
    assert exponent(row(one)) is None


@pytest.mark.parametrize(
    ("tell", "outcomes"),
    [
        (say(), ["reproduced"] * 3),
        (say(fast=1), ["contradicted", "reproduced", "reproduced"]),
        (say(power=1.9), ["reproduced", "direction only", "reproduced"]),
        (say(cost=30.0), ["reproduced", "reproduced", "contradicted"]),
    ],
)
def test_known_plans(tell, outcomes):
    verdict = CLAIM.judge(rows_of(CLAIM, tell))
    assert [found.word for found in verdict.findings] == outcomes
    assert verdict.word == outcomes[0]


def test_logits_are_bounded_in_one_arm_and_only_that_one_is_planned():
    arms = CLAIM.arms("controlled", "mini", 7)
    assert arms["bounded"].model.attention == Bounded.Config(reach=1.0)
    assert CLAIM.measured("bounded", arms["bounded"]) == ("attention-plan",)
    assert CLAIM.measured("rope", arms["rope"]) == ()
    assert arms["rope"].encoding_name == "rope"


def test_a_run_has_the_table(tmp_path):
    run = complete(Job(tiny("bounded"), ("attention-plan",)), tmp_path, torch.device("cpu"))
    table = run.frame("attention-plan")
    assert table["length"].unique().sort().to_list() == [65_536, 1_048_576]
    assert len(table) == 2 * tiny("bounded").model.n_layers * tiny("bounded").model.n_heads
    kept = StudyRow.of(run)
    assert served(kept) == pytest.approx((table["choice"] != "exact").mean())
    assert 0.9 < exponent(kept) < 1.1
