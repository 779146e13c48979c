"""Claim 11 on rows with known answers."""

import pytest
from tests.claims.made import deposits, jitter, rows_of

from spectrope.claims.confounds import Confounds, switched
from spectrope.claims.distance_ordering import DistanceOrdering
from spectrope.claims.seen import Seen

CLAIM = Confounds()


PROTOCOLS = ("value-bias-unrestored", "all", "value-bias-unrestored-all")


def say(effects, whole=-60.0, encoding="nope"):
    """One encoding falls by `whole` under `released`, and by each switch's own effect."""

    def tell(arm, seed):
        name, setting = arm.split("/")
        change = {"released": whole, **effects}.get(setting, 0.0) if name == encoding else 0.0
        tables = {f"deposit-{protocol}": deposits((1.0, 1.0, 1.0)) for protocol in PROTOCOLS}
        return {"test": 95.0 + change + jitter(seed) * (setting == "R2"), "tables": tables}

    return tell


def judged(tell):
    return CLAIM.judge(rows_of(CLAIM, tell, condition="released"), "released")


def test_one_switch_that_makes_most_of_the_difference_holds():
    verdict = judged(say({"R1": -50.0, "R2": -5.0}))
    assert verdict.outcome == "holds"
    (finding,) = verdict.findings
    assert finding.part.quantity == "NoPE, held-out accuracy: R1 alone minus half of the difference"
    assert finding.part.note == "the difference is -60.0 points"
    assert finding.evidence.interval.estimate == pytest.approx(20.0)


def test_a_difference_that_no_switch_makes_alone_fails():
    assert judged(say({"R1": -20.0, "R2": -20.0, "R7": -19.0})).outcome == "fails"


def test_a_switch_about_half_way_is_inconclusive():
    assert judged(say({"R2": -30.0})).outcome == "inconclusive"


def test_no_difference_leaves_nothing_to_explain():
    verdict = judged(say({}, whole=-1.0))
    assert verdict.findings == ()
    assert (verdict.outcome, verdict.reason) == ("inconclusive", "no difference that is worth explaining")


def test_the_ablation_s_own_switches_act_on_the_gap():
    def tell(arm, seed):
        tables = {"deposit": deposits((2.0, 1.0, 1.0))}
        if arm == "rope/controlled":
            tables |= {
                "deposit-value-bias-unrestored": deposits((30.0, 1.0, 1.0)),
                "deposit-all": deposits((2.0,)),
            }
        if arm == "rope/released":
            tables["deposit-value-bias-unrestored-all"] = deposits((32.0 + jitter(seed), 1.0, 1.0))
        return {"tables": tables}

    verdict = judged(tell)
    assert verdict.outcome == "holds"
    assert verdict.findings[0].part.quantity.startswith("RoPE, gap in shallow layers: R9 alone")


def test_switches_that_change_nothing_are_not_run():
    assert "R3" in switched("rope", "mini", 0)
    assert "R5" in switched("alibi", "mini", 0)
    assert {"R3", "R4", "R5", "R6"}.isdisjoint(switched("nope", "mini", 0))


def test_ends_are_runs_of_claim_1_and_only_two_arms_are_ablated_again():
    plan = CLAIM.plan("released", "mini", (0,))
    for condition in ("controlled", "released"):
        assert set(DistanceOrdering().plan(condition, "mini", (0,))) <= set(plan)
    extra = {
        job.experiment.condition: job.tables[1:]
        for job in CLAIM.jobs("released", "mini", (0,))
        if job.tables[1:]
    }
    assert extra == {
        "controlled": ("ablation-value-bias-unrestored", "ablation-all"),
        "released": ("ablation-value-bias-unrestored-all",),
    }


def test_effects_are_there_for_the_figure():
    rows = rows_of(CLAIM, say({"R1": -50.0}), condition="released")
    seen = Seen.of(rows, {seed: CLAIM.arms("released", "mini", seed) for seed in range(6)})
    (effects,) = [one for one in CLAIM.effects(seen) if one.subject == "NoPE, held-out accuracy"]
    assert effects.single["R1"] == pytest.approx(dict.fromkeys(range(6), -50.0))
    assert effects.whole[0] == pytest.approx(-60.0)
