"""Claim 9 on rows with known answers."""

import pytest
import torch
from tests.claims.made import jitter, row, rows_of
from tests.sweeps.test_local import tiny

from spectrope.claims.extrapolation import ENCODINGS, Extrapolation, length_loss
from spectrope.sweeps.job import Job, complete
from spectrope.sweeps.rows import Row

CLAIM = Extrapolation()


def say(slope, blend=-5.0):
    """Loss grows with the gap, by rank, over encodings and over seeds."""

    def tell(arm, seed):
        gap = 4.0 * ENCODINGS.index(arm) + seed
        loss = 40 + slope * gap + (blend if arm == "blend" else 0.0)
        return {
            "gaps": (gap, 1.0, 1.0),
            "lengths": {1.0: 95.0, 1.5: 95.0 - loss + 1, 2.0: 95.0 - loss, 4.0: 95.0 - loss - 1},
        }

    return tell


def test_the_loss_is_that_of_the_mean_over_longer_sequences():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    assert length_loss(row(one, lengths={1.0: 95.0, 1.5: 80.0, 2.0: 60.0, 4.0: 40.0})) == pytest.approx(35.0)
    assert length_loss(row(one)) is None


def test_a_gap_that_foretells_the_loss_holds():
    verdict = CLAIM.judge(rows_of(CLAIM, say(1.0, blend=-30.0)))
    assert [finding.outcome for finding in verdict.findings][1] == "holds"
    assert verdict.findings[1].part.note == "one value per encoding, not per seed"
    assert verdict.findings[2].outcome == "holds"


def test_a_gap_that_foretells_the_opposite_fails():
    verdict = CLAIM.judge(rows_of(CLAIM, say(-1.0)))
    assert verdict.outcome == "fails"
    assert [finding.outcome for finding in verdict.findings][:2] == ["fails", "fails"]


def test_a_gap_that_says_nothing_is_inconclusive():
    def tell(arm, seed):
        found = say(1.0, blend=-30.0)(arm, seed)
        return found | {"gaps": (5 + 5 * jitter(seed + ENCODINGS.index(arm)), 1.0, 1.0)}

    assert CLAIM.judge(rows_of(CLAIM, tell)).findings[0].outcome == "inconclusive"


def test_runs_without_longer_sequences_do_not_count():
    verdict = CLAIM.judge(rows_of(CLAIM, lambda arm, seed: {}))
    assert (verdict.outcome, verdict.n_seeds) == ("inconclusive", 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_of_the_claim_has_more_positions(tmp_path, encoding):
    run = complete(Job(tiny(encoding), CLAIM.tables), tmp_path, torch.device("cpu"))
    loss = length_loss(Row.of(run))
    assert loss is not None
    assert -100 <= loss <= 100
