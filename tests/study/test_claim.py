"""What all claims share: plans, shared runs, verdicts from parts, and what does not count."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.study.made import jitter, row, rows_of

from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import SCALES, experiment
from spectrope.stats.power import detectable_difference
from spectrope.stats.seeds import MIN_SEEDS, seed_proportion
from spectrope.store.records import Complaint
from spectrope.study.claim import CLAIMS, Claim, chosen_claims
from spectrope.study.conditions import THROWN
from spectrope.study.power import power_of
from spectrope.study.predictions import ALPHA, AtLeast, AtMost, InRuns, LostInRuns, Within, largest, one_sided
from spectrope.study.quantities import Seen, held_out
from spectrope.study.rows import StudyRows, run_name
from spectrope.study.verdict import Part, PartResult

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
            prediction=AtLeast(50.0, null=None),
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
    @pytest.mark.parametrize(
        ("rope", "word"),
        [(90.0, "reproduced"), (81.5, "direction only"), (79.0, "contradicted"), (80.3, "contradicted")],
    )
    def test_the_first_word_that_applies_to_the_headline_part(self, rope, word):
        spread = 1.0 if rope != 81.5 else 0.4
        tell = lambda arm, seed: {"test": rope + spread * jitter(seed) if arm == "rope" else 80.0}  # noqa: E731
        verdict = Toy().judge(rows_of(Toy(), tell))
        assert verdict.word == word
        assert verdict.headline.part.quantity == "RoPE minus NoPE"

    def test_other_parts_decide_nothing(self):
        verdict = Toy().judge(rows_of(Toy(), say(99.5)))
        assert [finding.word for finding in verdict.findings][1:] == ["reproduced", "undecided"]
        assert (verdict.word, verdict.n_seeds) == ("reproduced", 6)

    def test_is_undecided_where_the_interval_says_nothing(self):
        wide = rows_of(Toy(), lambda arm, seed: {"test": 81.0 + 3 * jitter(seed) if arm == "rope" else 80.0})
        assert Toy().judge(wide).word == "undecided"

    def test_exact_ties_are_saturated(self):
        verdict = Toy().judge(rows_of(Toy(), lambda arm, seed: {"test": 80.0}))
        assert (verdict.word, verdict.headline.p) == ("saturated", 1.0)

    def test_says_nothing_without_its_premise(self):
        verdict = Toy().judge(rows_of(Toy(), say(90.0, nope=20.0)))
        told = "its premise fails: accuracy under NoPE"
        assert (verdict.word, verdict.reason) == ("not testable here", told)

    @pytest.mark.parametrize("rope", [60.0, 90.0])
    def test_never_comes_from_fewer_seeds_than_the_minimum(self, rope):
        verdict = Toy().judge(rows_of(Toy(), say(rope), seeds=MIN_SEEDS - 1))
        assert verdict.word == "not testable here"
        assert verdict.findings[1].word == "not testable here"

    def test_names_what_a_missing_run_leaves_too_few_of(self):
        rows = rows_of(Toy(), lambda arm, seed: None if (arm, seed) == ("rope", 3) else say(90.0)(arm, seed))
        verdict = Toy().judge(rows)
        assert (verdict.word, verdict.n_seeds) == ("not testable here", 5)
        assert verdict.reason == "5 of at least 6 seeds for RoPE minus NoPE"

    def test_without_any_run(self):
        verdict = Toy().judge(StudyRows())
        assert (verdict.word, verdict.reason, verdict.n_seeds) == ("not testable here", "not run", 0)
        assert all(finding.evidence is None for finding in verdict.findings)

    def test_models_of_too_few_layers_locate_nothing(self):
        class Deep(Toy):
            least_layers = 4

        rows = rows_of(Deep(), say(90.0))
        assert Deep().judge(rows).reason == "3 layers cannot locate what the paper finds in 4 layers"

    def test_leaves_rows_in_another_precision_out_by_name(self):
        def mixed(arm, seed):
            return {
                **say(90.0)(arm, seed),
                "precision": "bfloat16" if (arm, seed) == ("rope", 0) else "float32",
            }

        verdict = Toy().judge(rows_of(Toy(), mixed))
        assert verdict.word == "not testable here"
        (line,) = verdict.left_out
        assert line.startswith("rope, seed 0 (run ")
        assert line.endswith("computed in bfloat16, not float32")

    def test_other_scales_and_conditions_do_not_count(self):
        rows = rows_of(Toy(), say(90.0), condition="described")
        assert Toy().judge(rows).n_seeds == 0
        assert Toy().judge(rows, "described").word == "reproduced"
        assert Toy().judge(rows, "described", "small").n_seeds == 0

    @pytest.mark.parametrize(
        ("leads", "whole", "without"),
        [
            ((3.0, 3.1, 3.2, 2.9, 3.3, 2.8), "reproduced", ["reproduced"] * 6),
            ((3.0, 3.1, 3.2, 2.9, 3.3, 1.0), "direction only", ["direction only"] * 5 + ["reproduced"]),
            (
                (2.6, 3.0, 2.3, 2.2, 2.8, 2.1),
                "reproduced",
                ["direction only", *["reproduced"] * 3, "direction only", "reproduced"],
            ),
        ],
    )
    def test_is_judged_again_without_each_of_its_seeds(self, leads, whole, without):
        tell = lambda arm, seed: {"test": 80.0 + leads[seed] * (arm == "rope")}  # noqa: E731
        rows, seeds = rows_of(Toy(), tell), range(6)
        verdict = Toy().judge(rows, seeds=seeds)
        words = Toy().words_without_one(rows, verdict, seeds)
        assert (verdict.word, list(words), list(words.values())) == (whole, [*seeds], without)

    def test_seeds_that_were_not_planned_move_no_verdict(self):
        def tell(arm, seed):
            return say(90.0 if seed < 6 else 60.0)(arm, seed)

        rows = rows_of(Toy(), tell, seeds=12)
        planned, later = (Toy().judge(rows, seeds=range(first, first + 6)) for first in (0, 6))
        assert [one.word for one in (planned, later)] == ["reproduced", "contradicted"]
        assert planned.n_seeds == later.n_seeds == 6

    def test_a_planned_seed_of_which_nothing_can_be_read_is_named(self):
        rows = rows_of(Toy(), say(90.0))
        lost = Toy().arms("controlled", "mini", 6)["rope"]
        rows.complaints.append(Complaint("mini.jsonl: torn.", run_name(lost)))
        verdict = Toy().judge(rows, seeds=range(7))
        assert verdict.word == "not testable here"
        assert verdict.reason == "1 planned seed waits for runs of RoPE minus NoPE; 1 run left out"
        assert verdict.left_out == ("mini.jsonl: torn.",)

    def test_a_planned_seed_whose_runs_are_there_may_lack_a_value(self):
        class Learned(Toy):
            def parts(self, seen):
                values = {
                    seed: one for seed, one in seen.minus("rope", "nope", held_out).items() if seed != 6
                }
                yield Part(quantity="x", prediction=AtLeast(2.0), values=values)

        assert Learned().judge(rows_of(Learned(), say(90.0), seeds=7), seeds=range(7)).word == "reproduced"


class TestPredictions:
    def test_one_sided_p_values_are_those_of_the_interval(self):
        values = np.array([1.0, 2.0, 4.0, 3.0, 2.5, 1.5])
        interval = AtLeast(0.0).weigh(values).interval
        assert AtLeast(interval.low).weigh(values).p_reproduced == pytest.approx(ALPHA)
        assert AtLeast(interval.high, null=None).weigh(values).p_contradicted == pytest.approx(ALPHA)
        assert AtMost(interval.high).weigh(values).p_reproduced == pytest.approx(ALPHA)
        assert AtMost(interval.low).weigh(values).p_contradicted == pytest.approx(ALPHA)

    def test_equivalence_asks_for_both_sides(self):
        values = np.array([0.1, -0.3, 0.2, 0.0, -0.1, 0.3])
        assert Within(2.0).weigh(values).p_reproduced < ALPHA
        assert Within(2.0).weigh(values + 5).p_contradicted < ALPHA
        assert Within(2.0).weigh(values - 5).p_contradicted < ALPHA
        assert Within(0.1).weigh(values).p_reproduced > ALPHA

    @pytest.mark.parametrize(
        ("value", "above", "below"), [(3.0, 2**-6, 1.0), (1.0, 1.0, 2**-6), (2.0, 1.0, 1.0)]
    )
    def test_seeds_that_all_agree_decide_unless_they_sit_on_the_edge(self, value, above, below):
        assert one_sided(np.full(6, value), 2.0) == (above, below)

    def test_a_share_of_runs_other_than_half(self):
        some = InRuns(0.1)
        assert some.words() == "in more than 10 % of all runs"
        assert some.weigh(np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0])).p_reproduced == pytest.approx(0.01585)
        assert some.weigh(np.zeros(6)).p_reproduced == 1.0

    def test_some_of_several_fails_only_if_each_falls_short(self):
        chosen, wide = dict(enumerate((1.0, 1.1, 0.9, 1.0, 1.0, 1.1, 0.9))), (0.5, 3.0, -2.0, 1.9, 2.5, 0.1)
        values = np.array(list(chosen.values()))

        def p_contradicted(**others):
            candidates = {"chosen": chosen, **{name: dict(enumerate(one)) for name, one in others.items()}}
            return AtLeast.of_some(2.0, "chosen", candidates).weigh(values).p_contradicted

        assert p_contradicted() < 0.001
        assert p_contradicted(wide=wide) > 0.1
        assert p_contradicted(low=tuple(-4 - one for one in wide)) < 0.01  # Six seeds of it are enough.
        assert p_contradicted(few=(-9.0, -9.1)) == p_contradicted(none=()) == 1.0

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
        assert (evidence.p_reproduced <= ALPHA) == (verdict == "holds")
        assert (evidence.p_contradicted <= ALPHA) == (verdict == "fails")


def words_of(rng, effect, n=6, draws=500):
    """Shares of the words of a part whose true effect is known, in units of its spread."""
    part = Part(quantity="x", prediction=AtLeast(1.0), values={})
    found = Counter(
        PartResult(part=replace(part, values=dict(enumerate(values))), evidence=evidence, enough=True).word
        for values in effect + rng.standard_normal((draws, n))
        for evidence in [part.prediction.weigh(values)]
    )
    return {word: count / draws for word, count in found.items()}


class TestCalibration:
    """Under each null, its word is found no more often than the level, but for chance."""

    SLACK = 0.021  # Three standard errors of a share of 2.5 % of 500 draws.

    @pytest.mark.sampled
    @pytest.mark.parametrize(
        ("effect", "word"),
        [
            (1.0, "reproduced"),
            (1.0, "contradicted"),
            (0.0, "direction only"),
            (0.0, "reproduced"),
            (-1.0, "direction only"),
        ],
    )
    def test_words_under_their_null(self, effect, word):
        found = words_of(np.random.default_rng(0), effect)
        assert found.get(word, 0.0) <= ALPHA + self.SLACK

    def test_each_word_is_found_where_it_is_right(self):
        rng = np.random.default_rng(1)
        assert words_of(rng, 4.0)["reproduced"] > 0.95
        assert words_of(rng, -2.0)["contradicted"] > 0.9

    @pytest.mark.parametrize("n", [6, 12])
    def test_paired_events_at_the_edge(self, n):
        edges = [(0.25, 0.05), (0.5, 0.3), (0.2, 0.0)]  # All of which lose a fifth of the pairs.
        size = np.zeros((len(edges), 2))
        for more in range(n + 1):
            for less in range(n + 1 - more):
                counts = [more, less, n - more - less]
                one = LostInRuns(0.2).weigh(np.repeat([1.0, -1.0, 0.0], counts))
                found = np.array([one.p_reproduced, one.p_contradicted]) <= ALPHA
                chances = [
                    stats.multinomial.pmf(counts, n, [lost, gained, 1 - lost - gained])
                    for lost, gained in edges
                ]
                size += np.outer(chances, found)
        assert size.max() <= ALPHA + 1e-9


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
            assert {one.seed for one in plan} == set(claim.numbers((0, 1), scale))
            assert {one.scale for one in plan if isinstance(one, Experiment)} <= {scale}

    def test_knows_no_other_condition(self, claim):
        with pytest.raises(ConfigError, match=f"claim '{claim.kind}' is tested under .*; got 'ideal'"):
            claim.plan("ideal", "mini", (0,))

    def test_is_inconclusive_without_runs(self, claim):
        for condition in claim.conditions:
            verdict = claim.judge(StudyRows(), condition)
            assert (verdict.word, verdict.n_seeds) == ("not testable here", 0)

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
    with pytest.raises(ConfigError, match=r"claims are numbered 1 to \d+; got 99"):
        chosen_claims(["99"])


def test_the_power_of_a_plan_is_stated():
    assert Toy().power((0,), StudyRows()) == "1 seed decides nothing; 6 are needed."
    assert "5 seeds decide nothing; 6 are needed" in Toy().power(range(5), StudyRows())
    told = Toy().power(range(6), StudyRows())
    assert told == (
        "With 6 seeds the power is 80 % to reproduce the claim if the true mean exceeds the smallest effect "
        "of interest by 1.43 standard deviations between seeds; to confirm the premise if its true mean "
        "exceeds the threshold by 1.43 standard deviations."
    )
    (single,) = chosen_claims(("single-head",))
    assert single.power(range(6), StudyRows()).endswith(
        "to reproduce the claim if it holds in 96 % of all runs, and to contradict it if it holds in 4 %."
    )
    (moved,) = chosen_claims(("partial-deposit",))
    assert moved.power(range(12), StudyRows()).endswith(
        "; to confirm the premise about runs if it holds in 50 % of all runs."
    )


def test_the_power_of_paired_events_says_what_they_can_show():
    (dropout,) = chosen_claims(("dropout",))
    assert dropout.power(range(6), StudyRows()) == "6 seeds decide nothing; 17 are needed."
    assert (
        "to reproduce the claim if no run changes, and to contradict it if 57 % of runs lose the deposit"
        in dropout.power(range(18), StudyRows())
    )
    lost = next(
        part for part in dropout.foreseen(Seen(("rope/0", "rope/0.1"), {})) if "lost" in part.quantity
    )
    assert "to reproduce the claim in no case, and to contradict it in no case" in power_of([lost], 6)


def test_the_power_of_equality_is_of_no_difference():
    class Alike(Toy):
        def parts(self, seen):
            yield Part(quantity="x", prediction=Within(2.0), values=seen.values("nope", held_out))

    told = "the smallest effect of interest, 2 points, is at least 1.66 standard deviations"
    assert told in Alike().power(range(6), StudyRows())
    rows = rows_of(Alike(), lambda arm, seed: {"test": 80.0 + 3 * jitter(seed)})
    spread = 3 * np.std([jitter(seed) for seed in range(6)], ddof=1)
    assert f"{told} ({1.66 * spread:.3g}"[:-1] in Alike().power(range(6), rows)


def test_the_power_of_the_largest_of_several_is_corrected_for_their_number():
    (moved,) = chosen_claims(("partial-deposit",))
    (usual,) = chosen_claims(("partial-rope",))
    means = [
        one.power(range(12), StudyRows()).split("the smallest effect of interest by ")[1].split()[0]
        for one in (moved, usual)
    ]
    assert float(means[0]) == pytest.approx(detectable_difference(12, 1 - 0.05 / 7), abs=0.01)
    assert float(means[1]) == pytest.approx(detectable_difference(12), abs=0.01)


def test_where_rows_tell_the_spread_power_is_in_points():
    rows = rows_of(Toy(), say(90.0))
    spread = np.std([jitter(seed) for seed in range(6)], ddof=1)
    told = Toy().power(range(6), rows)
    assert f"between seeds ({detectable_difference(6) * spread:.3g} points by the seeds so far" in told


def test_a_row_without_scores_gives_no_value():
    one = experiment("distance", "rope")
    lost = replace(row(one), facts=row(one).facts | {"test_accuracy": None})
    seen = Seen.of(StudyRows.of([lost]), {0: {"rope": one}})
    assert seen.values("rope", held_out) == {}


def test_at_a_planned_scale_rows_of_uncommitted_code_are_left_out_by_name():
    single = chosen_claims(("single-head",))[0]
    arms = [single.arms("controlled", "mid", seed)["distance/rope"] for seed in range(3)]
    commits = ("0123456789ab", "0123456789ab-dirty", None)
    rows = StudyRows.of(row(one, commit=name) for one, name in zip(arms, commits, strict=True))
    seen = single.see(rows, "controlled", "mid", range(3))
    assert [seed for _, seed in seen.rows] == [0]
    assert [line.split("), ")[1] for line in seen.left_out] == [
        "made by code that was not committed (0123456789ab-dirty)",
        "made by code that was not committed (None)",
    ]
    explored = StudyRows.of([row(single.arms("controlled", "mini", 6)["distance/rope"], commit=None)])
    assert single.see(explored, "controlled", "mini", (0,)).rows
