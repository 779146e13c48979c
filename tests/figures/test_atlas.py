"""The page and the figure of an atlas show every cell, and what its head attends to."""

import math
from dataclasses import replace

import polars as pl
import pytest

from spectrope.figures.atlas import AtlasTables, atlas_spec, head_table, roles, sparkline, write_atlas

BANDED = ("remove-band", "freeze-band", "keep-band", "remove-band-off-sink")
WHOLE = ("zero", "position-only", "content-only")


def cell(head: int, intervention: str, band: int | None, drop: float) -> dict[str, object]:
    place = {"layer": 0, "head": head, "intervention": intervention, "band": band}
    call = "costs" if drop > 5 else "does not"
    return place | {"drop": drop, "low": drop - 1, "high": drop + 1, "n": 10, "call": call}


@pytest.fixture
def tables() -> AtlasTables:
    """Head 0 attends to the previous token by band 0; head 1 is a sink that nothing needs."""
    cells = [cell(0, name, band, 40.0 if band == 0 else 0.0) for name in BANDED for band in (0, 1)]
    cells += [cell(0, name, None, drop) for name, drop in zip(WHOLE, (50.0, 1.0, 45.0), strict=True)]
    cells += [cell(1, name, band, 0.0) for name in BANDED for band in (0, 1)]
    cells += [cell(1, name, None, 0.0) for name in WHOLE]
    shared = {"layer": 0, "induction": None, "kernel": [0.0, 1.0, 0.5], "examples": "<b>7 at 2</b>"}
    heads = [
        shared | {"head": 1, "reach": 9.0, "sink": 0.9, "previous": 0.05},
        shared | {"head": 0, "reach": 1.0, "sink": 0.01, "previous": 0.95},
    ]
    return AtlasTables("a model", "Measured.", ("fast", "slow"), pl.DataFrame(cells), pl.DataFrame(heads))


def test_the_costliest_head_comes_first_with_its_roles_and_band(tables):
    first, second = head_table(tables).rows
    assert first["layer.head"] == "0.0"
    assert first["role"] == "previous token, position"
    assert first["costliest band"] == "0 (40.0)"
    assert second["role"] == "sink"


def test_a_head_that_does_not_need_positions_is_no_position_head():
    head = {"sink": 0.0, "previous": 0.3, "induction": 0.7}
    assert roles(head | {"content-only call": "undecided"}) == ["induction"]
    assert roles(head | {"content-only call": "costs"}) == ["induction", "position"]


def test_the_figure_has_a_panel_for_every_band_of_every_intervention(tables):
    rows = atlas_spec(tables)["vconcat"]
    assert [len(row["concat"]) for row in rows] == [2, 2, 2, 2, 1, 1, 1]
    assert rows[0]["concat"][1]["title"] == "band 1: slow"
    assert {value["drop"] for value in rows[0]["concat"][0]["data"]["values"]} == {40.0, 0.0}


def test_what_was_not_measured_is_grey_and_has_no_number(tables):
    left = pl.col("head").eq(1)
    shown = [pl.when(left).then(None).otherwise(pl.col(name)).alias(name) for name in ("drop", "low", "high")]
    unmeasured = replace(tables, cells=tables.cells.with_columns(shown))
    panel = atlas_spec(unmeasured)["vconcat"][0]["concat"][0]
    assert [layer["data"]["values"] for layer in panel["layer"][:1]] == [[{"layer": 0, "head": 1}]]
    _, second = head_table(unmeasured).rows
    assert (second["removed"], second["costliest band"]) == ("", "")


def test_the_page_is_one_file_with_escaped_examples(tables, tmp_path):
    page = write_atlas(tables, tmp_path / "atlas.html").read_text(encoding="utf-8")
    assert "<h1>a model</h1>" in page
    assert "<b>7" not in page
    assert 'http-equiv="Content-Security-Policy"' in page


def test_sparkline():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([1.0, math.nan, 0.0]) == "█ ▁"
