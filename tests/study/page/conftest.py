"""The committed rows of scale `mini`."""

from pathlib import Path

import pytest

from spectrope.study.rows import StudyRows

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def committed():
    return StudyRows.load(ROOT / "results" / "mini.jsonl")
