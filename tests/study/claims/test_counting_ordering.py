"""Claim 2, in both readings, on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of, together

from spectrope.study.claims.counting_ordering import CountingBiases, CountingTable, CountingText

TABLE = {"rope": 69.4, "nope": 77.7, "t5": 77.5, "sinusoidal": 70.0, "random": 60.0, "alibi": 50.0}
TEXT = TABLE | {"rope": 85.0}
ALIKE = dict.fromkeys(TABLE, 99.5)


def say(final):
    def tell(arm, seed):
        test = final[arm] + 0.5 * jitter(seed)
        return {"test": test, "train": test + (10.0 if arm == "random" and test < 99 else 0.2)}

    return tell


@pytest.mark.parametrize(
    ("claim", "final", "outcome"),
    [
        (CountingText(), TEXT, "reproduced"),
        (CountingText(), TABLE, "contradicted"),
        (CountingTable(), TABLE, "reproduced"),
        (CountingTable(), TEXT, "contradicted"),
        (CountingText(), ALIKE, "saturated"),
        (CountingTable(), ALIKE, "saturated"),
        (CountingBiases(), TABLE, "reproduced"),
        (CountingBiases(), TEXT, "reproduced"),
        (CountingBiases(), ALIKE, "saturated"),
        (CountingBiases(), TABLE | {"alibi": 75.0}, "contradicted"),
        (CountingBiases(), TABLE | {"t5": 70.0}, "contradicted"),
    ],
)
def test_the_readings_part_at_rope(claim, final, outcome):
    assert together(claim.judge(rows_of(claim, say(final)))) == outcome


def test_readings_share_their_runs():
    table, biases = (
        one.plan("controlled", "mini", range(6, 12)) for one in (CountingTable(), CountingBiases())
    )
    assert table == biases
    own = CountingText().plan("controlled", "mini", range(6))  # On seeds that its wording has not seen.
    assert set(own) == {one for one in table if one.encoding_name in ("rope", "sinusoidal")}


@pytest.mark.parametrize(("scale", "epochs"), [("mini", 12), ("small", 20), ("paper", 150)])
def test_task_2_is_trained_until_it_is_learned(scale, epochs):
    assert {one.training.epochs for one in CountingText().plan("controlled", scale, (0,))} == {epochs}


def test_seeds_that_disagree_are_inconclusive():
    def tell(arm, seed):
        return {**say(TABLE)(arm, seed), **({"test": 75.0 + 6 * jitter(seed)} if arm == "rope" else {})}

    assert together(CountingTable().judge(rows_of(CountingTable(), tell))) == "undecided"
