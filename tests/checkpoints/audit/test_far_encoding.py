"""Two layers are compared beyond the audited length by what each applies there."""

import pytest
from tests.checkpoints.audit.test_far import mistral

import spectrope as sp
from spectrope.checkpoints.audit.far_encoding import FarEncoding, far_differences

TURNING = FarEncoding(length=512, frequencies=(1.0, 0.01), gain=1.2)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (FarEncoding(length=512, frequencies=(1.0, 0.01 * (1 + 1e-6)), gain=1.2), []),
        (FarEncoding(length=0), []),
        (
            FarEncoding(length=512, frequencies=(1.0, 0.02), gain=1.2),
            ["frequencies: pair 1 at 0.01 rad per position in a sequence of 512"],
        ),
        (
            FarEncoding(length=512, frequencies=(1.0, 0.01), gain=1.3),
            ["attention factor: 1.2 in a sequence of 512"],
        ),
        (
            FarEncoding(length=512, frequencies=(1.0, 0.01), gain=1.2, growth=1.1),
            ["query scale: grows 1 times up to position 511"],
        ),
        (
            FarEncoding("causal window 600", seen=False, length=512, frequencies=(1.0, 0.01), gain=1.2),
            ["mask: no window or chunk"],
        ),
    ],
)
def test_the_respect_is_named(other, said):
    found = [f"{one.what}: {one.expected}" for one in far_differences(TURNING, other)]
    assert found == said


def test_an_end_that_was_not_looked_at_is_told():
    (one,) = far_differences(FarEncoding("causal window 600"), FarEncoding("causal window 700", seen=False))
    assert one.note == "as declared; its end was not looked at"


def test_nothing_is_known_of_a_layer_that_does_not_match():
    assert [*far_differences(None, TURNING)] == [*far_differences(TURNING, None)] == []


def test_windows_beyond_the_audited_length_are_a_difference_of_two_models():
    one, other = (
        sp.audit(model, length=32, serving_modes=False, watch=sp.unwatched)
        for model in (mistral(), mistral(sliding_window=2048))
    )
    assert sp.diff(one, one).same
    found = sp.diff(one, other)
    assert "layer 0: mask, causal window 4096 against causal window 2048" in str(found)
    with_more = sp.audit(mistral(max_position_embeddings=65536), length=32, watch=sp.unwatched)
    assert sp.diff(one, with_more).same


def test_it_is_left_out_with_far_positions():
    found = sp.audit(mistral(), length=32, reach=False, serving_modes=False, watch=sp.unwatched)
    assert [layer.far for layer in found.layers] == [None, None]
