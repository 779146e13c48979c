"""Claim 26 on rows with known accuracies."""

import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of

from spectrope.lab.job import Job, complete
from spectrope.study.claims.dropped_positions import DroppedPositions, longer_accuracy
from spectrope.study.rows import StudyRow

CLAIM = DroppedPositions()


def test_only_one_arm_drops_its_positions():
    arms = CLAIM.arms("controlled", "mini", 100)
    assert {name: one.training.drop_positions for name, one in arms.items()} == {"dropped": 0.1, "kept": None}
    assert {one.encoding_name for one in arms.values()} == {"rope"}


@pytest.mark.parametrize(
    ("longer", "word"), [(90.0, "reproduced"), (40.0, "contradicted"), (70.1, "undecided")]
)
def test_known_accuracies(longer, word):
    def tell(arm, seed):
        accuracy = longer + jitter(seed) if arm == "dropped" else 70.0
        return {"lengths": {1.0: 95.0, 2.0: accuracy, 4.0: 0.0}}

    assert CLAIM.judge(rows_of(CLAIM, tell)).word == word


def test_a_run_has_the_lengths(tmp_path):
    (one, _) = CLAIM.plan("controlled", "mini", (0,))
    assert longer_accuracy(row(one)) is None
    kept = StudyRow.of(complete(Job(tiny("rope"), ("lengths",)), tmp_path, torch.device("cpu")))
    assert 0.0 <= longer_accuracy(kept) <= 100.0
