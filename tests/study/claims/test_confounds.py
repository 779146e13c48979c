"""Claim 11 on rows with known answers."""

from dataclasses import replace

import pytest
from tests.study.made import deposits, jitter, rows_of, together

from spectrope.study.arms import NAMES_AND_MLA, TASKS, arm_name
from spectrope.study.claims import confounds
from spectrope.study.claims.confounds import Confounds, switched
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.page.cells import cell
from spectrope.study.page.headline import headline_note
from spectrope.study.quantities import Seen, own_ablation

CLAIM = Confounds()


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Some subjects stand for all sixteen, so that plans are short."""
    monkeypatch.setattr(confounds, "TASKS", {"distance": TASKS["distance"]})
    names = {name: NAMES_AND_MLA[name] for name in ("rope", "nope", "mla")}
    monkeypatch.setattr(confounds, "NAMES_AND_MLA", names)


EXTRA = ("unrestored", "latent-columns", "all")


def say(effects, whole=-60.0, encoding="distance/nope"):
    """One encoding falls by `whole` under `released`, and by each switch's own effect."""

    def tell(arm, seed):
        name, _, setting = arm.rpartition("/")
        change = {"released": whole, **effects}.get(setting, 0.0) if name == encoding else 0.0
        tables = {f"deposit-{protocol}": deposits((1.0, 1.0, 1.0)) for protocol in EXTRA}
        return {"test": 95.0 + change + jitter(seed) * (setting == "R2"), "tables": tables}

    return tell


def added(tell):
    """Rows without those of `released` less one switch."""
    return lambda arm, seed: None if "/without " in arm else tell(arm, seed)


def judged(tell):
    return CLAIM.judge(rows_of(CLAIM, added(tell), condition="released", seeds=12), "released")


def test_one_switch_that_makes_most_of_the_difference_holds():
    verdict = judged(say({"R1": -50.0, "R2": -5.0}))
    assert together(verdict) == "reproduced"
    (finding,) = verdict.findings
    assert (
        finding.part.quantity
        == "NoPE, Task 1, held-out accuracy: the strongest switch alone minus half of the difference"
    )
    assert finding.part.note == "R1; the difference is -60.0 points"
    assert finding.evidence.interval.estimate == pytest.approx(20.0)


def test_a_model_that_does_not_see_the_order_of_tokens_is_not_called_unfinished():
    def tell(arm, seed):
        name, _, setting = arm.rpartition("/")
        if name != "distance/nope":
            return {}
        blind = setting == "R1" or (setting.startswith(("released", "without")) and setting != "without R1")
        level = 20.0 if blind else 40.0 if setting == "without R1" else 80.0
        return {"test": level + jitter(seed), "train": level + 3.0}

    verdict = CLAIM.judge(rows_of(CLAIM, tell, condition="released", seeds=12), "released")
    part = verdict.headline.part
    assert part.untrained == "NoPE, controlled 83.0 %"
    assert "at most 21.3 % is possible" in part.beside
    assert (
        "removing R1 alone from `released` undoes 20.0 of 60.0 points, 10.0 [10.0 to 10.0] short of"
        in part.beside
    )
    assert part.beside in headline_note(verdict)
    missed = next(one.part for one in verdict.findings if "whose removal" in one.part.quantity)
    assert missed.untrained == "NoPE, controlled 83.0 %, NoPE, without R1 43.0 %"


def test_a_difference_that_no_switch_makes_alone_fails():
    assert together(judged(say({"R1": -20.0, "R2": -20.0, "R7": -19.0}))) == "contradicted"


def test_a_switch_about_half_way_is_inconclusive():
    assert together(judged(say({"R2": -30.0}))) == "undecided"


def test_no_difference_leaves_nothing_to_explain():
    verdict = judged(say({}, whole=-1.0))
    assert verdict.findings == ()
    assert (verdict.word, verdict.reason) == ("not testable here", "no difference that is worth explaining")


def gaps_of(arm, own, released):
    def tell(name, seed):
        said = {"tables": {"deposit": deposits((2.0, 1.0, 1.0))}}
        if name == f"{arm}/controlled":
            said["tables"] |= {f"deposit-{table}": deposits(gaps) for table, gaps in own.items()}
        if name == f"{arm}/released":
            said["theirs"] = (released + jitter(seed), 1.0, 1.0)
        return said

    return tell


