"""Sentences of the page say what the rows say, and no more."""

from dataclasses import replace

import pytest
from tests.study.made import jitter, row

from spectrope.study.claim import chosen_claims
from spectrope.study.claims.confounds import Confounds
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.claims.tuned import DistanceOrderingTuned, experiments, grid
from spectrope.study.page.findings import findings
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

STUDY = Study(tuple(chosen_claims(())), ("controlled", "described", "released"), "mini", tuple(range(6)))
SEEDS = range(6, 12)


def sentences(rows):
    return findings(STUDY, StudyRows.of(rows))


def ordering(condition, accuracies, curve=lambda name: (50.0, 99.0)):
    """Rows of claim 1: held-out accuracies by encoding, 90 otherwise."""
    return [
        row(one, test=accuracies.get(name, 90.0) + 0.1 * jitter(seed) * (name == "alibi"), curve=curve(name))
        for seed in SEEDS
        for name, one in DistanceOrdering().arms(condition, "mini", seed).items()
    ]


def fast(name):
    return (95.0, 95.0, 95.0, 95.0) if name == "rope" else (50.0, 50.0, 95.0, 95.0)


def test_without_rows_nothing_is_said():
    assert sentences([]) == []


def test_rope_first_tells_errors_and_what_the_other_conditions_show():
    rows = ordering("controlled", {"rope": 100.0, "sinusoidal": 96.0}, fast)
    rows += ordering("described", {"rope": 95.0}) + ordering("released", {"random": 99.0})
    (told,) = sentences(rows)
    first = "**Among the encodings of claim 1, RoPE is first and fastest on Task 1 under `controlled`.**"
    assert told.startswith(first)
    assert (
        "It is 4.0 points ahead of absolute, the nearest in log odds: RoPE errs on 0 of 36,000 answers"
        in told
    )
    assert "absolute on 1,440." in told
    assert "by 25 % of the steps, the next encoding by 75 %" in told
    assert "Under `described` it leads: +5.0 points against" in told
    assert "Under `released` it falls behind: -9.0 points against random, the strongest rival" in told
    assert "rate of its own" not in told


def test_a_lead_of_models_that_did_not_fit_their_training_examples_says_so():
    rows = ordering("controlled", {"rope": 100.0, "sinusoidal": 96.0}, fast)
    rows += [replace(one, facts=one.facts | {"train_accuracy": 0.7}) for one in ordering("described", {})]
    (told,) = sentences(rows)
    assert "Under `described`, where RoPE answers only 70.0 % of its training examples, it" in told


def test_at_best_rates_the_nearest_encoding_and_errors_are_reported():
    rows = ordering("controlled", {"rope": 99.0, "sinusoidal": 90.0}, fast)
    first = experiments(DistanceOrdering(), "controlled", "mini", 0)
    rows += [row(trial, test=50.0) for one in first.values() for trial in grid(one)]
    claim = DistanceOrderingTuned(StudyRows.of(rows))
    rows += [
        row(one, test={"rope": 99.9}.get(name, 99.0))
        for seed in range(12, 18)
        for name, one in claim.arms("controlled", "mini", seed).items()
    ]
    (told,) = sentences(rows)
    assert (
        "With a learning rate of its own for each encoding, the nearest is absolute, 0.9 points behind: RoPE "
        "errs on 36 of 36,000 answers, absolute on 360." in told
    )


@pytest.mark.parametrize("other", [{"rope": 80.0}, {}])
def test_rope_behind_or_no_faster_is_not_called_first(other):
    assert sentences(ordering("controlled", other)) == []


def masks(alone, released=None, again=None):
    """NoPE on Task 1: with the mask, without it, under `released`, and under that with the mask."""
    values = {"controlled": 80.0, "R1": alone, "R2": 60.0, "released": released, "without R1": again}
    return [
        row(one, test=value + jitter(seed) * (setting == "controlled"))
        for seed in SEEDS
        for arm, one in Confounds().arms("released", "mini", seed).items()
        if (setting := arm.rpartition("/")[2]) in values and arm.startswith("distance/nope/")
        if (value := values[setting]) is not None
    ]


