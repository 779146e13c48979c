"""Compare the layers of a vision tower with their lock."""

from collections.abc import Iterator
from dataclasses import replace

from spectrope.checkpoints.audit.compare import is_near
from spectrope.checkpoints.audit.plane import PlaneTurning
from spectrope.checkpoints.audit.plane_findings import (
    AXES,
    agree,
    axes_in_words,
    axes_of,
    differ,
    place_in_words,
)
from spectrope.checkpoints.lock.move import Move
from spectrope.checkpoints.lock.records import LockedVision


def vision_moves(before: LockedVision, after: LockedVision, noise: float) -> Iterator[Move]:
    """What changed in one layer of a vision tower: rotation and mask.

    Args:
        before: As locked.
        after: As measured now.
        noise: Relative rounding error of the arithmetic.
    """
    where = f"layer {before.name}"
    yield from _turning(where, before.turning, after.turning, noise)
    if before.mask != after.mask:
        yield Move(where, "mask", before.mask, after.mask)


def _turning(
    where: str, before: PlaneTurning | None, after: PlaneTurning | None, noise: float
) -> Iterator[Move]:
    """The first respect in which the rotation of the first query head changed."""
    if before is None or after is None:
        if before != after:
            yield Move(where, "encoding", _described(before), _described(after))
    elif before.pairing != after.pairing:
        yield Move(where, "pairing", before.pairing, after.pairing)
    elif len(before.rows) != len(after.rows):
        yield Move(where, "rotated fraction", f"{len(before.rows)} pairs", f"{len(after.rows)} pairs")
    elif not agree(before, _with_errors_of_both(before, after)):
        yield _frequencies(where, before, after)
    else:
        yield from _start(where, before, after, noise)


def _with_errors_of_both(before: PlaneTurning, after: PlaneTurning) -> PlaneTurning:
    """The measured rotation, allowed the errors of both measurements."""
    rows = zip(before.row_errors, after.row_errors, strict=True)
    columns = zip(before.column_errors, after.column_errors, strict=True)
    return replace(
        after,
        row_errors=tuple(a + b for a, b in rows),
        column_errors=tuple(a + b for a, b in columns),
    )


def _frequencies(where: str, before: PlaneTurning, after: PlaneTurning) -> Move:
    """Other axes, another base, or the pair whose frequency changed most."""
    axes, axes_now = axes_of(before), axes_of(after)
    if axes != axes_now:
        return Move(where, "axes", axes_in_words(axes), axes_in_words(axes_now))
    if before.describe() != after.describe():
        return Move(where, "base", before.describe(), after.describe())
    gaps = [
        (abs(now - then), f"pair {pair} at {then:.5g}", f"{now:.5g} rad per {axis}")
        for axis, ours, theirs in zip(
            AXES, (before.rows, before.columns), (after.rows, after.columns), strict=True
        )
        for pair, (then, now) in enumerate(zip(ours, theirs, strict=True))
    ]
    _, then, now = max(gaps)
    return Move(where, "frequencies", then, now)


def _start(where: str, before: PlaneTurning, after: PlaneTurning, noise: float) -> Iterator[Move]:
    """Another place of the first patch, or another factor on rotated vectors."""
    if differ(before.origin, after.origin):
        yield Move(where, "first position", place_in_words(before.origin), place_in_words(after.origin))
    then, now = before.gain, after.gain
    if then is not None and now is not None and not is_near(then, now, noise):
        yield Move(where, "attention factor", f"{then:.5g}", f"{now:.5g}")


def _described(turning: PlaneTurning | None) -> str:
    return "none that is known" if turning is None else turning.describe()
