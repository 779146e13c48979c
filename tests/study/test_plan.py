"""The plan and the code say the same: headline parts, thresholds, scale, words."""

from pathlib import Path

import pytest
from tests.study.made import jitter, row

from spectrope.lab.ablation.methods import EXAMPLES
from spectrope.lab.ablation.thresholds import DEFAULT_RULE
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import SCALES, experiment
from spectrope.stats.seeds import MIN_SEEDS
from spectrope.study.arms import FEW, TASKS
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.grok_distribution import GROKKED
from spectrope.study.grok_arms import base
from spectrope.study.pilots import Pilots, RateAndEpochs
from spectrope.study.plan import PILOTED, deviations, headline_of, plan, unplanned
from spectrope.study.predictions import ALPHA
from spectrope.study.quantities import LEARNED, REACHED, Seen
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import schedule
from spectrope.study.verdict import WORDS

EVERY = {claim.kind: claim for claim in chosen_claims(()) if claim.kind != "toy"}
ROOT = Path(__file__).parents[2]
OTHER_TABLES = {
    "contraction",
    "dropped-positions",
    "early-learning",
    "extrapolation",
    "intrinsic-deposit",
} | {kind for kind in EVERY if kind.startswith("grok")}  # Their headlines take tables that made-up rows lack.
ROWLESS = {"confounds"}  # Its parts follow from rows; see the test of its headline beside the claim's.


def test_the_plan_has_every_claim_and_no_other():
    assert set(plan()["claims"]) == set(EVERY)


@pytest.mark.parametrize("kind", sorted(set(EVERY) - ROWLESS))
@pytest.mark.parametrize("scale", ["mini", "mid", "paper"])
def test_one_part_has_the_name_threshold_and_unit_that_are_planned(kind, scale):
    claim = EVERY[kind]
    arms = claim.arms(claim.conditions[0], scale, 0)
    (part,) = (p for p in claim.parts(Seen(tuple(arms), {})) if p.quantity == headline_of(kind))
    planned = plan()["claims"][kind]
    assert (part.prediction.interest, part.prediction.unit) == (planned["interest"], planned["unit"])
    assert not part.premise
    premises = {p.quantity: p.prediction.interest for p in claim.parts(Seen(tuple(arms), {})) if p.premise}
    assert premises == planned.get("premises", {})


@pytest.mark.parametrize("kind", sorted(set(EVERY) - ROWLESS))
def test_the_plan_says_of_which_claims_its_runs_lack_the_headline(kind):
    claim = EVERY[kind]
    condition = claim.conditions[0]
    arms = {seed: claim.arms(condition, "mid", seed) for seed in plan()["mid"]["seeds"]}
    planned = StudyRows.of(
        row(one, test=90.0 + jitter(seed), commit="0123456789ab", gaps=(20.0,) * 6)
        for seed, some in arms.items()
        for one in some.values()
        if one in schedule("mid") and Experiment.of(one) is not None
    )
    verdict = claim.judge(planned, condition, "mid", plan()["mid"]["seeds"])
    decidable = verdict.headline is not None and verdict.headline.n_seeds > 0
    if kind not in OTHER_TABLES:
        assert decidable == (not unplanned(kind, "mid"))


@pytest.mark.parametrize("kind", sorted(EVERY))
def test_the_plan_says_how_many_seeds_decide_a_claim(kind):
    planned = plan()["claims"][kind].get("minimum_seeds", plan()["analysis"]["minimum_seeds"])
    assert EVERY[kind].minimum_seeds == planned


def test_an_unknown_claim_has_no_headline():
    assert headline_of("none-such") is None


def test_thresholds_of_the_analysis_are_the_code_s():
    analysis = plan()["analysis"]
    assert analysis["alpha"] == pytest.approx(ALPHA)
    assert (analysis["minimum_seeds"], analysis["saturated_below"]) == (MIN_SEEDS, FEW)
    assert (analysis["learned"], analysis["reached"]) == (LEARNED, REACHED)
    assert analysis["ablated"] == EXAMPLES
    assert set(PILOTED) == set(TASKS)
    assert plan()["claims"]["grok-distribution"]["control"] == GROKKED
    rule = {"gap": DEFAULT_RULE.gap, "share": DEFAULT_RULE.share, "level": DEFAULT_RULE.level}
    assert plan()["deposit"] == rule
    assert analysis["words"] == [word for word in WORDS if word != "not testable here"]


def test_the_scale_is_the_one_that_is_planned():
    planned, one = plan()["mid"], experiment("distance", "rope", scale="mid")
    model, training = one.model, one.training
    assert [planned[name] for name in ("layers", "heads", "head_dim", "d_model", "length", "batch")] == [
        model.n_layers,
        model.n_heads,
        model.head_dim,
        model.d_model,
        model.max_length,
        training.batch_size,
    ]
    assert tuple(planned["betas"]) == training.betas
    assert (planned["weight_decay"], training.warmup) == (training.weight_decay, 0.06)
    assert experiment("counting", "rope", scale="mid").model.max_length == planned["length"]
    sizes = {task: experiment(task, "rope", scale="mid") for task in planned["examples"]}
    assert {task: one.n_train + one.n_test for task, one in sizes.items()} == planned["examples"]
    assert "mid" in SCALES


def test_grokking_runs_are_the_planned_ones():
    planned, one = plan()["grokking"], base("mid", 0)
    assert (planned["p"], planned["fraction"]) == (one.task.p, one.task.fraction)
    assert planned["steps"] == one.training.steps
    runs = [run for run, slot in schedule("mid").items() if slot.section == "grokking"]
    random = [run.seed for run in runs if run == base("mid", run.seed)]
    assert sorted(random) == list(range(12))
    assert len(runs) == 18


def test_rates_and_epochs_at_mid_are_those_that_pilots_chose():
    """From the day on which the plan has them: the rules' choice from the committed rows, and the scale's."""
    chosen = plan()["mid"].get("chosen", {})
    pilots, rows = Pilots("mid"), StudyRows.load(Pilots("mid").file(ROOT / "results"))
    for task, one in chosen.items():
        training = experiment(task, "rope", scale="mid").training
        assert (one["learning_rate"], one["epochs"]) == (training.learning_rate, training.epochs)
        assert pilots.choice(task, rows) == RateAndEpochs(one["learning_rate"], one["epochs"])


def test_at_mid_all_claims_count_the_planned_seeds():
    for claim in EVERY.values():
        assert claim.numbers(plan()["mid"]["seeds"], "mid") == plan()["mid"]["seeds"]


def test_every_deviation_says_what_changed_and_what_had_been_seen():
    assert all(set(one) == {"claims", "change", "seen"} for one in deviations())
