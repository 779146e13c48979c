"""One colour, one dash and one place for each encoding, in every figure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """How an encoding is drawn.

    Args:
        colour: Hexadecimal.
        dash: Lengths of dash and gap in pixels; none means a solid line.
    """

    colour: str
    dash: tuple[int, ...] = ()


# Chosen so that any two differ for normal sight and under protanopia, deuteranopia and tritanopia.
GREY, BLUE, GREEN, RED = "#464646", "#1a65c8", "#079e6f", "#d84a02"
KNOWN = {
    "nope": Style(GREY, (2, 2)),
    "sinusoidal": Style(BLUE, (6, 2)),
    "learned": Style("#61abfb", (4, 2)),
    "random": Style("#dc9e18", (1, 2)),
    "t5": Style(GREEN, (8, 3)),
    "relative": Style("#5d0669", (5, 2, 1, 2)),
    "alibi": Style("#bc6fba", (3, 1)),
    "rope": Style(RED),
}
SPARE = (
    Style("#744908", (7, 2, 2, 2)),
    Style("#a4a4a4", (4, 4)),
    Style("#770013", (2, 4)),
    Style("#30606e", (9, 2)),
)
TASKS = ("distance", "counting", "addition")
LOSS, GAIN, ZERO = ("#f1a340", "#b35806"), ("#998ec3", "#542788"), "#f7f7f5"
DIVERGING = (*reversed(GAIN), ZERO, *LOSS)  # Of drops: below zero, zero, above.


def styles(encodings: Sequence[str]) -> dict[str, Style]:
    """The style of each encoding; those that are not well known share the spare ones in turn."""
    others = [name for name in encodings if name not in KNOWN]
    return {name: KNOWN.get(name) or SPARE[others.index(name) % len(SPARE)] for name in encodings}


def ordered_encodings(names: Iterable[str]) -> list[str]:
    """Distinct names, the well-known encodings first, from no position to rotation."""
    return _ordered(names, list(KNOWN))


def ordered_settings(names: Iterable[str]) -> list[str]:
    """Distinct names of settings, the paper's tasks first."""
    return _ordered(names, TASKS)


def _ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    def place(name: str) -> tuple[int, str]:
        first = name.split(",")[0]
        return (known.index(first) if first in known else len(known)), name

    return sorted(set(names), key=place)
