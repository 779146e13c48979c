"""The page on encodings: its code runs, and its lists are complete."""

import re
from pathlib import Path

import pytest

from spectrope.encodings.base import ENCODINGS, describe
from spectrope.encodings.positions.base import POSITIONS
from spectrope.encodings.schedules.base import SCHEDULES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "encodings.md").read_text()


@pytest.fixture(autouse=True)
def forget_what_the_page_registers(monkeypatch):
    assert len(ENCODINGS) > 0  # complete before it is copied
    monkeypatch.setattr(ENCODINGS, "_members", {name: ENCODINGS[name] for name in ENCODINGS})


def test_its_code_runs_and_its_example_declares_the_truth(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "docs/reference/encodings.md", "exec"), {"__name__": "page"})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 4
    assert all(declared == holds for _, declared, holds in lines)
    assert "window" in ENCODINGS


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_its_table_says_what_the_catalogue_says(name):
    entry = describe(name)
    laws = ", ".join(tag.lower().replace("_", "-") for tag in entry.tags) or "none"
    form = entry.form.lower().replace("_", " ")
    assert f"| `{name}` | {entry.family} | {form} | {laws} | {entry.reference} |" in PAGE


@pytest.mark.parametrize("name", [*SCHEDULES, *POSITIONS])
def test_it_names_every_schedule_and_rule_of_positions(name):
    assert f"`{name}`" in PAGE
