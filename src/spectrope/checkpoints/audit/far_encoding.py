"""What a layer applies beyond the audited length, to be compared with another model or an earlier day."""

from collections.abc import Iterator
from dataclasses import dataclass

from spectrope.checkpoints.audit.compare import GAIN, Discrepancy
from spectrope.checkpoints.audit.rotary import FREQUENCY

GROWTH_AT = (2**12, 2**16, 2**20)  # Positions at which growths are kept, whatever length is declared.
UNLIMITED = "no window or chunk"
SEEN = "as declared, and looked at"
UNSEEN = "as declared; not looked at"


@dataclass(frozen=True)
class FarEncoding:
    """What a layer is declared to apply beyond the audited length.

    If the layer matches its declaration and was looked at there, this is what it applies.

    Args:
        window: Rule of a window or chunk that ends within the declared length, such as "causal window 4096";
            "" if there is none.
        window_seen: Whether its end was looked at and is as declared; True if there is none.
        length: The declared length, or twice that for a schedule that grows with the length.
        seen: Whether tokens up to there were looked at and turn as declared.
        frequencies: Radians per position of each pair in a sequence of this length. Empty if they are those
            of the audited length and the layer does not match its declaration, or the lock is of an earlier
            version.
        grows: Whether they are others than those of the audited length; None in locks of earlier versions.
        switch: Tokens after which a schedule turns all positions otherwise; 0 if none does.
        gain: Factor on the logits of rotated coordinates in a sequence of this length; None if nothing
            rotates or declares one.
        growth: Factor on queries at the positions `GROWTH_AT` over that at the first, by the formula.
    """

    window: str = ""
    window_seen: bool = True
    length: int = 0
    seen: bool = False
    frequencies: tuple[float, ...] = ()
    grows: bool | None = None
    switch: int = 0
    gain: float | None = None
    growth: tuple[float, ...] = (1.0,) * len(GROWTH_AT)

    @property
    def turns_otherwise(self) -> bool:
        """Whether pairs turn otherwise in long sequences than at the audited length."""
        return bool(self.frequencies) if self.grows is None else self.grows


def far_differences(
    first: FarEncoding | None, second: FarEncoding | None, within: float = 0.0
) -> Iterator[Discrepancy]:
    """Where two layers differ beyond the audited length, if both are known there.

    Args:
        first: Of one layer; it is what the other is expected to be.
        second: Of the other layer.
        within: Relative difference of frequencies and factors that is accepted beyond rounding.
    """
    if first is None or second is None:
        return
    if first.window != second.window:
        note = SEEN if first.window_seen and second.window_seen else UNSEEN
        yield Discrepancy("mask", first.window or UNLIMITED, second.window or UNLIMITED, note)
    note = SEEN if first.seen and second.seen else UNSEEN
    yield from (found for kind in (_turning, _gain) for found in kind(first, second, within, note))
    apart = [abs(b / a - 1) for a, b in zip(first.growth, second.growth, strict=True)]
    if max(apart) > max(GAIN, within):
        place = apart.index(max(apart))
        one, other = (f"grows {x.growth[place]:.5g} times" for x in (first, second))
        note = f"from position 0 to {GROWTH_AT[place]}, by the declared formula"
        yield Discrepancy("query scale", one, other, note)


def _turning(first: FarEncoding, second: FarEncoding, within: float, note: str) -> Iterator[Discrepancy]:
    """Whether pairs turn otherwise in long sequences, or from another length on."""
    a, b = first.frequencies, second.frequencies
    if first.switch != second.switch:
        yield Discrepancy("scaling", _switching(first), _switching(second), note)
    elif first.turns_otherwise != second.turns_otherwise or (a and b and len(a) != len(b)):
        yield Discrepancy("frequencies", _pair(first, -1), _pair(second, -1), note)
    elif a and b:
        apart = [abs(y - x) / max(abs(x), abs(y), 1e-300) for x, y in zip(a, b, strict=True)]
        if max(apart) > max(FREQUENCY, within):
            worst = apart.index(max(apart))
            yield Discrepancy("frequencies", _speed(first, worst), _speed(second, worst), note)


def _gain(first: FarEncoding, second: FarEncoding, within: float, note: str) -> Iterator[Discrepancy]:
    """Whether the factor of long sequences is another."""
    a, b = first.gain, second.gain
    if a and b and abs(b / a - 1) > max(GAIN, within):
        one, other = (f"{x.gain:.5g} in a sequence of {x.length}" for x in (first, second))
        yield Discrepancy("attention factor", one, other, note)


def _switching(one: FarEncoding) -> str:
    return f"another schedule after {one.switch} tokens" if one.switch else "one schedule at all lengths"


def _pair(one: FarEncoding, pair: int) -> str:
    """How fast a pair turns in a long sequence."""
    if not one.turns_otherwise:
        return f"those of short sequences also in one of {one.length}"
    return _speed(one, pair % len(one.frequencies))


def _speed(one: FarEncoding, pair: int) -> str:
    return f"pair {pair} at {one.frequencies[pair]:.5g} rad per position in a sequence of {one.length}"
