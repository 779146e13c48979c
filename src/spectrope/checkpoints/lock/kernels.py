"""Compare the kernels of heads with their lock, where their weights are those that were locked."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spectrope.checkpoints.lock.move import Accepted, LockOutcome, Move, Uncompared
from spectrope.checkpoints.lock.records import LockedHead, LockedLayer

NOT_COMPARED = "kernels of heads were not compared, because"
UNCOMPARED = f"{NOT_COMPARED} query or key weights differ from the locked ones"
MOVED = (
    "kernels of heads changed no further than query and key weights that were moved lightly explain, so that "
    "nothing is said about them"
)
ACCEPTED = f"{NOT_COMPARED} the lock accepts another encoding of this layer"
SAME_WEIGHTS = 1e-3  # Relative difference of the norms of queries and keys that is left to rounding.
LIGHTLY = 0.02  # Relative move of entries of queries and keys that leaves their norms as they are.
EXPLAINED = 4.0  # A head's logits move by at most 2 (a + b), less lag 0, if queries move by a and keys by b.


@dataclass(frozen=True)
class KernelGap:
    """The lag at which a head's kernel is furthest beyond what is allowed.

    Args:
        head: Its number.
        lag: In positions.
        then: Logit when it was locked.
        now: Logit now.
        product: Norm of its query times that of its key.
    """

    head: int
    lag: int
    then: float
    now: float
    product: float


def other_weights(before: LockedLayer, after: LockedLayer, noise: float) -> str:
    """Why the kernels of a layer say nothing; "" where queries and keys have the norms that they had, which
    no rotation and no order changes."""
    if before.module != after.module:
        renamed = f"the attention module is {after.module} now, {before.module} when it was locked"
        return f"{NOT_COMPARED} {renamed}"
    if len(before.heads) != len(after.heads):
        return f"{NOT_COMPARED} there are {len(after.heads)} heads, {len(before.heads)} when it was locked"
    pairs = [
        pair
        for one, other in zip(before.heads, after.heads, strict=True)
        for pair in ((one.query, other.query), (one.key, other.key))
    ]
    within = max(SAME_WEIGHTS, 2 * noise)
    return "" if all(abs(a - b) <= within * max(abs(a), abs(b)) for a, b in pairs) else UNCOMPARED


def weights_moved(before: LockedLayer, after: LockedLayer) -> float:
    """By how much entries of queries and keys moved, relative to their root mean square and in whatever
    order they are; 0 where the lock does not tell."""
    gaps = [
        (a - b) ** 2
        for one, other in zip(before.heads, after.heads, strict=False)
        if len(one.magnitudes) == len(other.magnitudes)
        for a, b in zip(one.magnitudes, other.magnitudes, strict=True)
    ]
    return math.sqrt(sum(gaps) / len(gaps)) if gaps else 0.0


def is_trained(before: LockedLayer, after: LockedLayer, noise: float) -> bool:
    """Whether query or key weights are known to be others."""
    return other_weights(before, after, noise) == UNCOMPARED or weights_moved(before, after) > max(
        1e-5, 8 * noise
    )


def kernel_outcomes(
    before: LockedLayer, after: LockedLayer, turned: float = 0.0, *, lower: bool = False
) -> Iterator[LockOutcome]:
    """The heads whose kernels changed, where the layer's encoding itself did not beyond its tolerance.

    Args:
        before: As locked.
        after: As measured now, with the same number of heads.
        turned: Radians per position by which the lock accepts other frequencies.
        lower: Whether the lock was measured in lower precision, for which its tolerances are wider.
    """
    scale, where = abs(after.encoding.scale or 0.0), f"layer {before.name}"
    both = list(zip(before.heads, after.heads, strict=True))
    slack = 2 * scale * turned

    def beyond(limits: list[float]) -> list[KernelGap]:
        pairs = zip(both, limits, strict=True)
        gaps = (_gap(one, other, limit, slack) for (one, other), limit in pairs)
        return [gap for gap in gaps if gap is not None]

    if changed := beyond([max(one.tolerance, other.tolerance) for one, other in both]):
        moved = weights_moved(before, after)
        explained = EXPLAINED * moved * scale if moved <= LIGHTLY else 0.0
        if all(abs(one.now - one.then) <= explained * one.product for one in changed):
            yield Uncompared(where, MOVED)
        else:
            yield _of_kernels(where, changed)
    elif not lower and (raised := beyond([other.tolerance for _, other in both])):
        yield Accepted(_of_kernels(where, raised))


def _of_kernels(where: str, changed: list[KernelGap]) -> Move:
    first, heads = changed[0], ", ".join(str(one.head) for one in changed)
    note = f"heads {heads}; a different order of the rows of queries and keys has this effect"
    then, now = f"{first.then:.4g} at lag {first.lag}", f"{first.now:.4g}"
    return Move(where, f"kernel of head {first.head}", then, now, first.head, note)


def _gap(before: LockedHead, after: LockedHead, within: float, slack: float) -> KernelGap | None:
    """Where a kernel changed most beyond its tolerance, if it did.

    Args:
        before: As locked.
        after: As measured now.
        within: By how much it may change, in logit units.
        slack: By how much more per position of lag, relative to the product of norms.
    """
    known, product = dict(zip(after.lags, after.kernel, strict=True)), before.query * before.key
    both = [(lag, x, known[lag]) for lag, x in zip(before.lags, before.kernel, strict=True) if lag in known]

    def excess(one: tuple[int, float, float]) -> float:
        lag, then, now = one
        return abs(then - now) - within - slack * product * abs(lag)

    lag, then, now = max(both, key=excess, default=(0, 0.0, 0.0))
    return KernelGap(before.head, lag, then, now, product) if excess((lag, then, now)) > 0 else None
