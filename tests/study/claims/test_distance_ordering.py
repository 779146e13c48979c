"""Claim 1 on rows with known answers."""

import numpy as np
import pytest
from tests.study.made import jitter, row, rows_of, together

from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.page.headline import headline_cell
from spectrope.study.predictions import ALPHA, AtLeastEach
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


def test_rope_is_compared_with_one_rival_for_all_seeds():
    def tell(arm, seed):
        return {"test": {"rope": 95.0, "nope": 90.0 + seed % 2, "t5": 90.0}.get(arm, 20.0)}

    first = CLAIM.judge(rows_of(CLAIM, tell)).headline
    assert first.part.note.startswith("strongest rival: NoPE; RoPE 95.00 %")
    assert first.evidence.interval.estimate == pytest.approx(2.944 - (2.197 + 2.314) / 2, abs=0.01)


def test_equal_encodings_contradict_no_more_often_than_the_level():
    """Six arms of one distribution: with the best of each seed as the rival, half of these would."""
    rng = np.random.default_rng(0)
    words = []
    for _ in range(400):
        arms = rng.standard_normal((6, 6))
        margins = {str(k): dict(enumerate(arms[0] - arms[k])) for k in range(1, 6)}
        near, prediction = AtLeastEach.of_margins(0.2, "log odds", margins)
        evidence = prediction.weigh(np.array(list(margins[near].values())))
        words.append((evidence.p_reproduced <= ALPHA, evidence.p_contradicted <= ALPHA))
    reproduced, contradicted = np.mean(words, axis=0)
    assert reproduced <= 0.01
    assert contradicted <= 0.04


def test_one_rival_that_is_as_good_contradicts_whatever_the_others():
    margins = {"near": dict.fromkeys(range(6), 0.0), "far": {seed: 3.0 + 0.1 * seed for seed in range(6)}}
    for seed in range(6):
        margins["near"][seed] += 0.01 * (seed - 2.5)
    near, prediction = AtLeastEach.of_margins(0.2, "log odds", margins)
    evidence = prediction.weigh(np.array(list(margins[near].values())))
    assert near == "near"
    assert evidence.p_contradicted <= ALPHA < evidence.p_reproduced


@pytest.mark.parametrize("train", [60.0, 99.0])
def test_unfinished_training_is_named_and_leaves_the_word(train):
    verdict = CLAIM.judge(rows_of(CLAIM, say(PAPER, train)))
    assert verdict.word == "reproduced"
    assert ("RoPE 60.0 %" in verdict.headline.part.untrained) == (train < 90)
    assert ("‡" in headline_cell(verdict)) == (train < 90)


def test_a_margin_over_errors_too_few_to_count_is_a_lower_bound():
    first = CLAIM.judge(rows_of(CLAIM, say(dict.fromkeys(PAPER, 90.0) | {"rope": 98.0}))).headline
    assert first.part.limit == ""
    rows = rows_of(CLAIM, lambda arm, seed: {"test": 100.0 if arm == "rope" else 90.0})
    first = CLAIM.judge(rows).headline
    assert first.part.limit == "at least"
    assert "errors 0 and 3,600 of 36,000" in first.part.note


def test_encodings_that_never_get_there_are_told():
    found = {one.part.quantity: one.part for one in CLAIM.judge(rows_of(CLAIM, say(PAPER))).findings}
    assert (
        found["NoPE minus RoPE, time to learn"].note == "gets there: NoPE in 0 of 6 runs, RoPE in 6 of 6 runs"
    )


def test_the_time_to_learn_is_restricted_to_the_run():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    assert time_to_learn(row(one, curve=(30.0, 91.0, 95.0, 96.0))) == pytest.approx(0.5)
    assert time_to_learn(row(one, curve=(30.0, 60.0, 80.0, 89.0))) == 1.25
    assert time_to_learn(row(one, curve=(30.0, 60.0, 80.0, 91.0))) == 1.0


def test_one_seed_apart_is_inconclusive():
    close = PAPER | {"sinusoidal": 91.2}
    assert together(CLAIM.judge(rows_of(CLAIM, say(close)))) == "undecided"
