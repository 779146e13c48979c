"""Compare layers of linear attention with their lock."""

from collections.abc import Iterator

from spectrope.checkpoints.audit.compare import SLOPE
from spectrope.checkpoints.lock.move import Move
from spectrope.checkpoints.lock.records import LockedDecay


def decay_moves(before: LockedDecay, after: LockedDecay, noise: float) -> Iterator[Move]:
    """What changed in one layer of linear attention: the rate of each head.

    Args:
        before: As locked.
        after: As measured now.
        noise: Relative rounding error of the arithmetic.
    """
    where = f"layer {before.name}"
    if len(before.rates) != len(after.rates):
        yield Move(where, "decay", f"{len(before.rates)} heads measured", f"{len(after.rates)}")
        return
    floor = 4 * noise / max(before.reach, 1)
    changed = [
        (head, then, now)
        for head, (then, now) in enumerate(zip(before.rates, after.rates, strict=True))
        if abs(then - now) > max(SLOPE, 2 * noise) * abs(then) + floor
    ]
    if changed:
        head, then, now = changed[0]
        heads = ", ".join(str(one[0]) for one in changed)
        yield Move(
            where, "decay", f"{then:.5g} per position in head {head}", f"{now:.5g}", head, f"heads {heads}"
        )
