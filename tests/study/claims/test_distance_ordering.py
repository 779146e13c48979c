"""Claim 1 on rows with known answers."""

import pytest
from tests.study.made import jitter, row, rows_of, together

from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.quantities import speed, time_to_learn

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
    assert together(verdict) == "reproduced"
    shown, *_ = [finding for finding in verdict.findings if finding.part.paper is not None]
    assert shown.part.quantity == "RoPE minus NoPE, held-out accuracy"
    assert shown.part.paper == pytest.approx(2.533 + 3.314, abs=0.01)
    assert shown.evidence.interval.estimate == pytest.approx(2.526 + 3.317, abs=0.1)


def test_an_encoding_that_is_behind_is_not_first():
    verdict = CLAIM.judge(rows_of(CLAIM, say(dict.fromkeys(PAPER, 95.0) | {"rope": 90.0})))
    assert verdict.word == "contradicted"


@pytest.mark.parametrize("accuracy", [100.0, 0.0])
def test_encodings_that_all_err_nowhere_or_everywhere_cannot_be_told_apart(accuracy):
    rows = rows_of(CLAIM, lambda arm, seed: {"test": accuracy})
    assert CLAIM.judge(rows).word == "saturated"


def test_the_runner_up_of_each_seed_is_what_rope_is_compared_with():
    def tell(arm, seed):
        return {"test": 90.0 if arm == ("nope" if seed % 2 else "t5") else 95.0 if arm == "rope" else 20.0}

    first = CLAIM.judge(rows_of(CLAIM, tell)).headline
    assert set(first.part.values.values()) == {min(first.part.values.values())}
    assert first.evidence.interval.estimate == pytest.approx(2.944 - 2.197, abs=0.01)


def test_the_time_to_learn_is_restricted_to_the_run():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    assert time_to_learn(row(one, curve=(30.0, 91.0, 95.0, 96.0))) == pytest.approx(0.5)
    assert time_to_learn(row(one, curve=(30.0, 60.0, 80.0, 89.0))) == 1.0


def test_one_seed_apart_is_inconclusive():
    close = PAPER | {"sinusoidal": 91.2}
    assert together(CLAIM.judge(rows_of(CLAIM, say(close)))) == "undecided"
