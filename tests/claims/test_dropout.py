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
        ({"0": 3.0, "0.1": 38.0, "0.3": 35.0}, "inconclusive"),  # Nothing that could be removed.
    ],
)
def test_known_gaps(gaps, outcome):
    assert CLAIM.judge(rows_of(CLAIM, say(gaps), seeds=12)).outcome == outcome


def test_a_deposit_in_half_of_the_runs_is_lost_or_comes_and_goes():
    def with_deposits(lost):
        def tell(arm, seed):
            has = seed % 2 == 0 if arm == "0" else not lost and seed % 3 != 0
            return {"gaps": (40.0 if has else 1.0, 1.0, 1.0)}

        return CLAIM.judge(rows_of(CLAIM, tell, seeds=18))

    assert with_deposits(lost=True).outcome == "fails"
    assert with_deposits(lost=False).outcome == "inconclusive"
    note = with_deposits(lost=True).findings[1].part.note
    counted = "a deposit in {} of 18 runs that learned the task"
    assert note == f"in any layer, without dropout {counted.format(9)}, with it {counted.format(0)}"


def test_the_paper_s_rate_is_the_run_of_claim_1():
    arms = CLAIM.arms("controlled", "paper", CLAIM.explored)
    assert [one.model.dropout for one in arms.values()] == [0.0, 0.1, 0.3]
    from spectrope.claims.distance_ordering import DistanceOrdering

    assert arms["0.1"] in DistanceOrdering().plan("controlled", "paper", (0,))
