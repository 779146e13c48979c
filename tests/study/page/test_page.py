"""The page of a study, from rows alone."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tests.study.made import deposits, jitter, rows_of

from spectrope.figures.save import write_spec
from spectrope.figures.spec import panels_spec
from spectrope.store.records import Complaint
from spectrope.study.claim import chosen_claims
from spectrope.study.claims.confounds import ConfoundEffects, Confounds
from spectrope.study.claims.contraction import ContractionClaim
from spectrope.study.claims.counting_ordering import CountingText
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.extrapolation import Extrapolation
from spectrope.study.claims.grok_med import GrokMed
from spectrope.study.claims.high_frequencies import HighFrequencies
from spectrope.study.claims.partial_deposit import PartialDeposit
from spectrope.study.claims.partial_rope import PartialRoPE
from spectrope.study.claims.tuned import DistanceOrderingTuned, tuned_forms
from spectrope.study.page import write_replication
from spectrope.study.page.cells import cell
from spectrope.study.page.extras.confounds import waterfall, waterfalls
from spectrope.study.page.headline import headline_cell, headline_note
from spectrope.study.page.page import Ahead, machines
from spectrope.study.page.sections import ClaimSection, families, left_open
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study


def study(*claims, conditions=("controlled", "described", "released"), seeds=range(6)):
    return Study(claims, conditions, "mini", tuple(seeds))


def say(arm, seed):
    return {"test": 95.0 if arm == "rope" else 40.0 + jitter(seed), "curve": (30.0, 40.0)}


def test_the_page_opens_with_a_verdict_for_each_claim(tmp_path):
    claims = chosen_claims(())
    page = write_replication(study(*claims, seeds=(0,)), StudyRows(), tmp_path / "replication.md").read_text()
    head, own = page.split("One **headline part** decides")[0].split("### Our own predictions")
    for claim in claims:
        place = own if claim.ours else head
        line = next(one for one in place.splitlines() if one.startswith(f"| {claim.number}. [{claim.title}]"))
        assert f"(#{claim.kind})" in line
        assert claim.quote in line
        assert f"({claim.source})" in line
        assert f'<a id="{claim.kind}"></a>' in page
        assert claim.unplanned in page
    lines = [line for line in (head + own).splitlines() if line.startswith("| ")]
    assert len(lines) == len(claims) + 4
    assert not (tmp_path / "images").exists()  # Nothing has been run.
    assert "(#single-head) | controlled | 12 | 12 | 0 |" in page
    assert "| not testable here | not testable here |" in head
    assert "`controlled` and `described` and `released`: not testable here: not run." in head
    assert "at `mini` of 3, layer 0 alone. Layers and heads count from 0;" in page
    assert "Rates were chosen by accuracy on one seed" in page


def test_parts_that_no_run_has_are_listed_below_the_table(tmp_path):
    rows = rows_of(DistanceOrdering(), lambda arm, seed: None if arm == "t5" else say(arm, seed))
    page = write_replication(study(DistanceOrdering()), rows, tmp_path / "replication.md").read_text()
    (listed,) = (line for line in page.splitlines() if line.startswith("Without a seed that counts: "))
    told = listed.removeprefix("Without a seed that counts: ").removesuffix(".").split("; ")
    assert "RoPE minus relative, held-out accuracy (at least 0.2 log odds)" in told
    names = [name.rpartition(" (")[0] for name in told]
    assert all("relative" in name or "each other encoding" in name for name in names)
    lines = [line for line in page.splitlines() if line.startswith(tuple(f"| {name} |" for name in names))]
    assert lines == []
    assert "RoPE minus relative" not in (tmp_path / "images/replication/1-distance-ordering.svg").read_text()


def test_numbers_and_pictures_come_from_the_rows(tmp_path):
    rows = rows_of(DistanceOrdering(), say)
    rows.complaints.append(Complaint("mini.jsonl, line 7: no record with a checksum."))
    page = write_replication(study(DistanceOrdering()), rows, tmp_path / "replication.md").read_text()
    left = "not testable here"
    line = next(line for line in page.splitlines() if line.startswith("| 1. [Task 1: RoPE ahead"))
    assert re.search(rf"\| \*\*reproduced\*\* 3\.\d\d \[3.*\] log odds, n = 6 \| {left} \| {left} \|$", line)
    assert "`controlled`: strongest rival: absolute" in page
    line = next(line for line in page.splitlines() if line.startswith("| RoPE minus NoPE, held-out"))
    assert "| at least 0.2 log odds | 5.8 | 3." in line
    assert "reproduced" not in line  # A part that decides nothing has no word.
    assert "95.00 and 40.00 %" in line
    for name in ("1-distance-ordering", "1-distance-ordering-more"):
        drawn = (tmp_path / "images" / "replication" / f"{name}.svg").read_text()
        assert drawn.startswith("<svg")
        assert f"images/replication/{name}.svg" in page
    assert "line 7: no record with a checksum" in page
    assert "36 runs, 0.3 hours of one core for training" in page


@pytest.mark.parametrize(
    ("seeds", "test", "told"),
    [
        (6, 90.0, "**reproduced** 1."),
        (6, 61.5, "**undecided** "),
        (3, 95.0, "not testable here"),
    ],
)
def test_a_verdict_is_a_word_with_its_effect_or_a_reason(seeds, test, told):
    claim = PartialRoPE()
    rows = rows_of(
        claim, lambda arm, seed: {"test": test + 5 * jitter(seed) if arm == "8" else 60.0}, seeds=seeds
    )
    verdict = claim.judge(rows)
    assert headline_cell(verdict).startswith(told)
    reason = "not testable here: 3 of at least 6 seeds for RoPE on all heads minus on a quarter"
    assert headline_note(verdict).startswith(reason) == (seeds == 3)


def test_claims_of_another_plan_are_corrected_by_themselves():
    claims = (PartialRoPE(), Extrapolation(), HighFrequencies())
    sections = [ClaimSection(one, [one.judge(StudyRows())], [], {}, "") for one in claims]
    together = [[verdict.claim for verdict in family] for family in families(sections)]
    assert together == [["partial-rope", "extrapolation"], ["high-frequencies"]]


def test_a_word_that_the_number_of_decisions_leaves_open_is_marked():
    claim = PartialRoPE()

    def judged(spread):
        rows = rows_of(
            claim, lambda arm, seed: {"test": 80.0 + spread * jitter(seed) if arm == "8" else 60.0}
        )
        return claim.judge(rows)

    sure, weak = judged(0.5), replace(judged(11.0), claim="weak")
    assert sure.word == weak.word == "reproduced"
    assert left_open([weak]) == set()
    assert left_open([sure, weak, *(replace(weak, claim=name) for name in "abcdefgh")]) >= {
        ("weak", "controlled")
    }
    assert "**reproduced**† " in headline_cell(weak, left_open([weak] * 10))


def test_a_page_is_the_same_when_it_is_written_again(tmp_path):
    rows = rows_of(DistanceOrdering(), say)
    for name in ("first", "second"):
        write_replication(study(DistanceOrdering()), rows, tmp_path / name / "replication.md")
    first, second = (sorted((tmp_path / name).rglob("*.*")) for name in ("first", "second"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert len(first) == 4


def test_partial_rope_is_drawn_against_its_heads(tmp_path):
    rows = rows_of(PartialRoPE(), lambda arm, seed: {"test": 40 + 5 * int(arm) + jitter(seed)})
    write_replication(study(PartialRoPE()), rows, tmp_path / "replication.md")
    assert "heads with RoPE" in (tmp_path / "images/replication/5-partial-rope-more.svg").read_text()


def test_two_quantities_are_drawn_against_each_other(tmp_path):
    def tell(arm, seed):
        lost = 30.0 + 5 * len(arm) + jitter(seed)
        lengths = {1.0: 90.0, 1.5: 90.0 - lost, 2.0: 90.0 - lost, 4.0: 90.0 - lost}
        known = {"gaps": (len(arm) + jitter(seed), 1.0, 1.0), "lengths": lengths}
        if (arm, seed) == ("rope", 13):  # It has not learned the task.
            return known | {"test": 5.0, "lengths": dict.fromkeys(lengths, 5.0)}
        return known

    write_replication(study(Extrapolation()), rows_of(Extrapolation(), tell), tmp_path / "replication.md")
    drawn = (tmp_path / "images/replication/9-extrapolation-more.svg").read_text()
    assert {"largest gap, points", "RoPE, dropout 0.3", "αG_e + J"} <= set(
        re.findall(r"(?<=>)[^<]+(?=</text>)", drawn)
    )
    assert drawn.count('aria-roledescription="circle"') == 8 * 6
    assert drawn.count('aria-roledescription="line mark"') == 8  # An encoding each, by length.
    assert 'length tested at over length of training: 1; accuracy, %: 90; arm: RoPE"' in drawn


def test_contraction_is_drawn_head_by_head(tmp_path):
    def tell(arm, seed):
        heads = {"layer": [0, 0, 1], "head": [0, 1, 0], "toeplitz": [1.0, 1.0, 1.0]}
        ratios = {"contraction_spectral": [0.9, None, 1.2 + 0.1 * jitter(seed)]}
        return {"tables": {"spectrum": pl.DataFrame(heads | ratios)}}

    write_replication(
        study(ContractionClaim()), rows_of(ContractionClaim(), tell), tmp_path / "replication.md"
    )
    drawn = (tmp_path / "images/replication/8-contraction-more.svg").read_text()
    assert drawn.count("layer, heads side by side: 0; ratio of spectral norms: 0.9") == 6
    assert drawn.count("layer, heads side by side: 1") == 6


def test_confounds_are_drawn_as_a_waterfall(tmp_path):
    def tell(arm, seed):
        effect = {"R1": -30.0, "released": -50.0}.get(arm.split("/")[2], 0.0)
        return {
            "test": 95.0 + effect * arm.startswith("distance/nope"),
            "tables": {"deposit": deposits((1.0,))},
        }

    seen = Confounds().see(rows_of(Confounds(), tell, condition="released", seeds=2), "released", "mini")
    (effects,) = [one for one in Confounds().effects(seen) if one.subject.startswith("NoPE, Task 1, held")]
    panels = waterfalls({"released": seen})
    assert [panel.title for panel in panels].count(effects.subject) == 1
    drawn = write_spec(panels_spec(panels, 330, 2), tmp_path / "waterfall.svg").read_text()
    for word in ("together", "released", effects.subject):
        assert word in drawn


def test_a_waterfall_is_of_seeds_that_have_all_steps_and_else_of_the_whole_alone():
    whole = {6: -50.0, 7: -50.0, 8: -90.0}
    part = {6: -30.0, 7: -30.0}

    def bars(single):
        steps = waterfall(ConfoundEffects("distance/nope", "NoPE", whole, single, {})).layers["steps"]
        return {bar["step"]: bar["to"] - bar["from"] for bar in steps.rows}

    assert bars({"R1": part, "R2": {6: 0.0, 8: 0.0}}) == {
        "R1": -30,
        "R2": 0,
        "together": -20,
        "released": -50,
    }
    alone = {"released": pytest.approx(-190 / 3)}
    assert bars({}) == bars({"R1": part, "R2": {}}) == alone


def test_a_page_of_fresh_seeds_says_so(tmp_path):
    fresh = replace(study(DistanceOrdering()), seeds=(6, 7))
    page = write_replication(fresh, rows_of(DistanceOrdering(), say), tmp_path / "replication.md").read_text()
    assert "This page repeats the tests on new seeds; the first 6 do not count." in page
    assert "| not testable here | not testable here | not testable here |" in page


def test_runs_that_lack_a_measurement_are_told_from_runs_that_were_not_made(tmp_path):
    rows = rows_of(Extrapolation(), lambda arm, seed: {} if seed < 14 else None)
    page = write_replication(
        study(Extrapolation(), conditions=("controlled",)), rows, tmp_path / "replication.md"
    )
    told = page.read_text()
    assert "Of the planned runs, each counted once, 80 have no row yet" in told
    assert "(#extrapolation) | controlled | 96 | 80 | 16 |" in told
    assert "not testable here: no complete seed yet" in told


def test_claims_that_were_not_tuned_are_told(tmp_path):
    claims = [DistanceOrdering(), CountingText(), Extrapolation()]
    page = write_replication(study(*claims), StudyRows(), tmp_path / "replication.md").read_text()
    assert (
        "- Claims 1 and 2 with each encoding at the learning rate that a trial chose: no trial of a learning "
        "rate has a row yet" in page
    )
    tuned = write_replication(
        study(*claims, *tuned_forms(claims, StudyRows())), StudyRows(), tmp_path / "replication.md"
    )
    assert "no trial of" not in tuned.read_text()
    half = study(*claims, *tuned_forms([DistanceOrdering()], StudyRows()))
    told = write_replication(half, StudyRows(), tmp_path / "replication.md").read_text()
    assert "- Claim 2 with each encoding at the learning rate that a trial chose" in told


def test_what_is_missing_costs_what_runs_of_its_kind_have_cost():
    rows = rows_of(DistanceOrdering(), say, seeds=1)
    slow = next(iter(rows_of(GrokMed(), lambda arm, seed: {}, seeds=1, condition="described")))
    rows.add(replace(slow, facts=slow.facts | {"seconds": 1e6}))
    planned = study(DistanceOrdering()).jobs()
    left = len(planned) - len(rows) + 1
    assert Ahead.of(planned, rows) == Ahead(left, 30.0 * left)
    assert Ahead.of(planned, StudyRows()) == Ahead(0, 0.0)


def test_machines_are_counted():
    rows = rows_of(DistanceOrdering(), say, seeds=1)
    gpu = replace(
        next(iter(rows)), facts=next(iter(rows)).facts | {"machine": {"accelerator": "H100", "torch": "2"}}
    )
    rows.add(gpu)
    assert machines(rows)[0].startswith("5 runs: ")
    assert machines(rows)[1].startswith("1 runs: H100, float32, torch 2")


def test_runs_in_another_precision_are_named_on_the_page(tmp_path):
    def mixed(arm, seed):
        return {**say(arm, seed), "precision": "bfloat16" if (arm, seed) == ("nope", 6) else "float32"}

    page = write_replication(
        study(DistanceOrdering()), rows_of(DistanceOrdering(), mixed), tmp_path / "replication.md"
    )
    assert "Left out under `controlled`: nope, seed 6 (run " in page.read_text()


@pytest.mark.parametrize("condition", ["controlled", "described"])
def test_one_condition_alone_can_be_told(tmp_path, condition):
    page = write_replication(
        study(DistanceOrdering(), conditions=(condition,)), StudyRows(), tmp_path / "replication.md"
    )
    assert f"| deciding quantity | {condition} |" in page.read_text()


def test_the_page_ends_with_the_command_that_does_what_is_missing(tmp_path):
    def last_line(one):
        return write_replication(one, StudyRows(), tmp_path / "replication.md").read_text().splitlines()[-2]

    assert study(*chosen_claims(())).commands() == ["spectrope claims run --scale mini --seeds 0:6"]
    fresh = study(DistanceOrdering(), conditions=("controlled",), seeds=(6, 7))
    options = "distance-ordering --scale mini --seeds 6:8 --condition controlled"
    assert f"`spectrope claims run {options}` does" in last_line(fresh)


def test_the_commands_of_a_page_name_its_rows_and_claims_at_best_rates(tmp_path):
    one = study(DistanceOrdering(), DistanceOrderingTuned(StudyRows()))
    words = f"--scale mini --seeds 0:6 --rows {tmp_path}"
    plain, tuned = (f"spectrope claims run distance-ordering {more}{words}" for more in ("", "--tune "))
    assert one.commands(tmp_path) == [plain, tuned]
    page = write_replication(one, StudyRows(tmp_path / "mini.jsonl"), tmp_path / "page.md").read_text()
    assert f"from the rows in `{tmp_path}/`" in page
    assert f"`{tuned}` does the same at the learning rates that trials chose." in page


def test_an_interval_of_another_level_says_so():
    def tell(arm, seed):
        return {"gaps": (40.0, 1.0, 1.0 + jitter(seed) * int(arm))}

    rows = rows_of(PartialDeposit(), tell, seeds=12)
    verdict = PartialDeposit().judge(rows)
    told = [cell(finding, verdict.word) for finding in verdict.findings]
    assert "; 99.3 % interval] " in told[1]
    assert " at " not in told[0].split(";")[0]


def test_a_page_is_written_without_any_training_loop(tmp_path):
    lines = (Path(__file__).parents[3] / "results" / "mini.jsonl").read_text("utf-8").splitlines()
    by_laboratory = {json.loads(line)["config"].get("laboratory", "decoder"): line for line in lines}
    assert by_laboratory.keys() == {"decoder", "grokking", "shapes", "repeated-tokens"}
    (tmp_path / "mini.jsonl").write_text("\n".join(by_laboratory.values()) + "\n", "utf-8")
    code = """
import sys
from pathlib import Path
from spectrope.study.claim import chosen_claims
from spectrope.study.page import write_replication
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

rows = StudyRows.load(Path("mini.jsonl"))
claims = tuple(chosen_claims(("distance-ordering", "grok-med", "grok-vision")))
write_replication(Study(claims, ("controlled", "described"), "mini", (0,)), rows, Path("page.md"))
trains = (
    *("lab.training.loop", "lab.engines.local", "lab.engines.ray", "grokking.steps", "study.commands"),
    "checkpoints.repeated.trainer",
)
print(len(rows), *(name for name in trains if f"spectrope.{name}" in sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["4"]


def test_what_a_row_says_is_neither_html_nor_markup(tmp_path):
    said = "<img src=x onerror=alert(1)> [here](javascript:alert(2)) | `x`"
    rows = rows_of(DistanceOrdering(), lambda arm, seed: {"commit": said})
    rows.complaints.append(Complaint(f"mini.jsonl, line 7: {said}"))
    page = write_replication(study(DistanceOrdering()), rows, tmp_path / "replication.md").read_text()
    assert page.count("&lt;img src=x") == 2
    assert page.count("\\[here\\](javascript") == 2
    assert "<img" not in page
