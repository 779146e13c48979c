"""Rotations by more than half a turn per position."""

import pytest
from tests.checkpoints.audit.museum import LENGTH, Exhibit, of, rope

from spectrope.checkpoints.audit import audit


@pytest.mark.parametrize("factor", [4.0, 8.0])
def test_an_inverted_factor_is_told_as_such_though_the_fastest_pair_exceeds_half_a_turn(factor, monkeypatch):
    case = Exhibit(
        "factor inverted",
        "",
        "llama",
        of("102"),
        declared=rope("linear", factor=factor),
        applied=rope("linear", factor=1 / factor),
    )
    found = audit(case.model(monkeypatch), length=LENGTH)
    assert case.judged(found) == "named", found.records
    assert all(f"linear with factor {1 / factor:g}" in one.message for one in found.records)


@pytest.mark.parametrize("times", [2, 6])
def test_a_rotation_that_is_too_fast_by_a_factor_keeps_its_sense(times, monkeypatch):
    applied = rope("linear", factor=1 / times)
    case = Exhibit("positions multiplied", "", "llama", of("102"), applied=applied)
    found = audit(case.model(monkeypatch), length=LENGTH)
    assert case.judged(found) == "named", found.records
    assert all(f"linear by {1 / times:.4g}" in one.message for one in found.records)
