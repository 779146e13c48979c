"""The matrix of public libraries: its adapters, its rows, and the page that is drawn from what is stored."""

import ast
import json
import subprocess
import sys

import pytest
from tests.conformance.test_conform import everything
from tools.wild.__main__ import ADAPTERS, PAGE, STORED, names, requirements
from tools.wild.page import FEATURES, PRECISION, between, page, worst

from spectrope.conformance import RotaryCell, conform

RECORDS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(STORED.glob("*.json"))]


def test_the_page_is_what_the_stored_results_draw():
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(PAGE), "-"]
    drawn = subprocess.run(ruff, input=page(RECORDS), capture_output=True, text=True, check=True).stdout
    assert drawn == PAGE.read_text(encoding="utf-8")


def test_every_adapter_has_a_result_and_names_its_packages():
    assert {path.stem for path in STORED.glob("*.json")} == set(names())
    assert len(RECORDS) >= 8
    for name in names():
        library = requirements(name)[0]
        assert json.loads((STORED / f"{name}.json").read_text())["library"] == library
        functions = ast.parse((ADAPTERS / f"{name}.py").read_text(encoding="utf-8")).body
        assert "apply_rope" in {node.name for node in functions if isinstance(node, ast.FunctionDef)}


def test_a_library_that_names_no_packages_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tools.wild.__main__.ADAPTERS", tmp_path)
    (tmp_path / "none.py").write_text("x = 1\n")
    with pytest.raises(SystemExit, match=r"none\.py names no REQUIRES"):
        requirements("none")


def test_a_row_tells_the_worst_cell_of_each_column():
    def wrong_far_away(x, positions):
        y = everything(x, positions, layout="halves")
        return y + 1 if positions.max() > 200_000 else y

    cells = [RotaryCell(), RotaryCell(start=131_072), RotaryCell(start=999_953), RotaryCell(dtype="bfloat16")]
    rows = conform(wrong_far_away, only=cells).to_dict()["cells"]
    told = [worst(filter(PRECISION[f"float32 {where}"], rows)) for where in ("to 4,143", "131,072", "10⁶")]
    assert told[:2] == ["exact", "exact"]
    assert told[2].startswith("**")
    assert worst(filter(FEATURES["gradient"], rows)) == "exact"


def test_words_of_a_row():
    cell = {"verdict": "wrong", "error": None}
    assert worst([cell]) == "**not finite**"
    assert worst([{"verdict": "not offered", "error": None}]) == "–"
    assert worst([cell, {"verdict": "wrong", "error": 2.0}, {"verdict": "exact", "error": 0.0}]) != "exact"
    assert between("2026-01-01", "2026-01-01") == "on 2026-01-01"
    assert between("2026-01-01", "2026-01-02") == "from 2026-01-01 to 2026-01-02"
