"""The plan's runs: their order, what is left out, and the hours of training that end them."""

import pytest
from tests.study.made import row

from spectrope.lab.job import Job
from spectrope.lab.training.scales import experiment
from spectrope.study.arms import planned
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.plan import plan
from spectrope.study.rows import StudyRows
from spectrope.study.schedule import (
    affordable,
    first_gaps,
    in_turn,
    out_of_turn,
    schedule,
    scheduled,
    spent_seconds,
    unclocked_seconds,
    wall_seconds,
)
from spectrope.study.study import Study

ROPE, NOPE = (planned("distance", name, scale="mid", seed=0) for name in ("rope", "nope"))
HOUR = 3600.0


def test_every_arm_that_the_plan_lists_exists():
    claims = {claim.kind: claim for claim in chosen_claims(())}
    for section in plan().values():
        for entry in section.get("order", ()):
            conditions = entry.get("conditions", section["conditions"])
            arms = {arm for name in conditions for arm in claims[entry["claim"]].arms(name, "mid", 0)}
            assert set(entry["arms"]) <= arms


def test_the_first_runs_are_those_of_rope_then_of_nope_under_both_conditions():
    first = list(schedule("mid"))[:24]
    assert [one.encoding_name for one in first] == ["rope"] * 12 + ["nope"] * 12
    assert [one.condition for one in first] == 2 * (["controlled"] * 6 + ["released"] * 6)
    assert [one.seed for one in first] == 4 * list(range(6))
    assert {one.task.kind for one in first} == {"distance"}


def test_a_study_at_a_planned_scale_runs_what_the_plan_has_in_its_order():
    jobs = Study((SingleHead(),), ("controlled",), "mid", tuple(range(6))).jobs()
    places = [schedule("mid")[job.experiment].place for job in jobs]
    assert places == sorted(places)
    listed = {(job.experiment.task.kind, job.experiment.encoding_name) for job in jobs}
    assert ("distance", "random") in listed
    assert ("counting", "alibi") not in listed


def test_conditions_and_seeds_beyond_the_plan_have_no_runs():
    six = tuple(range(6))
    assert not Study((SingleHead(),), ("described",), "mid", six).jobs()
    assert not Study((SingleHead(),), ("controlled",), "mid", (20, 21)).jobs()
    (verdict,) = Study((SingleHead(),), ("described",), "mid", six).verdicts(StudyRows())
    assert (verdict.word, verdict.reason) == ("not testable here", "not planned at mid")


def test_a_scale_without_a_plan_is_left_alone():
    job = Job(experiment("distance", "rope", scale="mini"), ())
    assert scheduled([job], "mini") == [job]
    assert affordable([job], lambda _: 1e9, {}, "mini") == [job]


@pytest.mark.parametrize(("spent", "n"), [(0.0, 2), (38.5, 1), (39.5, 0)])
def test_core_hours_end_the_runs_of_their_section(spent, n):
    jobs = [Job(ROPE, ()), Job(NOPE, ())]
    fitting = affordable(jobs, lambda _: HOUR, {"mid": spent * HOUR}, "mid")
    assert fitting == jobs[:n]


def test_a_shorter_run_does_not_overtake_one_that_does_not_fit():
    jobs = [Job(ROPE, ()), Job(NOPE, ())]
    asked = []

    def seconds(job):
        asked.append(job)
        return HOUR if job.experiment == ROPE else 1.0

    assert affordable(jobs, seconds, {"mid": 39.5 * HOUR}, "mid") == []
    assert asked == jobs[:1]  # What it takes to time the other would be lost.


def test_grokking_has_hours_of_its_own():
    (grok, *_) = (one for one, slot in schedule("mid").items() if slot.section == "grokking")
    jobs = [Job(ROPE, ()), Job(grok, ())]
    assert affordable(jobs, lambda _: HOUR, {"mid": 40 * HOUR}, "mid") == jobs[1:]


def test_time_is_counted_on_one_core_with_that_of_pilots():
    twice = row(NOPE, seconds=50.0, machine={"threads": 2})
    rows = [row(ROPE, seconds=100.0), twice, row(experiment("counting", "alibi", scale="mid"), seconds=7.0)]
    pilots = [row(experiment("distance", "rope", scale="mid", seed=1000), seconds=30.0)]
    assert spent_seconds(rows, pilots, "mid") == {"mid": 230.0}


def test_waiting_for_a_core_is_not_counted():
    waited = row(ROPE, seconds=9000.0, cpu_seconds=550.0, machine={"threads": 1})
    assert spent_seconds([waited], [], "mid") == {"mid": 550.0}
    assert spent_seconds([waited], [], "mid", wall_seconds) == {"mid": 9000.0}
    assert spent_seconds([waited, row(NOPE, seconds=100.0)], [], "mid", unclocked_seconds) == {"mid": 100.0}


def test_on_a_gpu_the_processor_waits_and_wall_time_counts():
    gpu = row(ROPE, seconds=100.0, cpu_seconds=5.0, machine={"threads": 1, "accelerator": "H200"})
    assert spent_seconds([gpu], [], "mid") == {"mid": 100.0}


def test_naming_a_later_claim_does_not_change_the_order():
    first, *_, later = (one for one, slot in schedule("mid").items() if slot.section == "mid")
    assert in_turn([Job(later, ())], StudyRows(), "mid") == []
    assert first in first_gaps([Job(later, ())], StudyRows(), "mid")
    assert in_turn([Job(first, ())], StudyRows(), "mid") == [Job(first, ())]
    earlier = StudyRows.of(row(one) for one in schedule("mid") if one != later)
    assert in_turn([Job(later, ())], earlier, "mid") == [Job(later, ())]


def test_gaps_of_a_section_that_nothing_waits_in_are_not_told():
    sections = {slot.section: one for one, slot in reversed(schedule("mid").items())}
    gaps = first_gaps([Job(sections["grokking"], ())], StudyRows(), "mid")
    assert {schedule("mid")[run].section for run in gaps} == {"grokking"}


def test_rows_are_out_of_turn_without_an_earlier_run_or_before_it_began():
    first, second, third, *_ = (one for one, slot in schedule("mid").items() if slot.section == "mid")

    def ended(one, minute):
        return row(one, seconds=100.0, finished_at=f"2026-11-01T10:{minute:02}:00+00:00")

    in_order = StudyRows.of([ended(first, 10), ended(second, 11), ended(third, 11)])
    assert out_of_turn(in_order, "mid") == []
    swapped = StudyRows.of([ended(first, 10), ended(second, 20), ended(third, 15)])
    assert [late.experiment for late in out_of_turn(swapped, "mid")] == [third]
    missing = StudyRows.of([ended(first, 10), ended(third, 15)])
    assert [late.experiment for late in out_of_turn(missing, "mid")] == [third]


def test_grokking_waits_for_no_run_of_the_first_paper():
    grok = next(one for one, slot in schedule("mid").items() if slot.section == "grokking")
    assert in_turn([Job(grok, ())], StudyRows(), "mid") == [Job(grok, ())]
