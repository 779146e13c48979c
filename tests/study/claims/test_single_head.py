"""Claim 3 on rows with known answers."""

import pytest
from tests.study.made import jitter, rows_of

from spectrope.study.claims.single_head import SingleHead
from spectrope.study.quantities import shallow

CLAIM = SingleHead()


def say(rope=(40.0, 2.0, 1.0), others=(2.0, 1.0, 1.0), test=95.0):
    def tell(arm, seed):
        gaps = rope if arm == "distance/rope" else others
        return {"gaps": tuple(gap + jitter(seed) for gap in gaps), "test": test}

    return tell


@pytest.mark.parametrize(
    ("tell", "outcome"),
    [
        (say(), "holds"),
        (say(rope=(2.0, 1.0, 1.0)), "fails"),
        (say(rope=(2.0, 40.0, 1.0)), "fails"),  # Not in a shallow layer.
        (say(others=(30.0, 1.0, 1.0)), "fails"),
        (say(others=(2.0, 1.0, 30.0)), "holds"),  # Deeper layers are another matter.
        (say(rope=(15.0, 2.0, 1.0)), "inconclusive"),  # A gap, but no deposit by the rule.
        (say(others=(10.0, 1.0, 1.0)), "inconclusive"),
    ],
)
def test_known_gaps(tell, outcome):
    assert CLAIM.judge(rows_of(CLAIM, tell)).outcome == outcome


def test_models_that_have_not_learned_show_no_deposit_but_its_absence():
    verdict = CLAIM.judge(rows_of(CLAIM, say(test=40.0)))
    assert (verdict.outcome, verdict.n_seeds) == ("inconclusive", 0)
    assert [finding.n_seeds for finding in verdict.findings] == [0, 0, *11 * [6]]
    assert verdict.findings[2].part.note == "in any layer, a deposit in 0 of 0 runs that learned the task"


def test_deposits_are_counted():
    verdict = CLAIM.judge(rows_of(CLAIM, say(others=(25.0, 1.0, 1.0))))
    notes = {finding.part.quantity: finding.part.note for finding in verdict.findings}
    told = "in any layer, a deposit in 6 of 6 runs that learned the task"
    assert notes["NoPE, Task 1, gap in shallow layers"] == told


def test_the_public_code_s_runs_are_judged_by_its_own_ablation():
    def tell(arm, seed):
        own = (40.0 if arm == "distance/rope" else 2.0) + jitter(seed)
        return {"gaps": (2.0, 1.0, 1.0), "theirs": (own, 1.0, 1.0)}

    assert CLAIM.judge(rows_of(CLAIM, tell, condition="released"), "released").outcome == "holds"
    assert CLAIM.judge(rows_of(CLAIM, tell)).outcome == "fails"
    tables = {job.tables for job in CLAIM.jobs("released", "mini", (0,))}
    assert tables == {("ablation", "ablation-unrestored-all")}


@pytest.mark.parametrize(("depth", "layers"), [(1, [0]), (3, [0]), (4, [0, 1]), (6, [0, 1, 2])])
def test_shallow_layers_are_the_first_half(depth, layers):
    assert list(shallow(depth)) == layers