def test_the_mask_is_told_with_the_switches_that_were_tried():
    (told,) = sentences(masks(20.0))
    assert "reaches 80.0 %, and without the mask (R1 alone) 20.0 %: -60.0 [" in told
    assert "Of the others tried alone there (R2) none brings it below 60.0 %." in told
    assert "With all other switches" not in told


def test_the_mask_added_to_the_public_code_is_told_too():
    (told,) = sentences(masks(20.0, 19.0, 70.0))
    assert "the mask moves it from 19.0 to 70.0 %: +51.0 [+51.0 to +51.0] points, 6 seeds." in told


AT_MID = replace(STUDY, scale="mid")


def deep(condition, gaps, accuracies, seeds=6, theirs=None):
    """Rows of claim 3 on Task 1: gaps by layer of each seed under RoPE, small ones otherwise."""
    small = lambda seed: (1.0,) * 6  # noqa: E731
    return [
        row(
            one,
            commit="0123abc",
            test=accuracies[name],
            gaps=(gaps if name == "rope" else small)(seed),
            theirs=(theirs or gaps)(seed) if name == "rope" else None,
        )
        for seed in range(seeds)
        for arm, one in SingleHead().arms(condition, "mid", seed).items()
        for task, _, name in [arm.partition("/")]
        if task == "distance" and name in accuracies
    ]


def test_at_the_papers_depth_deposits_are_counted_by_both_ablations():
    rows = deep("controlled", lambda seed: (2.0,) * 6, {"rope": 99.0, "nope": 40.0, "sinusoidal": 60.0})
    theirs = lambda seed: (0.0,) * 5 + (30.0 if seed < 4 else 3.0,)  # noqa: E731
    rows += deep("released", lambda seed: (25.0,) + (1.0,) * 5, {"rope": 85.0}, theirs=theirs)
    deposits, accuracy = findings(AT_MID, StudyRows.of(rows))
    assert deposits == (
        "**In models of 6 layers, with dropout as in the paper, runs of RoPE with a deposit on Task 1, in"
        " any layer, by the exact ablation: `controlled` 0 of 6, `released` 6 of 6.** Under `controlled` "
        "RoPE has one in the first half of the layers in 0 of 6 runs. The largest gap between the two "
        "most important heads of a layer, over runs that learned the task: RoPE 2.0 points, n = 6,"
        " absolute 1.0 points, n = 6. Under `released` RoPE, which has an absolute term besides "
        "(R3), has one in the first half of the layers in 6 of 6 runs; by the authors' ablation (R9, "
        "R10), by which claim 3 is judged there, it has one in 0 of 6, and in any layer in 4 of 6. The "
        "largest gap between the two most important heads of a layer by the authors' ablation, over runs "
        "that learned the task: RoPE 3.0 to 30.0 points, n = 6."
    )
    assert accuracy == (
        "**Held-out accuracy on Task 1: `controlled` RoPE 99.0 %, NoPE 40.0 %; `released` RoPE 85.0 %.** "
        "Table 1 has MLA 88.34 %, RoPE 92.64 %, NoPE 3.51 %, after 100 epochs at a learning rate of 0.0001; "
        "these runs have 4 at 0.01."
    )


def test_accuracies_on_few_seeds_are_not_put_beside_table_1():
    rows = deep("controlled", lambda seed: (2.0,) * 6, {"rope": 99.0}, seeds=5)
    assert [one[:22] for one in findings(AT_MID, StudyRows.of(rows))] == ["**In models of 6 layer"]


def test_runs_that_did_not_learn_the_task_have_no_gaps_to_tell():
    rows = deep("controlled", lambda seed: (2.0,) * 6, {"rope": 20.0})
    assert findings(AT_MID, StudyRows.of(rows))[0].endswith("None of these runs learned the task.")
