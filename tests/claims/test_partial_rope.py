"""Claim 5 on rows with known answers."""

import polars as pl
import pytest
from tests.claims.made import jitter, row, rows_of

from spectrope.claims.dropout import Dropout
from spectrope.claims.partial_rope import PartialRoPE, depth

CLAIM = PartialRoPE()


def say(partial=80.0, gaps=(2.0, 30.0, 1.0), whole=(30.0, 2.0, 1.0)):
    def tell(arm, seed):
        test = 95.0 if arm == "8" else partial + 0.3 * jitter(seed)
        return {"test": test, "gaps": gaps if arm == "4" else whole}

    return tell


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "holds"),
        (say(partial=95.0), "fails"),
        (say(partial=93.1), "inconclusive"),
        (say(gaps=(30.0, 2.0, 1.0)), "fails"),  # It stays in layer 1 for every k.
    ],
)
def test_known_accuracies(tell, outcome):
    assert CLAIM.judge(rows_of(CLAIM, tell)).outcome == outcome


def test_the_place_is_the_mean_layer_weighted_by_drops():
    one = CLAIM.arms("controlled", "mini", 0)["8"]

    def dropped(*drops):
        heads = {"layer": [1, 1, 3], "head": [1, 2, 1], "low": [0.0] * 3, "high": [0.0] * 3}
        return depth(row(one, tables={"ablation": pl.DataFrame(heads | {"drop": drops})}))

    assert dropped(3.0, -2.0, 1.0) == pytest.approx(1.5)
    assert dropped(0.0, -2.0, 0.0) is None


def test_the_number_that_moves_drops_furthest_is_tested_and_deposits_are_counted():
    part = CLAIM.judge(rows_of(CLAIM, say())).findings[-1].part
    assert part.quantity == "RoPE on 4 heads minus on all, mean layer of the drops"
    assert part.prediction.tried == 3
    assert part.note.endswith("1: 6 and 0 of 6, 4: 0 and 6 of 6, 7: 6 and 0 of 6, 8: 6 and 0 of 6")


def test_ends_are_nope_and_rope_without_dropout():
    arms = CLAIM.arms("controlled", "mini", 0)
    assert list(arms) == ["0", "1", "4", "7", "8"]
    assert arms["8"] == Dropout().arms("controlled", "mini", 0)["0"]
    assert (arms["0"].model.encoding.kind, arms["0"].model.dropout) == ("nope", 0.0)
    assert arms["4"].model.encoding.groups[0].heads == 4


def test_at_the_paper_s_width_the_paper_s_numbers_are_run():
    assert list(CLAIM.arms("controlled", "paper", 0)) == ["0", "1", "2", "3", "5", "6", "13", "15", "16"]
