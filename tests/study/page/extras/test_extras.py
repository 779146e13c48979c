"""The figures of the page: the parts of a claim, and what some claims show beside them."""

from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest
from tests.figures.kinds.test_figures import emptied
from tests.study.made import jitter, rows_of

from spectrope.figures.spec import panels_spec
from spectrope.study.claim import CLAIMS
from spectrope.study.claims.counting_ordering import CountingTable
from spectrope.study.claims.partial_rope import PartialRoPE
from spectrope.study.page.extras.base import EXTRAS, interval_of
from spectrope.study.page.extras.grok_held_out import by_size
from spectrope.study.page.forest import APPENDIX, forest
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

RESULTS = Path(__file__).parents[4] / "results"


@pytest.fixture(scope="module")
def committed():
    return StudyRows.load(RESULTS / "mini.jsonl")


def test_extra_figures_are_of_claims():
    assert set(EXTRAS) <= set(CLAIMS)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", EXTRAS)
def test_every_extra_figure_draws_the_committed_rows(kind, committed):
    claim, extra = CLAIMS[kind](), EXTRAS[kind]
    study = Study((claim,), claim.conditions, "mini", (0, 1))
    panels = extra.panels({name: study.seen(claim, name, committed) for name in claim.conditions})
    assert all(layer.rows for panel in panels for layer in panel.layers.values())
    alt.VConcatChart.validate(emptied(panels_spec(panels, extra.width, extra.columns)))


@pytest.mark.parametrize("kind", EXTRAS)
def test_no_extra_figure_is_drawn_without_rows(kind):
    claim = CLAIMS[kind]()
    study = Study((claim,), claim.conditions, "mini", tuple(range(6)))
    assert (
        EXTRAS[kind].panels({name: study.seen(claim, name, StudyRows()) for name in claim.conditions}) == []
    )


def test_holes_are_drawn_by_size_where_there_are_several(committed):
    claim = CLAIMS["grok-distribution"]()
    seen = Study((claim,), claim.conditions, "mini", (0, 1)).seen(claim, "described", committed)
    assert len(by_size({"described": seen})) == 2
    largest = replace(seen, rows={key: row for key, row in seen.rows.items() if key[0].endswith("67")})
    assert largest.rows
    assert by_size({"described": largest}) == []


def test_a_part_is_drawn_with_its_seeds_interval_and_smallest_effect():
    rows = rows_of(CountingTable(), lambda arm, seed: {"test": 60.0 + 10.0 * (arm == "nope") + jitter(seed)})
    verdict = CountingTable().judge(rows)
    finding, _ = verdict.findings
    panel, _ = forest([verdict])  # The other is of losses.
    drawn = {name: layer.rows for name, layer in panel.layers.items()}
    assert [row["value"] for row in drawn["seeds"]] == list(finding.part.values.values())
    assert [row["value"] for row in drawn["edges"]] == list(finding.part.prediction.edges)
    assert [row["value"] for row in drawn["papers"]] == [finding.part.paper] != [None]
    [interval] = drawn["intervals"]
    assert (interval["value"], interval["low"], interval["high"]) == (
        finding.evidence.interval.estimate,
        finding.evidence.interval.low,
        finding.evidence.interval.high,
    )
    assert interval["outcome"] == "reproduced"
    alt.VConcatChart.validate(emptied(panels_spec([panel], 250, 1)))


def test_what_was_not_measured_is_not_drawn_and_a_bound_is_open():
    rows = rows_of(CountingTable(), lambda arm, seed: {"test": 60.0 + 10.0 * (arm == "nope") + jitter(seed)})
    verdict = CountingTable().judge(rows)

    def limited(limit):
        findings = tuple(replace(one, part=replace(one.part, limit=limit)) for one in verdict.findings)
        return forest([replace(verdict, findings=findings)])[0].layers

    assert [len(limited("")[name].rows) for name in ("intervals", "at least", "at most")] == [1, 0, 0]
    assert [len(limited("at least")[name].rows) for name in ("intervals", "at least", "at most")] == [1, 1, 0]
    lost = limited("not measured")
    assert not any(layer.rows for layer in lost.values())


def test_conditions_share_the_axes_of_a_unit():
    def tell(arm, seed):
        return {"test": {"8": 60.0, "2": 59.0 - jitter(seed)}.get(arm, 50.0)}

    claim = PartialRoPE()
    near = claim.judge(rows_of(claim, tell))
    far = claim.judge(
        rows_of(claim, lambda arm, seed: {"test": 20.0 + 9 * int(arm)}, condition="described"), "described"
    )
    panels = forest([near, far])
    assert [panel.title for panel in panels] == ["controlled", "described"]
    specs = [panel.layers["estimates"].spec()["encoding"] for panel in panels]
    assert specs[0]["x"]["scale"] == specs[1]["x"]["scale"]
    assert specs[0]["y"]["scale"] == specs[1]["y"]["scale"]
    assert specs[1]["y"]["axis"] is None
    low, high = specs[0]["x"]["scale"]["domain"]
    assert all(low < row["value"] < high for panel in panels for row in panel.layers["seeds"].rows)
    assert APPENDIX in {row["outcome"] for row in panels[0].layers["intervals"].rows}


def test_nothing_is_drawn_of_a_single_seed():
    claim = PartialRoPE()
    assert forest([claim.judge(rows_of(claim, lambda arm, seed: {"test": 50.0}, seeds=1))]) == []
    assert interval_of({6: 1.0}) is None
