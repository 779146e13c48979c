"""Claim 5 on rows with known answers."""

import pytest
from tests.claims.made import jitter, rows_of

from spectrope.claims.distance_ordering import DistanceOrdering
from spectrope.claims.partial_rope import PartialRoPE

CLAIM = PartialRoPE()


def say(partial=80.0, gaps=(2.0, 30.0, 1.0)):
    def tell(arm, seed):
        test = 95.0 if arm == "8" else partial + 0.3 * jitter(seed)
        return {"test": test, "gaps": gaps if arm == "3" else (1.0, 1.0, 1.0)}

    return tell


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "holds"),
        (say(partial=95.0), "fails"),
        (say(partial=93.1), "inconclusive"),
        (say(gaps=(30.0, 30.0, 1.0)), "inconclusive"),  # Layer 1 has one too; six of six are too few to fail.
    ],
)
def test_known_accuracies(tell, outcome):
    assert CLAIM.judge(rows_of(CLAIM, tell)).outcome == outcome


def test_both_ends_are_runs_of_claim_1():
    arms, others = CLAIM.arms("controlled", "mini", 0), DistanceOrdering().arms("controlled", "mini", 0)
    assert (arms["0"], arms["8"]) == (others["nope"], others["rope"])
    assert arms["3"].model.encoding.groups[0].heads == 3


def test_at_the_paper_s_width_the_paper_s_numbers_are_run():
    assert list(CLAIM.arms("controlled", "paper", 0)) == ["0", "1", "2", "3", "5", "6", "13", "15", "16"]