def test_the_ablation_s_own_switches_act_on_the_gap():
    own = {"unrestored": (30.0, 1.0, 1.0), "all": (2.0, 1.0, 1.0)}
    verdict = judged(gaps_of("distance/rope", own, 32.0))
    assert together(verdict) == "reproduced"
    assert verdict.findings[0].part.quantity.startswith("RoPE, Task 1, gap in shallow layers: ")
    assert verdict.findings[0].part.note.startswith("R9; ")


def test_latent_attention_has_its_own_way_of_ablation():
    own = {"latent-columns": (2.0, 1.0, 40.0), "all": (2.0, 1.0, 1.0)}
    verdict = judged(gaps_of("distance/mla", own, 41.0))
    assert together(verdict) == "reproduced"
    assert verdict.findings[0].part.quantity.startswith("MLA, Task 1, gap in any layer: ")
    assert verdict.findings[0].part.note.startswith("R12; ")


def test_switches_that_change_nothing_are_not_run():
    assert "R3" in switched("distance", "rope", "mini", 0)
    assert "R5" in switched("counting", "alibi", "mini", 0)
    assert {"R3", "R4", "R5", "R6"}.isdisjoint(switched("distance", "nope", "mini", 0))
    assert "R8" not in switched("counting", "rope", "mini", 0)
    assert {"R11", "R14"} <= set(switched("distance", "mla", "mini", 0))


def test_ends_are_runs_of_claim_1_and_ablated_as_the_switches_ask(monkeypatch):
    monkeypatch.undo()  # Of all encodings.
    plan = CLAIM.plan("released", "mini", (0,))
    for condition in ("controlled", "released"):
        assert set(DistanceOrdering().plan(condition, "mini", (0,))) <= set(plan)
    extra = {
        (job.experiment.task.kind, job.experiment.encoding_name, job.experiment.condition): job.tables[1:]
        for job in CLAIM.jobs("released", "mini", (0,))
        if job.tables[1:]
    }
    assert extra["distance", "rope", "controlled"] == ("ablation-unrestored", "ablation-all")
    assert extra["distance", "mla", "controlled"] == ("ablation-all", "ablation-latent-columns")
    assert extra["distance", "mla", "released"] == ("ablation-latent-columns-unrestored-all",)
    assert extra["distance", "rope", "released"] == ("ablation-unrestored-all",)
    assert {task for task, *_ in extra} == {"distance"}
    assert {condition for *_, condition in extra} == {"controlled", "released"}


def ends(tell):
    """Rows of both ends alone."""
    return lambda arm, seed: tell(arm, seed) if arm.endswith(("released", "controlled")) else None


def asked(rows, seeds=6):
    """Whose switches are planned."""
    jobs = CLAIM.jobs("released", "mini", range(seeds), rows)
    left = [job.experiment for job in jobs if not rows.covers(job)]
    return {(one.task.kind, one.encoding_name) for one in left if one.condition.startswith("R")}


def test_switches_are_planned_once_a_difference_is_open():
    def tell(arm, seed):
        whole = -60.0 if arm == "distance/nope/released" else jitter(seed) * arm.endswith("released")
        return {"test": 90.0 + whole}

    assert asked(rows_of(CLAIM, ends(tell), condition="released")) == {("distance", "nope")}
    assert asked(rows_of(CLAIM, ends(tell), condition="released", seeds=5)) == set()


@pytest.mark.parametrize("change", [{"theirs": (40.0, 1.0, 1.0)}, {"test": 60.0}])
def test_either_quantity_of_a_subject_asks_for_its_switches(change):
    def tell(arm, seed):
        return change if arm == "distance/rope/released" else {}

    assert asked(rows_of(CLAIM, ends(tell), condition="released")) == {("distance", "rope")}


def test_every_switch_must_fall_short_for_the_claim_to_fail():
    def tell(arm, seed):
        base = say({"R1": -27.0, "R2": -26.5, "R7": -5.0})(arm, seed)
        noise = 12 * jitter(seed) if arm == "distance/nope/R2" else 0.0
        return base | {"test": base["test"] + noise}

    assert together(judged(tell)) == "undecided"
    missing = lambda arm, seed: None if arm == "distance/nope/R2" else say({"R1": -1.0})(arm, seed)  # noqa: E731
    assert together(judged(missing)) == "undecided"


