"""What all claims share: plans, shared runs, verdicts from parts, and what does not count."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tests.study.made import jitter, row, rows_of

from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import SCALES, experiment
from spectrope.stats.power import detectable_difference
from spectrope.stats.seeds import MIN_SEEDS, seed_proportion
from spectrope.store.records import Complaint
from spectrope.study.claim import CLAIMS, Claim, chosen_claims
from spectrope.study.conditions import THROWN
from spectrope.study.predictions import ALPHA, AtLeast, AtMost, InRuns, Within, largest, one_sided
from spectrope.study.quantities import Seen, held_out
from spectrope.study.rows import StudyRows, run_name
from spectrope.study.verdict import Part

EVERY = [claim for claim in chosen_claims(()) if claim.kind != "toy"]


class Toy(Claim):
    """RoPE ahead of NoPE by two points, provided that NoPE learns."""

    kind = "toy"
    explored = 0

    def arms(self, condition, scale, seed):
        return {
            name: experiment("distance", name, condition=condition, scale=scale, seed=seed)
            for name in ("rope", "nope")
        }

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="accuracy under NoPE",
            prediction=AtLeast(50.0),
            values=seen.values("nope", held_out),
            premise=True,
        )
        yield Part(
            quantity="RoPE minus NoPE",
            prediction=AtLeast(2.0),
            values=seen.minus("rope", "nope", held_out),
        )
        yield Part(quantity="RoPE", prediction=AtMost(99.0), values=seen.values("rope", held_out))


def say(rope: float, nope: float = 80.0):
    return lambda arm, seed: {"test": {"rope": rope, "nope": nope}[arm] + jitter(seed) * (arm == "rope")}


class TestVerdict:
    def test_holds_where_every_part_does(self):
        verdict = Toy().judge(rows_of(Toy(), say(90.0)))
        assert (verdict.outcome, verdict.reason, verdict.n_seeds) == ("holds", "all 2 parts hold", 6)
        assert verdict.findings[1].evidence.interval.estimate == pytest.approx(10.0)

    def test_fails_where_one_part_does(self):
        verdict = Toy().judge(rows_of(Toy(), say(79.0)))
        assert (verdict.outcome, verdict.reason) == ("fails", "1 of 2 parts fails")
        assert [finding.outcome for finding in verdict.findings] == ["holds", "fails", "holds"]

    def test_is_inconclusive_where_the_interval_straddles_the_smallest_effect(self):
        verdict = Toy().judge(rows_of(Toy(), say(82.2)))
        assert (verdict.outcome, verdict.reason) == ("inconclusive", "1 of 2 parts undecided")

    def test_says_nothing_without_its_premise(self):
        verdict = Toy().judge(rows_of(Toy(), say(90.0, nope=20.0)))
        assert verdict.outcome == "inconclusive"
        assert verdict.reason == "its premise fails: accuracy under NoPE"

    @pytest.mark.parametrize("rope", [60.0, 90.0])
    def test_never_comes_from_fewer_seeds_than_the_minimum(self, rope):
        verdict = Toy().judge(rows_of(Toy(), say(rope), seeds=MIN_SEEDS - 1))
        assert verdict.outcome == "inconclusive"
        assert verdict.findings[1].outcome == "inconclusive"

    def test_names_what_a_missing_run_leaves_too_few_of(self):
        rows = rows_of(Toy(), lambda arm, seed: None if (arm, seed) == ("rope", 3) else say(90.0)(arm, seed))
        verdict = Toy().judge(rows)
        assert (verdict.outcome, verdict.n_seeds) == ("inconclusive", 5)
        assert verdict.reason == "5 of at least 6 seeds for RoPE minus NoPE"

    def test_a_part_that_fails_on_enough_seeds_decides_though_others_lack_some(self):
        rows = rows_of(Toy(), lambda arm, seed: None if (arm, seed) == ("nope", 3) else say(99.8)(arm, seed))
        verdict = Toy().judge(rows)
        assert [finding.n_seeds for finding in verdict.findings] == [5, 5, 6]
        assert verdict.outcome == "inconclusive"  # Its premise rests on five.

        class Bare(Toy):
            def parts(self, seen):
                yield from list(super().parts(seen))[1:]

        verdict = Bare().judge(
            rows_of(Toy(), lambda arm, seed: None if (arm, seed) == ("nope", 3) else {"test": 99.8})
        )
        assert (verdict.outcome, verdict.n_seeds) == ("fails", 6)

    def test_without_any_run(self):
        verdict = Toy().judge(StudyRows())
        assert (verdict.outcome, verdict.n_seeds) == ("inconclusive", 0)
        assert all(finding.evidence is None for finding in verdict.findings)

    def test_leaves_rows_in_another_precision_out_by_name(self):
        def mixed(arm, seed):
            return {
                **say(90.0)(arm, seed),
                "precision": "bfloat16" if (arm, seed) == ("rope", 0) else "float32",
            }

        verdict = Toy().judge(rows_of(Toy(), mixed))
        assert verdict.outcome == "inconclusive"
        (line,) = verdict.left_out
        assert line.startswith("rope, seed 0 (run ")
        assert line.endswith("computed in bfloat16, not float32")

    def test_other_scales_and_conditions_do_not_count(self):
        rows = rows_of(Toy(), say(90.0), condition="described")
        assert Toy().judge(rows).n_seeds == 0
        assert Toy().judge(rows, "described").outcome == "holds"
        assert Toy().judge(rows, "described", "small").n_seeds == 0

    def test_seeds_that_were_not_planned_move_no_verdict(self):
        def tell(arm, seed):
            return say(90.0 if seed < 6 else 60.0)(arm, seed)

        rows = rows_of(Toy(), tell, seeds=12)
        assert Toy().judge(rows).outcome == "inconclusive"
        planned, later = (Toy().judge(rows, seeds=range(first, first + 6)) for first in (0, 6))
        assert [(one.outcome, one.n_seeds) for one in (planned, later)] == [("holds", 6), ("fails", 6)]

    def test_a_planned_seed_of_which_nothing_can_be_read_is_named(self):
        rows = rows_of(Toy(), say(90.0))
        lost = Toy().arms("controlled", "mini", 6)["rope"]
        rows.complaints.append(Complaint("mini.jsonl: torn.", run_name(lost)))
        verdict = Toy().judge(rows, seeds=range(7))
        assert verdict.reason == "all 2 parts hold; 1 run left out"
        assert verdict.left_out == ("mini.jsonl: torn.",)

    def test_failing_is_corrected_for_the_number_of_parts(self):
        values = {seed: 2.0 - 1.2 + 1.1 * jitter(seed) for seed in range(6)}
        below = one_sided(np.array(list(values.values())), 2.0)[1]
        assert ALPHA / 3 < below < ALPHA

        class Many(Toy):
            def parts(self, seen):
                for _ in range(self.n):
                    yield Part(quantity="x", prediction=AtLeast(2.0), values=values)

        outcomes = []
        for n in (1, 3):
            Many.n = n
            outcomes.append(Many().judge(StudyRows()).outcome)
        assert outcomes == ["fails", "inconclusive"]


class TestPredictions:
    def test_one_sided_p_values_are_those_of_the_interval(self):
        values = np.array([1.0, 2.0, 4.0, 3.0, 2.5, 1.5])
        interval = AtLeast(0.0).weigh(values).interval
        assert AtLeast(interval.low).weigh(values).p_holds == pytest.approx(ALPHA)
        assert AtLeast(interval.high).weigh(values).p_fails == pytest.approx(ALPHA)
        assert AtMost(interval.high).weigh(values).p_holds == pytest.approx(ALPHA)
        assert AtMost(interval.low).weigh(values).p_fails == pytest.approx(ALPHA)

    def test_equivalence_asks_for_both_sides(self):
        values = np.array([0.1, -0.3, 0.2, 0.0, -0.1, 0.3])
        assert Within(2.0).weigh(values).p_holds < ALPHA
        assert Within(2.0).weigh(values + 5).p_fails < ALPHA
        assert Within(2.0).weigh(values - 5).p_fails < ALPHA
        assert Within(0.1).weigh(values).p_holds > ALPHA

    @pytest.mark.parametrize(("value", "above", "below"), [(3.0, 0.0, 1.0), (1.0, 1.0, 0.0), (2.0, 0.5, 0.5)])
    def test_seeds_that_all_agree_decide_unless_they_sit_on_the_edge(self, value, above, below):
        assert one_sided(np.full(6, value), 2.0) == (above, below)

    def test_a_share_of_runs_other_than_half(self):
        some = InRuns(0.1)
        assert some.words() == "in more than 10 % of all runs"
        assert some.weigh(np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])).p_holds == pytest.approx(0.01585)
        assert some.weigh(np.zeros(6)).p_holds == 1.0

    def test_some_of_several_fails_only_if_each_falls_short(self):
        chosen, wide = dict(enumerate((1.0, 1.1, 0.9, 1.0, 1.0, 1.1, 0.9))), (0.5, 3.0, -2.0, 1.9, 2.5, 0.1)
        values = np.array(list(chosen.values()))

        def p_fails(**others):
            candidates = {"chosen": chosen, **{name: dict(enumerate(one)) for name, one in others.items()}}
            return AtLeast.of_some(2.0, "chosen", candidates).weigh(values).p_fails

        assert p_fails() < 0.001
        assert p_fails(wide=wide) > 0.1
        assert p_fails(low=tuple(-one for one in wide)) < 0.01  # Six seeds of it are enough.
        assert p_fails(few=(-9.0, -9.1)) == p_fails(none=()) == 1.0

    def test_the_largest_of_several_has_seeds_enough_if_any_has(self):
        six, few = dict.fromkeys(range(6), 1.0), {0: 5.0, 1: 5.0}
        assert largest({"six": six, "few": few, "none": {}}) == "six"
        assert largest({"few": few, "none": {}}) == "few"
        assert AtLeast.of_some(0.0, "six", {"six": six, "few": few}).level == pytest.approx(0.975)

    @pytest.mark.parametrize("count", range(7))
    def test_proportions_decide_as_the_seed_proportion_does(self, count):
        found = [1.0] * count + [0.0] * (6 - count)
        evidence = InRuns().weigh(np.array(found))
        verdict = seed_proportion([bool(x) for x in found]).verdict
        assert (evidence.p_holds <= ALPHA) == (verdict == "holds")
        assert (evidence.p_fails <= ALPHA) == (verdict == "fails")


@pytest.mark.parametrize("claim", EVERY, ids=lambda claim: claim.kind)
class TestEveryClaim:
    def test_says_what_it_is(self, claim):
        for name in ("title", "statement", "source", "prediction", "test", "paper"):
            assert getattr(claim, name)
        assert set(claim.conditions) <= set(THROWN)
        assert set(claim.conditions) == set(THROWN) or claim.unplanned

    @pytest.mark.parametrize("scale", SCALES)
    def test_plans_runs_seed_by_seed(self, claim, scale):
        for condition in claim.conditions:
            plan = claim.plan(condition, scale, (0, 1))
            assert len(plan) == len(set(plan))
            assert {one.seed for one in plan} == {claim.explored, claim.explored + 1}
            assert {one.scale for one in plan if isinstance(one, Experiment)} <= {scale}

    def test_knows_no_other_condition(self, claim):
        with pytest.raises(ConfigError, match=f"claim '{claim.kind}' is tested under .*; got 'ideal'"):
            claim.plan("ideal", "mini", (0,))

    def test_is_inconclusive_without_runs(self, claim):
        for condition in claim.conditions:
            verdict = claim.judge(StudyRows(), condition)
            assert (verdict.outcome, verdict.n_seeds) == ("inconclusive", 0)

    def test_needs_only_the_runs_that_it_plans(self, claim):
        condition = claim.conditions[0]
        planned = set(claim.plan(condition, "mini", range(6)))
        rows = StudyRows.of(row(one) for one in planned)
        counted = range(claim.explored, claim.explored + 6)
        seeds = {seed: claim.arms(condition, "mini", seed) for seed in counted}
        seen = Seen.of(rows, seeds)
        assert set(seen.rows) == {(arm, seed) for seed, arms in seeds.items() for arm in arms}


def test_claims_are_chosen_by_name_or_number():
    assert [claim.kind for claim in chosen_claims(("single-head", "1"))] == [
        "distance-ordering",
        "distance-overfitting",
        "single-head",
    ]
    assert [claim.kind for claim in chosen_claims(("2",))] == [
        "counting-biases",
        "counting-table",
        "counting-text",
    ]
    assert len(chosen_claims(())) == len(CLAIMS)
    with pytest.raises(UnknownNameError, match="unknown claim 'single'; did you mean single-head"):
        chosen_claims(("single",))


def test_the_power_of_a_plan_is_stated():
    assert "1 seed can only be" in Toy().power((0,), StudyRows())
    assert "5 seeds can only be inconclusive; 6 are the fewest" in Toy().power(range(5), StudyRows())
    told = Toy().power(range(6), StudyRows())
    assert told == (
        "6 seeds show, four times in five, that a part holds where its mean lies 1.43 standard deviations "
        "between seeds beyond the smallest effect of interest; that a part fails where its mean lies 1.71 "
        "short of it; that its premise holds where its mean lies 1.43 beyond it."
    )
    (both,) = chosen_claims(("rope-with-absolute",))
    assert both.power(range(6), StudyRows()).endswith(
        "; that a part about most runs holds for a majority of 96 % and fails for no minority; that its "
        "premise holds where its mean lies 1.43 beyond it."
    )
    (moved,) = chosen_claims(("partial-deposit",))
    assert moved.power(range(12), StudyRows()).endswith(
        "; that its premise about runs holds for a share of 50 %."
    )


def test_the_power_of_equality_is_of_no_difference():
    (biases,) = chosen_claims(("counting-biases",))
    told = "the smallest effect of interest, 2 points, is at least 1.66 standard deviations"
    assert told in biases.power(range(6), StudyRows())
    rows = rows_of(biases, lambda arm, seed: {"test": 80.0 + 3 * jitter(seed) * (arm == "t5")})
    spread = 3 * np.std([jitter(seed) for seed in range(6)], ddof=1)
    assert f"{told} ({1.66 * spread:.3g}"[:-1] in biases.power(range(6), rows)


def test_the_power_of_the_largest_of_several_is_corrected_for_their_number():
    told = chosen_claims(("confounds",))[0].power(range(6), StudyRows())
    assert told.startswith(
        "6 seeds show, four times in five, that a part holds where its mean lies 2.2 to 2.51 "
    )
    assert "and so do the other candidates where the largest is judged" in told


def test_where_rows_tell_the_spread_power_is_in_points():
    rows = rows_of(Toy(), say(90.0))
    spread = np.std([jitter(seed) for seed in range(6)], ddof=1)
    levels = (0.95, 0.975)  # A part that fails has Holm's correction for two.
    holds, fails = (f"{detectable_difference(6, level) * spread:.3g}" for level in levels)
    told = Toy().power(range(6), rows)
    assert f"interest ({holds} points by the seeds so far" in told
    assert f"short of it ({fails} points by the seeds so far" in told
    noisy = rows_of(Toy(), lambda arm, seed: {"test": 80.0 + jitter(seed) * (5 if arm == "rope" else -5)})
    low, high = (f"{detectable_difference(6) * 5 * size * spread:.3g}" for size in (1, 2))
    assert f"({low} to {high} points by" in Toy().power(range(6), noisy)


def test_a_row_without_scores_gives_no_value():
    one = experiment("distance", "rope")
    lost = replace(row(one), facts=row(one).facts | {"test_accuracy": None})
    seen = Seen.of(StudyRows.of([lost]), {0: {"rope": one}})
    assert seen.values("rope", held_out) == {}
