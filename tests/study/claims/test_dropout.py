"""Claim 4 on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of

from spectrope.study.claims.dropout import Dropout
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

CLAIM = Dropout()


def say(gaps):
    return lambda arm, seed: {"gaps": (gaps[arm] + jitter(seed), 1.0, 1.0)}


@pytest.mark.parametrize(
    ("gaps", "outcome"),
    [
        ({"0": 40.0, "0.1": 38.0, "0.3": 35.0}, "reproduced"),
        ({"0": 40.0, "0.1": 38.0, "0.3": 5.0}, "contradicted"),
        ({"0": 3.0, "0.1": 38.0, "0.3": 35.0}, "undecided"),  # Nothing that could be removed.
    ],
)
def test_known_gaps(gaps, outcome):
    assert CLAIM.judge(rows_of(CLAIM, say(gaps), seeds=12)).word == outcome


def test_a_deposit_in_half_of_the_runs_is_lost_or_comes_and_goes():
    def with_deposits(lost):
        def tell(arm, seed):
            has = seed % 2 == 0 if arm == "0" else not lost and seed % 3 != 0
            deeper = 40.0 if seed % 6 in (1, 2) else 1.0
            return {"gaps": (40.0 if has else 1.0, deeper, 1.0)}

        return CLAIM.judge(rows_of(CLAIM, tell, seeds=18))

    assert with_deposits(lost=True).word == "contradicted"
    assert with_deposits(lost=False).word == "undecided"
    note = with_deposits(lost=True).findings[1].part.note
    without = "without dropout there is one in 9 of 18 runs, in any layer in 12 of 18 runs"
    assert note == f"{without}; of those judged, in any layer in 3 of 9 runs"


def test_runs_with_dropout_are_planned_for_seeds_with_a_deposit_to_lose():
    def tell(arm, seed):
        return {"gaps": (40.0 if seed == 8 else 1.0, 1.0, 1.0)} if arm == "0" else None

    def planned(rows):
        jobs = CLAIM.jobs("controlled", "mini", range(12), rows)
        return sorted((job.experiment.seed, job.experiment.model.dropout) for job in jobs)

    assert planned(None) == [(seed, 0.0) for seed in range(6, 12)]
    without = [(seed, 0.0) for seed in range(6, 15)]  # Three more, since one in six is less than is likely.
    assert planned(rows_of(CLAIM, tell)) == sorted([*without, (8, 0.1), (8, 0.3)])


def test_seeds_are_searched_until_enough_of_them_have_a_deposit():
    def planned(rows):
        jobs = CLAIM.jobs("controlled", "mini", range(24), rows)
        return [job.experiment.seed for job in jobs if job.experiment.model.dropout == 0.0]

    def found(every, seeds, learned=True):
        return rows_of(
            CLAIM,
            lambda arm, seed: (
                {"gaps": (40.0 if seed % every == 0 else 1.0, 1.0, 1.0), "test": 99.0 if learned else 5.0}
                if arm == "0"
                else None
            ),
            seeds=seeds,
        )

    assert planned(None) == list(range(6, 18))  # Four are wanted, and one in three is likely.
    assert planned(found(1, 12)) == list(range(6, 10))
    assert planned(found(6, 12)) == list(range(6, 24))  # Two more, of those to come.
    assert planned(found(100, 24)) == list(range(6, 30))
    assert planned(found(1, 24, learned=False)) == list(range(6, 30))


def test_seeds_after_the_last_that_is_wanted_do_not_count():
    def tell(arm, seed):
        return {"gaps": (40.0 if arm == "0" or seed >= 18 else 1.0, 1.0, 1.0)}

    rows = rows_of(CLAIM, tell, seeds=72)
    verdict = CLAIM.judge(rows, seeds=range(72))
    assert verdict.word == "contradicted"
    assert set(verdict.findings[0].part.values) == set(range(6, 18))


def test_a_seed_that_has_yet_to_run_lets_a_later_one_count_and_is_told():
    def tell(arm, seed):
        return None if seed == 7 else {"gaps": (40.0 if arm == "0" else 1.0, 1.0, 1.0)}

    study = Study((CLAIM,), ("controlled",), "mini", (0, 1, 2))
    (verdict,) = study.verdicts(rows_of(CLAIM, tell, seeds=72))
    assert set(verdict.findings[0].part.values) == {6, *range(8, 13)}
    assert verdict.reason == "2 of 2 parts undecided; 1 of 19 planned runs to do"


def test_a_run_in_another_precision_is_made_up_for_by_a_further_seed():
    def tell(arm, seed):
        other = {"precision": "bfloat16"} if seed == 8 else {}
        return {"gaps": (40.0 if arm == "0" else 1.0, 1.0, 1.0), **other}

    rows = rows_of(CLAIM, tell, seeds=12)
    jobs = CLAIM.jobs("controlled", "mini", range(36), rows)
    assert {job.experiment.seed for job in jobs} == set(range(6, 13))
    assert all(rows.covers(job) for job in jobs)
    verdict = CLAIM.judge(rows, seeds=range(36))
    assert set(verdict.findings[0].part.values) == {6, 7, *range(9, 13)}
    assert len(verdict.left_out) == 3


def test_the_precision_of_later_seeds_moves_no_verdict():
    def tell(arm, seed):
        return {
            "gaps": (40.0 if arm == "0" else 1.0, 1.0, 1.0),
            "precision": "float32" if seed < 12 else "bfloat16",
        }

    verdict = CLAIM.judge(rows_of(CLAIM, tell, seeds=36), seeds=range(36))
    assert set(verdict.findings[0].part.values) == set(range(6, 12))
    assert verdict.left_out == ()


def test_power_is_told_of_as_many_seeds_as_are_judged():
    assert CLAIM.power(range(72), StudyRows()).startswith("12 seeds show")
    assert CLAIM.power(range(24), StudyRows()).startswith("4 seeds can only be inconclusive")


def test_the_paper_s_rate_is_the_run_of_claim_1():
    arms = CLAIM.arms("controlled", "paper", CLAIM.explored)
    assert [one.model.dropout for one in arms.values()] == [0.0, 0.1, 0.3]
    from spectrope.study.claims.distance_ordering import DistanceOrdering

    assert arms["0.1"] in DistanceOrdering().plan("controlled", "paper", (0,))
