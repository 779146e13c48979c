"""P1 to P5 on rows with known answers."""

import polars as pl
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.claims.test_intrinsic_deposit import EVEN, GATHERED
from tests.study.made import jitter, row, rows_of, together

from spectrope.lab.job import Job, complete
from spectrope.spectral.kernel import rope_kernel
from spectrope.study.claims.contraction import ContractionClaim
from spectrope.study.claims.early_learning import (
    EarlyLearning,
    in_growth,
    kernel_rank,
    tangent_ratio,
    uncontracted,
)
from spectrope.study.claims.intrinsic_deposit import IntrinsicDeposit
from spectrope.study.rows import StudyRow

CLAIM = EarlyLearning()
BASES = ("10", "30", "100", "300", "1000", "10000", "100000")


def start(tangent, newton):
    return pl.DataFrame(
        {
            "tangent_largest": [2 * tangent, 2 * tangent],
            "tangent_plain_largest": [2.0, 2.0],
            "newton_largest": [newton, 0.1],
            "newton_plain_largest": [1.0, 1.0],
        }
    )


def growth(heads):
    return pl.DataFrame([{"layer": 0, "head": h, "energy": e} for h, e in enumerate(heads)])


def say(tangent=0.5, newton=1.5, slope=-1.0, others=20.0, rope=GATHERED, additive=GATHERED):
    """Speeds that fall with the base if the slope is negative; growth by descent from a small start."""

    def tell(arm, seed):
        if arm.startswith("counting"):
            return {"test": 60.0 + jitter(seed) + others * (arm != "counting/rope")}
        place = BASES.index(arm) if arm in BASES else 0
        heads = {"rope/sgd/small": rope, "additive/sgd/small": additive}.get(arm, EVEN)
        tables = {"start": start(tangent + 0.01 * jitter(seed), newton), "head_growth": growth(heads)}
        return {"test": 70.0 + 4 * slope * place + 0.5 * jitter(seed), "tables": tables}

    return tell


@pytest.mark.parametrize(
    ("tell", "failing"),
    [
        (say(), None),
        (say(tangent=1.2), "P1"),
        (say(slope=1.0), "P2"),
        (say(others=-5.0), "P3"),
        (say(newton=0.7), "P4"),
        (say(rope=EVEN), "P5"),
        (say(additive=EVEN), "P5"),
    ],
)
def test_each_prediction_can_fail(tell, failing):
    verdict = CLAIM.judge(rows_of(CLAIM, tell))
    assert together(verdict) == ("reproduced" if failing is None else "contradicted")
    failed = {f.part.quantity[:2] for f in verdict.findings if f.word == "contradicted"}
    assert failed == (set() if failing is None else {failing})


def test_a_kernel_that_is_not_known_of_every_head_has_no_ratio():
    table = start(0.5, 1.5).with_columns(tangent_largest=pl.Series([1.0, None]))
    found = row(CLAIM.arms("controlled", "mini", 6)["rope"], tables={"start": table})
    assert tangent_ratio(found) is None
    assert uncontracted(found) == 0.5


def test_the_rank_of_the_kernel_is_that_of_the_dense_matrix_over_the_lags_of_the_task():
    arms = CLAIM.arms("controlled", "mini", 0)
    ranks = []
    for arm in BASES:
        one = arms[arm]
        values = torch.linalg.eigvalsh(
            rope_kernel(one.model.encoding.schedule.frequencies(16), 19).dense()
        ).clamp(min=0)
        shares = values / values.sum()
        expected = torch.special.entr(shares).sum().exp().item()
        assert kernel_rank(row(one)) == pytest.approx(expected)
        ranks.append(expected)
    assert ranks == sorted(ranks, reverse=True)


def test_runs_are_shared_with_other_claims():
    plan = set(CLAIM.plan("controlled", "mini", (0,)))
    assert set(ContractionClaim().arms("controlled", "mini", CLAIM.explored).values()) <= plan
    assert len(plan & set(IntrinsicDeposit().plan("controlled", "mini", (0,)))) == 4
    jobs = CLAIM.jobs("controlled", "mini", (0,))
    assert len(plan) == len(jobs) == 15
    assert {job.experiment for job in jobs} == plan


def test_a_trained_network_has_ratios_and_growth(tmp_path):
    run = complete(Job(tiny(), ("start", "head_growth")), tmp_path, torch.device("cpu"))
    found = StudyRow.of(run)
    assert 0.1 < tangent_ratio(found) < 10
    assert 1 / tiny().model.n_heads <= in_growth(found) <= 1.0
    bare = row(tiny())
    assert tangent_ratio(bare) is uncontracted(bare) is in_growth(bare) is None
