"""Two measured layers are compared as they are, whichever of them departs from what is usual."""

import pytest

from spectrope.checkpoints.audit.compare import compare
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning


def turning(**changes):
    given = {"frequencies": (1.0, 0.1), "errors": (0.0, 0.0), "sense": 1, "position": 0, **changes}
    given |= {"gain": 1.0, "pairing": "halves"}
    return LayerEncoding("rotary", turning=Turning(start=0, width=4, head_dim=4, **given))


def masked(words):
    return LayerEncoding("none", mask=Mask("other", words=words))


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"key_offset": 1}, {"key_offset": 1}, []),
        ({"key_offset": 1}, {"key_offset": 0}, ["position of keys: 1 ahead of queries declared, that of"]),
        ({"key_offset": None}, {"key_offset": -2}, ["position of keys: that of queries declared, 2 behind"]),
        ({"key_offset": 1}, {"key_offset": None}, []),
        ({"sense": 0, "frequencies": (1.0, -0.1)}, {"sense": 0, "frequencies": (1.0, -0.1)}, []),
        ({"sense": 0, "frequencies": (1.0, -0.1)}, {"sense": 0, "frequencies": (1.0, 0.1)}, ["frequencies"]),
    ],
)
def test_offsets_and_senses_of_both_count(first, second, said):
    found = compare(turning(**first), turning(**second), 64, 2**-23)
    assert len(found) == len(said)
    assert all(str(one).startswith(text) for one, text in zip(found, said, strict=True))


def test_masks_without_a_rule_are_compared_by_what_is_known_of_them():
    some, more = masked("causal but for 3 pairs"), masked("bidirectional but for 900 pairs")
    assert [one.what for one in compare(some, more, 64, 2**-23)] == ["mask"]
    assert compare(some, some, 64, 2**-23) == []
    assert compare(some, masked(""), 64, 2**-23) == []  # A lock of an earlier version has no words.