def test_a_small_difference_over_few_seeds_is_not_settled():
    def tell(arm, seed):
        return {"test": 90.0 - 4 * arm.endswith("released")}

    few = rows_of(CLAIM, ends(tell), condition="released", seeds=5)
    verdict = CLAIM.judge(few, "released")
    assert together(verdict) == "undecided"
    first = verdict.findings[0].part
    assert first.quantity == "RoPE, Task 1, held-out accuracy: size of the difference"
    assert first.note == "not known to be worth explaining, so that no switch is judged"


def test_a_difference_about_the_smallest_of_interest_is_told_and_not_explained():
    def tell(arm, seed):
        change = (-4.0 + 3 * jitter(seed)) * (arm == "distance/nope/released")
        return {"test": 90.0 + change}

    rows = rows_of(CLAIM, ends(tell), condition="released")
    assert asked(rows) == set()
    verdict = CLAIM.judge(rows, "released")
    (finding,) = verdict.findings
    told = "the existing rows do not determine the headline part"
    assert (verdict.word, verdict.reason, finding.n_seeds) == ("not testable here", told, 6)
    assert finding.evidence.interval.estimate == pytest.approx(4.0)
    assert cell(finding, verdict.word).startswith("4.0 [")


def test_effects_are_there_for_the_figure():
    rows = rows_of(CLAIM, say({"R1": -50.0}), condition="released")
    seen = Seen.of(rows, {seed: CLAIM.arms("released", "mini", seed) for seed in range(6, 12)})
    (effects,) = [one for one in CLAIM.effects(seen) if one.subject == "NoPE, Task 1, held-out accuracy"]
    assert effects.single["R1"] == pytest.approx(dict.fromkeys(range(6, 12), -50.0))
    assert effects.whole[6] == pytest.approx(-60.0)


def test_a_switch_whose_removal_undoes_the_difference_is_told_and_decides_nothing():
    def tell(arm, seed):
        setting = arm.rpartition("/")[2]
        left = {"without R1": -5.0, "without R2": -50.0}.get(setting, -60.0)
        fallen = arm.startswith("distance/nope/") and setting not in ("controlled", "R1", "R2", "R7", "R8")
        noise = jitter(seed) * (setting == "without R1")
        return {"test": 95.0 + noise + left * fallen}

    verdict = CLAIM.judge(rows_of(CLAIM, tell, condition="released"), "released")
    added, removed = (one for one in verdict.findings if one.part.quantity.startswith("NoPE, Task 1"))
    assert added.headline
    assert not removed.headline
    told = "NoPE, Task 1, held-out accuracy: the switch whose removal undoes most of it, minus half of the"
    assert removed.part.quantity == f"{told} difference"
    assert removed.part.note == "R1; the difference is -60.0 points"
    assert removed.evidence.interval.estimate == pytest.approx(25.0)
    assert removed.word == "reproduced"


def test_switches_are_removed_from_the_released_run_one_at_a_time():
    arms = switched("distance", "nope", "mini", 0)
    released, masked, keyed = (arms[name] for name in ("released", "without R1", "without R2"))
    assert masked.condition == "released without R1"
    assert masked.model == replace(released.model, causal=True)
    assert keyed.model == replace(released.model, memory="hidden")
    assert arms["without R15"].training == replace(released.training, betas=(0.9, 0.98))
    names = {name.removeprefix("without ") for name in arms if name.startswith("without ")}
    assert names == {name for name in arms if name.startswith("R")}
    assert not any(name.startswith("without ") for name in switched("counting", "nope", "mini", 0))


def test_released_without_a_switch_is_ablated_as_released_is():
    arms = switched("distance", "mla", "mini", 0)
    assert own_ablation(arms["without R1"]) == own_ablation(arms["released"])
    assert own_ablation(arms["R1"]) == own_ablation(arms["controlled"]) == "ablation"


def test_ends_that_have_not_finished_training_are_named():
    assert arm_name("distance/nope/released") == "NoPE, released"
    assert arm_name("counting/12") == "RoPE on 12 heads"
    assert arm_name("mla") == "MLA"
