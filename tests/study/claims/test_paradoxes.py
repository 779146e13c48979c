"""Claim 18 on rows with known answers."""

import pytest
from tests.study.made import rows_of

from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.extrapolation import Extrapolation
from spectrope.study.claims.paradoxes import RATES, Paradoxes

CLAIM = Paradoxes()
OWN = (0.4, -1.1, 0.9, -0.2, 1.3, -1.3)  # By which the runs of a rate differ.
LEVELS = {"distance/rope": 95.0, "distance/nope": 60.0, "counting/rope": 70.0, "counting/nope": 80.0}


def say(slope):
    """Errors that follow the gap of the run, or go against it."""

    def tell(arm, seed):
        own = OWN[seed % 6]
        rate = arm.removeprefix("rope/")
        if rate != arm:
            return {"gaps": (30 + 20 * float(rate) + own, 1.0, 1.0), "test": 90 - slope * own}
        return {"gaps": (30 + own, 1.0, 1.0), "test": LEVELS[arm] - slope * own}

    return tell


@pytest.mark.parametrize(("slope", "word"), [(2.0, "reproduced"), (-2.0, "contradicted")])
def test_gaps_that_go_with_errors_or_against_them(slope, word):
    first, ahead, behind = CLAIM.judge(rows_of(CLAIM, say(slope), seeds=12)).findings
    assert first.word == word
    assert (ahead.word, behind.word) == ("reproduced", "reproduced")


def test_runs_of_which_fewer_than_half_err_are_saturated():
    def tell(arm, seed):
        errs = arm == "rope/0.3" and seed % 2
        return say(2.0)(arm, seed) | ({} if errs else {"test": 100.0})

    verdict = CLAIM.judge(rows_of(CLAIM, tell, seeds=12))
    assert verdict.word == "saturated"
    assert verdict.headline.part.beside == "6 of 36 runs err at all, none at dropout 0, 0.1"


def test_its_runs_are_those_of_other_claims():
    arms = CLAIM.arms("controlled", "mini", 3)
    assert arms["rope/0"] == Dropout().arms("controlled", "mini", 3)["rope/0"]
    others = Extrapolation().arms("controlled", "mini", 3)
    assert arms["rope/0.3"] == others["rope/0.3"]
    assert arms[f"rope/{RATES[1]:g}"] == arms["distance/rope"] == others["rope"]
