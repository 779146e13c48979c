"""Rotations by more than half a turn per position."""

import pytest
from tests.checkpoints.audit.families import SIZES, build
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


def test_two_pairs_that_are_exchanged_are_not_taken_for_whole_turns():
    model = build("GPTNeoX", **SIZES)
    (frequencies,) = (x for name, x in model.named_buffers() if name.endswith("rotary_emb.inv_freq"))
    assert len(frequencies) == 2
    frequencies.copy_(frequencies.flip(0))
    found = audit(model, length=LENGTH)
    assert {one.code for one in found.records} == {"SPE102"}
    assert all("pairs 0 and 1 have each other's" in one.message for one in found.records)
