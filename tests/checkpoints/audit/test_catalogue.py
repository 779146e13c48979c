"""Every finding has a code, and the page of codes is the registry's."""

import ast
from pathlib import Path

import pytest
from tests.checkpoints.audit.pictures import rows

from spectrope.checkpoints.audit.catalogue import (
    COMPARED,
    FAULTS,
    PICTURED,
    PICTURES,
    as_page,
    code_of,
    fault,
)
from spectrope.cli import main
from spectrope.core import UnknownNameError

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "src/spectrope/checkpoints/audit").glob("*.py"))


def respects():
    """The beginning of what each `Discrepancy` in the source is about."""
    for file in SOURCES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Discrepancy":
                what = node.args[0]
                if isinstance(what, ast.JoinedStr):
                    what = what.values[0]
                if isinstance(what, ast.Constant):
                    yield what.value


def test_every_finding_in_the_source_has_a_code():
    found = set(respects())
    assert len(found) > 15
    assert {code_of(what) for what in found} <= {one.code for one in FAULTS}


def test_codes_are_unique():
    assert len({one.code for one in FAULTS}) == len(FAULTS)


def test_the_longest_beginning_decides():
    assert code_of("mask") == "SPE202"
    assert code_of("mask of layer 3") == "SPE501"
    assert code_of("rotation of keys of head 2") == "SPE109"


def test_the_page_is_the_registry():
    assert (ROOT / "docs" / "reference" / "findings.md").read_text() == as_page()


def test_an_unknown_code_is_refused():
    with pytest.raises(UnknownNameError, match="unknown code of a finding 'SPE999'"):
        fault("SPE999")


def test_explain_prints_an_entry(capsys):
    assert main(["explain", "spe101"]) == 0
    assert "SPE101 base differs" in capsys.readouterr().out
    assert main(["explain", "SPE999"]) == 2


def test_every_fault_of_a_forward_pass_has_a_picture_and_every_one_a_thread():
    for one in FAULTS:
        assert one.threads or one.code.startswith(COMPARED), one.code
        assert (ROOT / "docs" / PICTURES / f"{one.code}.svg").is_file() == (one.code in PICTURED)


def test_a_picture_shows_what_its_script_measures():
    words, values = rows("SPE111")
    assert words == "positions stay at the end of the table (starcoder2)"
    before = [row["divergence"] for row in values if row["tokens"] <= 48]
    assert max(before) == 0 < values[-1]["divergence"]
    svg = (ROOT / "docs" / PICTURES / "SPE111.svg").read_text()
    assert words in svg
