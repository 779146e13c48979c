"""Claim 1 on rows with known answers."""

import pytest
from tests.study.made import jitter, row, rows_of

from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.quantities import speed

CLAIM = DistanceOrdering()
PAPER = {"rope": 92.6, "sinusoidal": 85.0, "random": 60.0, "alibi": 30.0, "nope": 3.5, "t5": 10.0}


def say(final, train=99.0):
    def tell(arm, seed):
        test = final[arm] + jitter(seed) * (arm == "rope")
        return {"test": test, "train": train, "curve": (0.4 * test, 0.8 * test, test)}

    return tell


def test_speed_is_the_mean_accuracy_over_epochs():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    assert speed(row(one, curve=(30.0, 60.0, 90.0))) == pytest.approx(60.0)


def test_the_paper_s_own_order_holds():
    verdict = CLAIM.judge(rows_of(CLAIM, say(PAPER)))
    assert verdict.word == "reproduced"
    (shown,) = [finding for finding in verdict.findings if finding.part.paper is not None]
    assert shown.part.quantity == "RoPE minus NoPE, held-out accuracy"
    assert shown.part.paper == pytest.approx(89.13)
    assert shown.evidence.interval.estimate == pytest.approx(89.1)


def test_all_encodings_alike_fail():
    verdict = CLAIM.judge(rows_of(CLAIM, say(dict.fromkeys(PAPER, 99.0))))
    assert verdict.word == "contradicted"
    assert {finding.word for finding in verdict.findings} == {"contradicted"}


def test_one_seed_apart_is_inconclusive():
    close = PAPER | {"sinusoidal": 90.4}
    assert CLAIM.judge(rows_of(CLAIM, say(close))).word == "undecided"
