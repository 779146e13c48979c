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


def words(tell, condition="controlled"):
    verdict = CLAIM.judge(rows_of(CLAIM, tell, condition=condition), condition)
    assert verdict.headline is verdict.findings[0]
    return {one.part.quantity: one.word for one in verdict.findings}


RUNS = "RoPE, Task 1, runs with a deposit in the first half of the layers"


@pytest.mark.parametrize(
    ("rope", "half", "thirds", "gap"),
    [
        ((40.0, 2.0, 1.0), "reproduced", "reproduced", "reproduced"),
        ((2.0, 1.0, 1.0), "contradicted", "contradicted", "contradicted"),
        ((2.0, 40.0, 1.0), "contradicted", "reproduced", "contradicted"),
        ((15.0, 2.0, 1.0), "contradicted", "contradicted", "reproduced"),  # A gap, no deposit by the rule.
    ],
)
def test_a_deposit_is_an_event_at_two_depths(rope, half, thirds, gap):
    found = words(say(rope=rope))
    told = (
        found[RUNS],
        found[RUNS.replace("half", "two thirds")],
        found["RoPE, Task 1, gap in shallow layers"],
    )
    assert told == (half, thirds, gap)


@pytest.mark.parametrize(
    ("others", "word"),
    [((2.0, 1.0, 30.0), "reproduced"), ((30.0, 1.0, 1.0), "contradicted"), ((10.0, 1.0, 1.0), "undecided")],
)
def test_no_other_head_stands_out(others, word):
    assert words(say(others=others))["NoPE, Task 2, gap in shallow layers"] == word


def test_runs_count_whether_they_have_learned_or_not():
    verdict = CLAIM.judge(rows_of(CLAIM, say(test=40.0)))
    found = {one.part.quantity: one.n_seeds for one in verdict.findings}
    assert (found[RUNS], found["RoPE, Task 1, gap in shallow layers"]) == (6, 0)


def test_deposits_are_counted_layer_by_layer():
    verdict = CLAIM.judge(rows_of(CLAIM, say(others=(25.0, 1.0, 1.0))))
    notes = {finding.part.quantity: finding.part.note for finding in verdict.findings}
    told = "in any layer, a deposit in 6 of 6 runs (by layer 6, 0, 0)"
    assert notes["NoPE, Task 1, gap in shallow layers"] == told


def test_the_public_code_s_runs_are_judged_by_its_own_ablation():
    def tell(arm, seed):
        own = (40.0 if arm == "distance/rope" else 2.0) + jitter(seed)
        return {"gaps": (2.0, 1.0, 1.0), "theirs": (own, 1.0, 1.0)}

    assert words(tell, "released")["RoPE, Task 1, gap in shallow layers"] == "reproduced"
    assert words(tell)["RoPE, Task 1, gap in shallow layers"] == "contradicted"
    tables = {job.tables for job in CLAIM.jobs("released", "mini", (0,))}
    assert tables == {("ablation", "ablation-unrestored-all")}


@pytest.mark.parametrize(("depth", "layers"), [(1, [0]), (3, [0]), (4, [0, 1]), (6, [0, 1, 2])])
def test_shallow_layers_are_the_first_half(depth, layers):
    assert list(shallow(depth)) == layers
