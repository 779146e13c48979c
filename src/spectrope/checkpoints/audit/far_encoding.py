"""What a layer applies beyond the audited length, to be compared with another model or an earlier day."""

from collections.abc import Iterator
from dataclasses import dataclass

from spectrope.checkpoints.audit.compare import GAIN, Discrepancy
from spectrope.checkpoints.audit.rotary import FREQUENCY

UNLIMITED = "no window or chunk"
SEEN = "as declared, and looked at there"
UNSEEN = "as declared; its end was not looked at"


@dataclass(frozen=True)
class FarEncoding:
    """What a layer that matches its declaration applies beyond the audited length, as it is declared there.

    Args:
        window: Rule of its window or chunk, such as "causal window 4096"; "" if it has none.
        seen: Whether the end of the window was looked at.
        length: Of the longest sequence of which tokens were looked at; 0 if none was.
        frequencies: Radians per position of each pair in it; empty if they are those of the audited length.
        gain: Factor on the logits of rotated coordinates in it; None if nothing rotates or declares one.
        growth: Factor on its last query over the first.
    """

    window: str = ""
    seen: bool = True
    length: int = 0
    frequencies: tuple[float, ...] = ()
    gain: float | None = None
    growth: float = 1.0


def far_differences(
    first: FarEncoding | None, second: FarEncoding | None, within: float = FREQUENCY
) -> Iterator[Discrepancy]:
    """Where two layers differ beyond the audited length, if both are known there.

    Args:
        first: Of one layer; it is what the other is expected to be.
        second: Of the other layer.
        within: Relative difference of frequencies that is left to rounding.
    """
    if first is None or second is None:
        return
    if first.window != second.window:
        note = SEEN if first.seen and second.seen else UNSEEN
        yield Discrepancy("mask", first.window or UNLIMITED, second.window or UNLIMITED, note)
    if first.length and second.length:
        yield from _rotation(first, second, within)
        if abs(second.growth / first.growth - 1) > GAIN:
            yield Discrepancy("query scale", _growing(first), _growing(second), SEEN)


def _rotation(first: FarEncoding, second: FarEncoding, within: float) -> Iterator[Discrepancy]:
    """Where their pairs turn otherwise; a schedule that grows with the length depends on the declared one."""
    scaled = bool(first.frequencies or second.frequencies)
    comparable = first.length == second.length and len(first.frequencies) == len(second.frequencies)
    pairs = zip(first.frequencies, second.frequencies, strict=True) if comparable else ()
    apart = [abs(b - a) / max(abs(a), abs(b), 1e-300) for a, b in pairs]
    if (scaled and not comparable) or max(apart, default=0.0) > within:
        worst = apart.index(max(apart)) if apart else -1
        yield Discrepancy("frequencies", _turning(first, worst), _turning(second, worst), SEEN)
    elif comparable and first.gain and second.gain and abs(second.gain / first.gain - 1) > GAIN:
        one, other = (f"{gain:.5g} in a sequence of {first.length}" for gain in (first.gain, second.gain))
        yield Discrepancy("attention factor", one, other, SEEN)


def _growing(one: FarEncoding) -> str:
    return f"grows {one.growth:.5g} times up to position {one.length - 1}"


def _turning(one: FarEncoding, pair: int) -> str:
    """How fast a pair turns in the longest sequence."""
    if not one.frequencies:
        return f"those of short sequences up to position {one.length - 1}"
    number = pair % len(one.frequencies)
    return f"pair {number} at {one.frequencies[number]:.5g} rad per position in a sequence of {one.length}"
