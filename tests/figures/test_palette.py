"""Colours that everyone can tell apart, and an order that never changes."""

import itertools

import numpy as np
import pytest

from spectrope.figures.names import KNOWN, SPARE, ordered_encodings, ordered_settings, styles

# Severity 1.0 of Machado, Oliveira & Fernandes (2009), on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
# Ottosson's OKLab (2020): linear RGB to cone responses to lightness and two opponent axes.
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OPPONENT = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def difference(one: str, other: str, sight: str) -> float:
    """Distance in OKLab, times 100; about 2 is just noticeable side by side."""
    seen = (np.clip(np.array(SIGHT[sight]) @ linear(colour), 0, 1) for colour in (one, other))
    a, b = (OPPONENT @ np.cbrt(CONES @ light) for light in seen)
    return 100 * float(np.linalg.norm(a - b))


@pytest.mark.parametrize("sight", SIGHT)
def test_any_two_encodings_differ_in_colour(sight):
    known = [style.colour for style in KNOWN.values()]
    everything = known + [style.colour for style in SPARE]
    assert min(difference(*pair, sight) for pair in itertools.combinations(known, 2)) > 9
    assert min(difference(*pair, sight) for pair in itertools.combinations(everything, 2)) > 6


def test_no_two_share_a_dash():
    dashes = [style.dash for style in (*KNOWN.values(), *SPARE)]
    assert len(set(dashes)) == len(dashes) == 12


def test_a_known_encoding_keeps_its_style_in_any_company():
    assert styles(["rope"])["rope"] == styles(["alibi", "mine", "rope"])["rope"] == KNOWN["rope"]


def test_others_get_the_spare_styles_first_and_then_those_of_absent_ones():
    names = ["rope", *(f"mine {i}" for i in range(6))]
    chosen = styles(names)
    assert [chosen[f"mine {i}"] for i in range(6)] == [*SPARE, KNOWN["nope"], KNOWN["sinusoidal"]]


@pytest.mark.parametrize("sight", SIGHT)
def test_own_encodings_differ_in_colour_as_long_as_there_are_colours(sight):
    colours = [
        style.colour for style in styles(["rope", "alibi", *(f"mine {i}" for i in range(10))]).values()
    ]
    assert min(difference(*pair, sight) for pair in itertools.combinations(colours, 2)) > 6


def test_no_two_of_many_own_encodings_look_alike():
    chosen = styles(["rope", *(f"mine {i}" for i in range(40))])
    assert len(set(chosen.values())) == 41


def test_orders():
    assert ordered_encodings(["rope", "mine", "nope", "alibi", "rope, base 10", "a"]) == [
        "nope",
        "alibi",
        "rope",
        "rope, base 10",
        "a",
        "mine",
    ]
    assert ordered_settings(["other", "counting", "distance, released", "distance"]) == [
        "distance",
        "distance, released",
        "counting",
        "other",
    ]
