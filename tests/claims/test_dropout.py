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
    assert CLAIM.judge(rows_of(CLAIM, say(gaps), seeds=8)).outcome == outcome


def test_the_unit_is_a_seed_with_a_deposit_without_dropout():
    def tell(arm, seed):
        has = seed % 2 == 0 or arm == "0.3"
        return {"gaps": (40.0 if has else 1.0, 1.0, 1.0)}

    verdict = CLAIM.judge(rows_of(CLAIM, tell, seeds=12))
    assert [list(finding.part.values) for finding in verdict.findings] == [[6, 8, 10, 12, 14, 16]] * 2
    assert verdict.findings[0].part.note.startswith("without dropout 6 of 12 have one; at this rate, in any")


def test_the_paper_s_rate_is_the_run_of_claim_1():
    arms = CLAIM.arms("controlled", "paper", 0)
    assert [one.model.dropout for one in arms.values()] == [0.0, 0.1, 0.3]
    from spectrope.claims.distance_ordering import DistanceOrdering

    assert arms["0.1"] in DistanceOrdering().plan("controlled", "paper", (0,))
