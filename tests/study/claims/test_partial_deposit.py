"""Claim 5's deposit on rows with known answers."""

import pytest
from tests.study.made import row, rows_of, together

from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.partial_deposit import PartialDeposit, depth

CLAIM = PartialDeposit()
FIRST, SECOND, NONE = (30.0, 2.0, 1.0), (2.0, 30.0, 1.0), (1.0, 1.0, 1.0)


def say(moved=SECOND, whole=FIRST, at="4"):
    """Gaps where one number of heads moves the deposit, and elsewhere."""
    return lambda arm, seed: {"gaps": moved if arm == at else whole}


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "reproduced"),
        (say(moved=FIRST), "saturated"),  # It stays in layer 0 for every k.
        (say(whole=SECOND), "undecided"),  # There is none in layer 0 that could move.
        (say(moved=NONE), "saturated"),  # No head stands out at that k.
    ],
)
def test_known_places(tell, outcome):
    assert together(CLAIM.judge(rows_of(CLAIM, tell, seeds=12))) == outcome


def test_no_number_of_heads_may_move_it_for_the_claim_to_fail():
    def tell(arm, seed):
        deep = seed % 2 == 0 and arm == "1"
        return {"gaps": SECOND if deep else FIRST}

    verdict = CLAIM.judge(rows_of(CLAIM, tell))
    assert together(verdict) == "undecided"
    assert (
        verdict.findings[-1].part.quantity == "RoPE on some of the heads minus on all, mean layer of the gaps"
    )


def test_models_that_have_not_learned_have_no_place():
    rows = rows_of(CLAIM, lambda arm, seed: {"gaps": SECOND, "test": 20.0} if arm == "4" else {"gaps": FIRST})
    assert CLAIM.judge(rows).headline.word == "saturated"  # What is left does not move at all.


def test_the_place_is_the_mean_layer_weighted_by_gaps():
    one = CLAIM.arms("controlled", "mini", 0)["8"]
    assert depth(row(one, gaps=(30.0, -20.0, 10.0))) == pytest.approx(0.5)
    assert depth(row(one, gaps=(6.0, -20.0, 3.0))) is None


def test_deposits_are_counted_and_full_rope_is_the_run_of_claim_4():
    part = CLAIM.judge(rows_of(CLAIM, say())).findings[-1].part
    assert part.quantity == "RoPE on some of the heads minus on all, mean layer of the gaps"
    assert part.prediction.tried == 7
    assert part.note.endswith(
        "3: 6 and 0 of 6, 4: 0 and 6 of 6, 5: 6 and 0 of 6, 6: 6 and 0 of 6, 7: 6 and 0 of 6, 8: 6 and 0 of 6"
    )
    assert CLAIM.arms("controlled", "mini", 6)["8"] == Dropout().arms("controlled", "mini", 6)["rope/0"]
