"""Claim 9 on rows with known answers."""

import numpy as np
import pytest
import torch
from tests.lab.engines.test_local import tiny
from tests.study.made import jitter, row, rows_of

from spectrope.lab.job import Job, complete
from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.extrapolation import ENCODINGS, Extrapolation, length_loss, within_arms
from spectrope.study.predictions import AtLeast
from spectrope.study.rows import StudyRow

CLAIM = Extrapolation()


ARMS = tuple(CLAIM.arms("controlled", "mini", 0))
RUNS = (0.4, -1.1, 0.9, -0.2, 1.3, -1.3)  # By which the runs of an arm differ, of mean 0.


def say(between, within, blend=0.0):
    """Loss grows with the gap over arms, and over the runs of each arm, in another order per arm."""

    def tell(arm, seed):
        place, own = ARMS.index(arm), 3 * RUNS[(seed + ARMS.index(arm)) % 6]
        loss = 40 + between * 4 * place + within * own + (blend if arm == "blend" else 0.0)
        kept = 0.95 * (100 - loss)
        return {
            "gaps": (4 * place + 20 + own, 1.0, 1.0),
            "lengths": {1.0: 95.0, 1.5: kept + 1, 2.0: kept, 4.0: kept - 1},
        }

    return tell


def outcomes(tell):
    return [finding.word for finding in CLAIM.judge(rows_of(CLAIM, tell)).findings]


def test_the_loss_is_the_part_that_longer_sequences_lose():
    (one, *_) = CLAIM.plan("controlled", "mini", (0,))
    assert length_loss(row(one, lengths={1.0: 80.0, 1.5: 80.0, 2.0: 60.0, 4.0: 40.0})) == pytest.approx(25.0)
    assert length_loss(row(one, lengths={1.0: 0.0, 1.5: 80.0})) is None
    assert length_loss(row(one, lengths={1.0: 80.0})) is length_loss(row(one, lengths={1.5: 80.0})) is None
    assert length_loss(row(one)) is None


def test_a_gap_that_foretells_the_loss_holds():
    assert outcomes(say(1.0, 1.0, blend=-60.0)) == ["reproduced", "reproduced", "reproduced"]


def test_a_gap_that_foretells_the_opposite_fails():
    assert outcomes(say(-1.0, -1.0)) == ["contradicted", "contradicted", "undecided"]


def test_arms_and_runs_of_one_arm_are_told_apart():
    assert outcomes(say(1.0, -1.0))[:2] == ["reproduced", "contradicted"]


def test_a_gap_that_says_nothing_is_inconclusive():
    def tell(arm, seed):
        found = say(1.0, 1.0)(arm, seed)
        return found | {"gaps": (5 + 5 * jitter(seed + ARMS.index(arm)), 1.0, 1.0)}

    assert outcomes(tell)[0] in ("undecided", "direction only")


def test_seeds_without_both_quantities_move_no_mean():
    x = [{seed: RUNS[seed] + 10 * arm for seed in range(6)} for arm in range(4)]
    y = [{seed: 2 * RUNS[seed] for seed in range(6)} for _ in range(4)]
    longer = [dict(values) | {6: 90.0, 7: -40.0} for values in x]
    own = within_arms(x, y, range(6))
    assert own == pytest.approx(dict.fromkeys(range(6), 1.0))
    assert within_arms(longer, y, range(8)) == pytest.approx(own)
    assert within_arms(longer, longer, range(6)) == pytest.approx(own)


def test_no_arm_outweighs_another():
    x = [dict(enumerate(RUNS)) for _ in range(4)]
    y = [{seed: size * value for seed, value in enumerate(RUNS)} for size in (1.0, 1.0, 1.0, -100.0)]
    assert np.mean(list(within_arms(x, y, range(6)).values())) == pytest.approx(0.5)


def test_a_seed_counts_once_all_its_arms_have_run():
    def tell(arm, seed):
        lost = (arm, seed) in (("nope", 14), ("rope/0.3", 16))
        return None if lost else say(1.0, 1.0, blend=-60.0)(arm, seed)

    assert [f.n_seeds for f in CLAIM.judge(rows_of(CLAIM, tell)).findings] == [4, 4, 6]


def test_arms_that_have_not_learned_are_left_out_of_a_seed():
    def tell(arm, seed):
        return say(1.0, 1.0)(arm, seed) | ({"test": 2.0, "train": 2.0} if arm == "nope" else {})

    assert [f.n_seeds for f in CLAIM.judge(rows_of(CLAIM, tell)).findings] == [6, 6, 6]


def test_runs_of_one_arm_without_a_relation_are_found_related_as_often_as_the_level_says():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(400):
        x, y = ([dict(enumerate(rng.normal(size=6))) for _ in range(8)] for _ in range(2))
        values = np.array(list(within_arms(x, y, range(6)).values()))
        found += AtLeast(0.0).weigh(values).p_reproduced <= 0.025
    assert found <= 20


def test_other_rates_of_dropout_are_runs_of_claim_4():
    ours, theirs = (claim.arms("controlled", "mini", 12) for claim in (CLAIM, Dropout()))
    assert set(ours.values()) >= {one for arm, one in theirs.items() if arm.startswith("rope")}


def test_runs_without_longer_sequences_do_not_count():
    verdict = CLAIM.judge(rows_of(CLAIM, lambda arm, seed: {}))
    assert (verdict.word, verdict.n_seeds) == ("not testable here", 0)


@pytest.mark.sampled
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_of_the_claim_has_more_positions(tmp_path, encoding):
    run = complete(Job(tiny(encoding), CLAIM.tables), tmp_path, torch.device("cpu"))
    loss = length_loss(StudyRow.of(run))
    assert loss is not None
    assert -100 <= loss <= 100
