"""Claims 12 to 16 on rows with known answers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.study.made import FACTS_OF_ALL, jitter, together

from spectrope.core.config import config_hash
from spectrope.core.errors import UnknownNameError
from spectrope.grokking.commands.grok import Grok
from spectrope.grokking.commands.grok_shapes import GrokShapes
from spectrope.grokking.coverage import coverage_of
from spectrope.lab.experiments import AnyExperiment, written
from spectrope.lab.runs import DATA_VERSION
from spectrope.store import RESULTS_VERSION
from spectrope.study import grok_arms as grokking
from spectrope.study.claim import Claim
from spectrope.study.claims.grok_coverage import GrokCoverage
from spectrope.study.claims.grok_distribution import GrokDistribution
from spectrope.study.claims.grok_med import RIVALS, GrokMed
from spectrope.study.claims.grok_uniformity import FEW, GrokUniformity
from spectrope.study.claims.grok_vision import GrokVision
from spectrope.study.grok_arms import HELD, SIDES, as_many, base, held, last, rise, scaled
from spectrope.study.page.cells import cell
from spectrope.study.page.effects import effects
from spectrope.study.rows import StudyRow, StudyRows
from spectrope.study.study import Study

EVALUATIONS = 9
LOSSES = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def row(experiment: AnyExperiment, **ends: tuple[float, float] | np.ndarray) -> StudyRow:
    """A row whose columns run from one value to another, or through given ones."""
    columns = {
        name: np.linspace(*value, EVALUATIONS) if isinstance(value, tuple) else value
        for name, value in ends.items()
    }
    table = pl.DataFrame(
        {"step": 50 * np.arange(EVALUATIONS), **dict.fromkeys(LOSSES, np.zeros(EVALUATIONS)), **columns}
    )
    name = config_hash(written(experiment), DATA_VERSION, RESULTS_VERSION)
    return StudyRow(experiment, FACTS_OF_ALL, {"progress": table}, name)


def rows_of(claim: Claim, say, seeds: int = 6) -> StudyRows:
    return StudyRows.of(
        row(one, **say(arm, 0.01 * jitter(seed)))
        for seed in range(seeds)
        for arm, one in claim.arms("described", "mini", seed).items()
    )


def test_seeds_on_which_settings_were_chosen_do_not_count():
    claim = GrokMed()
    assert [one.seed for one in claim.plan("described", "mini", (0, 1))] == [24, 25]
    rows = StudyRows.of(row(base("mini", seed), test_accuracy=(0.0, 1.0)) for seed in range(30))
    for first in (0, 2):
        study = Study((claim,), ("described",), "mini", (first,))
        counted = sorted(seed for _, seed in study.seen(claim, "described", rows).rows)
        assert counted == [24 + 2 * first, 25 + 2 * first]  # Twice as many as asked for, and no later ones.


def outcome(claim: Claim, say, seeds: int = 6) -> str:
    return together(claim.judge(rows_of(claim, say, seeds), "described"))


@pytest.mark.parametrize(
    ("decay", "free", "train", "expected"),
    [
        ((0.6, 0.05), (0.6, 0.5), 1.0, "reproduced"),
        ((0.6, 0.05), (0.6, 0.05), 1.0, "saturated"),
        ((0.1, 0.05), (0.6, 0.9), 1.0, "undecided"),
        ((0.6, 0.3), (0.6, 0.9), 1.0, "contradicted"),
        ((0.6, 0.1), (0.6, 0.9), 1.0, "undecided"),
        ((0.6, 0.05), (0.6, 0.5), 0.5, "undecided"),
    ],
)
def test_uniformity(decay, free, train, expected):
    def say(arm, shift):
        start, end = {"decay": decay, "free": free, FEW: (0.6, 0.7)}[arm]
        return {"unevenness": (start, end + shift), "train_accuracy": (0.1, train)}

    assert outcome(GrokUniformity(), say) == expected
    assert outcome(GrokUniformity(), say, seeds=5) == "undecided"


def test_what_weight_decay_does_without_grokking_is_shown_for_comparison():
    def say(arm, shift):
        ends = {"decay": (0.6, 0.05), "free": (0.6, 0.5), FEW: (0.6, 0.8)}[arm]
        scores = {"train_accuracy": (0.1, 1.0), "test_accuracy": (0.0, 0.09 if arm == FEW else 1.0)}
        return {"unevenness": (ends[0], ends[1] + shift), **scores}

    verdict = GrokUniformity().judge(rows_of(GrokUniformity(), say), "described")
    (few,) = (one for one in verdict.findings if one.part.for_comparison)
    assert few.evidence.interval.estimate == pytest.approx(0.2)
    assert verdict.word == "reproduced"
    told = "from fewer random pairs (test accuracy 9.0 %) unevenness changes by +0.20 ["
    assert verdict.headline.part.beside.startswith(told)
    usual, few = (GrokUniformity().arms("described", "mini", 12)[name].task for name in ("decay", FEW))
    assert few.fraction < 0.6 * usual.fraction


def test_at_the_paper_s_modulus_the_square_leaves_enough_pairs_and_is_compared_with_random_ones():
    arms = GrokDistribution().arms("described", "mid", 0)
    assert arms["random/square"] == arms["random"]
    assert FEW not in GrokUniformity().arms("described", "mid", 0)
    split = arms["square/67"].task.build().split(0)
    assert len(split.train) == len(arms["random"].task.build().split(0).train)
    assert 0 < (~split.trains & ~split.held_out).sum() < split.held_out.sum()  # The test set mixes both.


def test_accuracy_in_the_hole_is_told_beside_that_on_all_test_pairs():
    def say(arm, shift):
        hole = {"test_accuracy": (0.1, 0.3 + shift), "held_out_accuracy": (0.0, 0.02)}
        return {"unevenness": (0.6, 0.1), **(hole if arm.endswith("67") else {"test_accuracy": (0.1, 1.0)})}

    verdict = GrokDistribution().judge(rows_of(GrokDistribution(), say), "described")
    parts = {one.part.quantity: one for one in verdict.findings}
    held_out = parts["square, k = 67, accuracy on the pairs held out"]
    assert (held_out.part.for_comparison, set(held_out.part.values.values())) == (True, {2.0})
    assert verdict.headline.part.beside.startswith("on the pairs of the hole alone 2.0 %; unevenness")


def test_signs_that_strength_leaves_out_are_counted():
    falling = np.array([4.0, 9, 8, 7, 6, 5, 3, 2, 1])

    def say(arm, shift):
        sign = 1.0 if shift > 0 else -1.0
        return {"test_loss": falling, "test_accuracy": (0.1, 1.0), "med": sign * falling}

    verdict = GrokMed().judge(rows_of(GrokMed(), say), "described")
    assert verdict.headline.part.beside.endswith("MED rises with the test loss in 3 of 6 runs")


def test_each_claim_tells_its_setting():
    assert GrokMed().setting("mid").startswith("modulus 97, one layer, 30 % of all pairs train, ")
    assert GrokVision().setting("mini") == "128 images of 32 pixels train, at most 1,000 steps"


@pytest.mark.parametrize(
    ("least", "most", "uneven", "expected"),
    [
        (0.97, 0.3, 0.15, "reproduced"),
        (1.0, 0.99, 0.1, "contradicted"),
        (0.97, 0.3, 0.5, "contradicted"),
        (0.3, 0.3, 0.1, "undecided"),
    ],
)
def test_distribution(least, most, uneven, expected):
    def say(arm, shift):
        accuracy = 1.0 if arm == "random" else most if arm.endswith("67") else least
        level = 0.1 if arm.startswith("random") else uneven
        return {"test_accuracy": (0.1, accuracy + shift / 10), "unevenness": (0.6, level + shift)}

    claim = GrokDistribution()
    assert outcome(claim, say) == expected
    verdict = claim.judge(rows_of(claim, say), "described")
    (part,) = (f.part for f in verdict.findings if f.part.quantity == "strip, k = 67, test accuracy")
    assert part.note == ", ".join(f"{100 * least:.1f} at k = {k}" for k in SIDES[:-1])


def test_nothing_is_said_of_holes_where_random_pairs_are_not_grokked():
    verdict = GrokDistribution().judge(
        rows_of(
            GrokDistribution(),
            lambda arm, shift: {"test_accuracy": (0.1, 0.3 + shift), "unevenness": (0.6, 0.1)},
        ),
        "described",
    )
    assert verdict.reason == "its premise fails: test accuracy on random pairs"


@pytest.mark.parametrize("kind", HELD)
def test_a_hole_is_not_judged_where_equally_many_random_pairs_are_not_grokked(kind):
    def say(arm, shift):
        poor = arm in (f"{kind}/67", f"random/{kind}")
        return {
            "test_accuracy": (0.1, 0.3 + shift if poor else 1.0),
            "unevenness": (0.6, 0.4 + shift if arm == f"{kind}/67" else 0.1),
        }

    verdict = GrokDistribution().judge(rows_of(GrokDistribution(), say), "described")
    by_name = {one.part.quantity: one for one in verdict.findings}
    part = by_name[f"{kind}, k = 67, test accuracy from as many random pairs minus its own"]
    (other,) = HELD.keys() - {kind}
    rest = by_name[f"{other}, k = 67, test accuracy from as many random pairs minus its own"]
    assert part.word == "not testable here"
    assert part.part.untestable == "equally many random pairs are not grokked either (30.0 %)"
    assert part.part.beside.startswith("unevenness of embeddings minus that of random pairs 0.30 [0.2")
    assert (rest.word, rest.part.untestable) == ("saturated", "")
    decided = kind == "strip"
    assert verdict.reason.startswith(part.part.untestable) != decided
    assert (verdict.word == "not testable here") != decided
    table = effects([(GrokDistribution(), verdict)]).filter(part=part.part.quantity)
    assert table["p_contradicted"].to_list() == [None]
    assert table["untestable"].to_list() == [part.part.untestable]
    assert part.part.untestable in cell(part, verdict.word)


@pytest.mark.parametrize(("closer", "expected"), [(True, "reproduced"), (False, "contradicted")])
def test_med(closer, expected):
    falling, noisy = np.array([4.0, 9, 8, 7, 6, 5, 3, 2, 1]), np.array([1.0, 5, 2, 8, 3, 9, 4, 7, 6])

    def say(arm, shift):
        good, bad = -falling, noisy + (shift > 0) * np.eye(EVALUATIONS)[0] * 20
        others = dict.fromkeys([name for name in RIVALS if name != "step"], bad if closer else good)
        return {"test_loss": falling, "test_accuracy": (0.1, 1.0), "med": good if closer else bad, **others}

    assert outcome(GrokMed(), say) == expected


@pytest.mark.parametrize(
    ("options", "experiment"),
    [
        ({}, base("mini", 3)),
        ({"weight_decay": 0.0}, base("mini", 3, weight_decay=0.0)),
        ({"distribution": "strip", "k": 41}, held("strip", 67, "mini", 3)),
        (
            {"distribution": "square", "k": 67, "p": 97, "fraction": 0.3, "steps": 30_000},
            held("square", 67, "paper", 3),
        ),
    ],
)
def test_runs_of_the_command_count(options, experiment):
    spent = {"steps": 4000, "evaluate_every": 50, "stop_after": "never"}
    assert Grok(**{**spent, **options}).experiment(3) == experiment


@pytest.mark.parametrize("kind", HELD)
def test_the_control_of_a_hole_has_as_many_pairs_all_over(kind):
    hole, control = (make(kind, 67, "mini", 3).task.build().split(3) for make in (held, as_many))
    assert len(control.train) == len(hole.train) < 0.5 * 59**2
    assert not control.held_out.any()


def test_a_hole_that_leaves_enough_pairs_needs_no_run_of_its_own():
    assert as_many("square", 67, "paper", 3) == base("paper", 3)


def test_operands_are_bounded_in_proportion():
    assert [scaled(k, "mini") for k in SIDES] == [24, 30, 36, 41]
    assert [scaled(k, "paper") for k in SIDES] == list(SIDES)
    with pytest.raises(UnknownNameError, match="unknown scale 'large'"):
        base("large", 0)


def test_a_row_without_its_course_gives_no_value():
    bare = StudyRow(base("mini", 0), FACTS_OF_ALL, {}, "none")
    assert last("med")(bare) is rise("med")(bare) is None
    undefined = row(base("mini", 0), med=np.array([None] * EVALUATIONS))
    assert last("med")(undefined) is rise("med")(undefined) is None
    rows = StudyRows.of([bare])
    assert GrokMed().judge(rows, "described").findings[1].n_seeds == 0


def test_rows_of_both_laboratories_share_a_file(tmp_path: Path):
    rows = StudyRows(tmp_path / "mini.jsonl")
    rows.add(row(base("mini", 0), med=(1.0, 0.5)))
    (read,) = StudyRows.load(tmp_path / "mini.jsonl")
    assert read.experiment == base("mini", 0)
    assert last("med")(read) == 0.5


@pytest.mark.parametrize(("reached", "expected"), [(1.0, "reproduced"), (0.5, "contradicted")])
def test_coverage(monkeypatch, reached, expected):
    # At p = 11 the linear algebra takes no time; what follows is the same as at 59.
    monkeypatch.setattr(grokking, "MODULUS", {"mini": 11})

    holes = {name: one for name, one in GrokCoverage().arms("described", "mini", 0).items() if "," in name}
    shares = {name: coverage_of(one.task.build().split(0), 11).trained for name, one in holes.items()}

    def say(arm, shift):
        level = 1 / 11 if arm.endswith("two vocabularies") else 1.0 if arm == "random" else reached
        return {"test_accuracy": (0.1, level + shift + 0.01 * shares.get(arm, 0.0))}

    assert outcome(GrokCoverage(), say) == expected
    verdict = GrokCoverage().judge(rows_of(GrokCoverage(), say), "described")
    *parts, last_part = verdict.findings
    assert last_part.word == "reproduced"
    assert last_part.evidence.interval.estimate > 0.9
    notes = {one.part.quantity.split(", test")[0]: one.part.note for one in parts}
    assert notes["strip, k = 67"] == "not held out 0.0 %"
    assert last_part.part.beside.startswith("with the number of training pairs instead ")


@pytest.mark.parametrize(
    ("fitted", "end", "expected"),
    [(0.5, 1.0, "reproduced"), (0.97, 1.0, "undecided"), (0.1, 0.7, "contradicted")],
)
def test_vision(fitted, end, expected):
    train = np.minimum(1.0, np.linspace(0, 3, EVALUATIONS))
    train[1] = 1.0  # One lucky look is no fit.
    test = np.where(np.arange(EVALUATIONS) < EVALUATIONS - 1, fitted, end)

    def say(arm, shift):
        return {"train_accuracy": train, "test_accuracy": test + shift / 10}

    assert outcome(GrokVision(), say) == expected


def test_images_that_were_never_fitted_are_not_grokked_either():
    rows = rows_of(
        GrokVision(), lambda arm, shift: {"train_accuracy": (0.1, 0.5), "test_accuracy": (0.1, 0.3 + shift)}
    )
    findings = GrokVision().judge(rows, "described").findings
    assert [(one.n_seeds, one.word) for one in findings] == [(6, "contradicted"), (0, "not testable here")]
    with pytest.raises(UnknownNameError, match="unknown scale 'large'"):
        GrokVision().arms("described", "large", 0)


@pytest.mark.parametrize("gone", ["train_accuracy", "test_accuracy"])
def test_images_whose_course_has_gaps_tell_nothing_of_a_delay(gone):
    course = np.full(EVALUATIONS, 1.0)
    rows = rows_of(
        GrokVision(), lambda arm, shift: {"train_accuracy": course, "test_accuracy": course, gone: course}
    )
    torn = [
        replace(
            one,
            tables={
                "progress": one.tables["progress"].with_columns(
                    pl.when(pl.col("step") != 100).then(gone).alias(gone)
                )
            },
        )
        for one in rows
    ]
    findings = GrokVision().judge(StudyRows.of(torn), "described").findings
    assert [one.n_seeds for one in findings] == [6, 0]


def test_the_command_s_images_are_those_of_the_claim():
    assert GrokShapes().experiment(2) == GrokVision().arms("described", "mini", 2)["images"]
