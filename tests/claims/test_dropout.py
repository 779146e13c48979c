"""Claim 4 on rows with known answers."""

import pytest
from tests.claims.made import jitter, rows_of

from spectrope.claims.dropout import Dropout

CLAIM = Dropout()


def say(gaps):
    return lambda arm, seed: {"gaps": (gaps[arm] + jitter(seed), 1.0, 1.0)}


@pytest.mark.parametrize(
    ("gaps", "outcome"),
    [
        ({"0": 40.0, "0.1": 38.0, "0.3": 35.0}, "holds"),
        ({"0": 40.0, "0.1": 38.0, "0.3": 5.0}, "fails"),
        ({"0": 40.0, "0.1": 38.0, "0.3": 30.0}, "inconclusive"),
        ({"0": 3.0, "0.1": 38.0, "0.3": 35.0}, "inconclusive"),
    ],
)
def test_known_gaps(gaps, outcome):
    assert CLAIM.judge(rows_of(CLAIM, say(gaps))).outcome == outcome


def test_the_paper_s_rate_is_the_run_of_claim_1():
    arms = CLAIM.arms("controlled", "paper", 0)
    assert [one.model.dropout for one in arms.values()] == [0.0, 0.1, 0.3]
    from spectrope.claims.distance_ordering import DistanceOrdering

    assert arms["0.1"] in DistanceOrdering().plan("controlled", "paper", (0,))
