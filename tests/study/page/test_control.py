"""The positive control: what the public code shows of the paper's Table 1 and figure 2."""

import pytest
from tests.study.made import jitter, row

from spectrope.study.arms import NAMES_AND_MLA, by_encoding
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.latent_attention import TABLE_1
from spectrope.study.page.control import positive_control
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

AS_PRINTED = {
    "distance": TABLE_1["distance"] | {"sinusoidal": 80.0, "random": 60.0, "alibi": 20.0, "t5": 15.0},
    "counting": TABLE_1["counting"],
}
TRAINED = {"random": 82.0, "sinusoidal": 81.0}  # Training accuracies; the others are 99 %.


def study(scale="mid", conditions=("controlled", "released")):
    return Study(tuple(chosen_claims(())), conditions, scale, tuple(range(6)))


def rows_of(scores, seeds=6):
    return StudyRows.of(
        row(one, commit="0123abc", test=scores[task][name] + jitter(seed), train=TRAINED.get(name, 98.0))
        for task in scores
        for seed in range(seeds)
        for name, one in by_encoding(task, "released", "mid", seed, scores[task]).items()
    )


def answers(rows):
    control = positive_control(study(), rows)
    assert control is not None
    return {(place, check.part.quantity): answer for place, check, answer in control.lines()}


def test_scores_as_printed_are_reproduced():
    control = positive_control(study(), rows_of(AS_PRINTED))
    assert control is not None
    assert {answer for *_, answer in control.lines()} == {"as in the paper"}
    assert control.summary() == "`released` reproduces Table 1 and figure 2 within these tolerances."


def test_an_order_that_is_the_other_way_round_is_told():
    swapped = AS_PRINTED["counting"] | {"rope": 77.69, "nope": 69.43}
    rows = rows_of(AS_PRINTED | {"counting": swapped})
    assert answers(rows)["Table 1, Task 2", "NoPE minus RoPE, held-out accuracy"] == "not as in the paper"
    control = positive_control(study(), rows)
    assert control is not None
    assert "does not reproduce all of Table 1 and figure 2: 18 of 19 checks" in control.summary()
    assert control.summary().endswith("1 are not.")


def test_an_accuracy_far_from_the_printed_one_is_told():
    low = AS_PRINTED["distance"] | {"mla": 60.0}
    told = answers(rows_of(AS_PRINTED | {"distance": low}))
    assert (
        told["Table 1, Task 1", "MLA, held-out accuracy minus the printed 88.34 %"] == "not as in the paper"
    )
    assert told["Table 1, Task 1", "RoPE minus MLA, held-out accuracy"] == "as in the paper"


def test_what_was_not_run_or_on_too_few_seeds_leaves_the_control_open():
    nothing = answers(StudyRows())
    assert set(nothing.values()) == {"not run"}
    some = answers(rows_of(AS_PRINTED, seeds=3))
    assert set(some.values()) == {"open: 3 of at least 6 seeds"}
    control = positive_control(study(), StudyRows())
    assert control is not None
    assert control.summary().startswith("Whether `released` reproduces Table 1 and figure 2 is open: 0 of 19")


@pytest.mark.parametrize("one", [study("mini"), study(conditions=("controlled",))])
def test_there_is_no_control_at_other_scales_or_without_the_public_code(one):
    assert positive_control(one, rows_of(AS_PRINTED)) is None


def test_settings_that_differ_from_the_papers_are_listed():
    control = positive_control(study(), StudyRows())
    assert control is not None
    assert ("Task 1, `d_model`", "256", "128") in control.settings
    assert ("Task 1, `epochs`", "100", "4") in control.settings
    assert not any("n_layers" in name or "n_heads" in name for name, *_ in control.settings)
    assert set(NAMES_AND_MLA) >= set(AS_PRINTED["distance"])
