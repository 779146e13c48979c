"""Compare what embeddings add by position, and serving modes, with their lock."""

from collections.abc import Iterator

from spectrope.checkpoints.audit.diff import tolerance
from spectrope.checkpoints.lock.move import LockOutcome, Move, Uncompared, with_accepted
from spectrope.checkpoints.lock.records import LockedEmbeddings, LockedServingMode

LEARNED = "values that are learned were not compared, because the weights differ from the locked ones"


def term_outcomes(
    before: LockedEmbeddings, after: LockedEmbeddings | None, noise: float, *, trained: bool
) -> Iterator[LockOutcome]:
    """What changed in the term that the embeddings of one stack add by position.

    Args:
        before: As locked.
        after: As measured now; None if the stack is missing.
        noise: Relative rounding error of the arithmetic.
        trained: Whether weights of the layers are others, too, so that a learned table may be.
    """
    where = f"embeddings of {before.block}"
    if after is None:
        yield Move(where, "absolute term", before.table or "no table", "missing")
        return
    if before.table != after.table:
        yield Move(where, "absolute term", before.table or "no table", after.table or "no table")
    elif not before.table and bool(before.positions) != bool(after.positions):
        yield Move(where, "absolute term", _untabled(before), _untabled(after))
        return
    if before.first_row != after.first_row:
        yield Move(where, "first position", f"row {before.first_row}", f"row {after.first_row}")
    moves = list(_values(where, before, after, max(before.tolerance, 10 * noise)))
    if moves and trained and after.learned:
        yield Uncompared(where, LEARNED)
    else:
        yield from with_accepted(moves, _values(where, before, after, tolerance(noise)))


def _untabled(one: LockedEmbeddings) -> str:
    """What is added without a table, in words."""
    return f"vectors of norm up to {max(one.norms):.4g}, of no table" if one.norms else "none"


def _values(where: str, before: LockedEmbeddings, after: LockedEmbeddings, relative: float) -> Iterator[Move]:
    """The first position at which the added vector is another, if there is one."""
    norms = dict(zip(after.positions, after.norms, strict=True))
    along = dict(zip(after.positions, after.along, strict=bool(after.along)))
    components = before.along if before.along and along else (0.0,) * len(before.norms)
    for place, norm, component in zip(before.positions, before.norms, components, strict=True):
        now = norms.get(place, 0.0)
        within = relative * max(norm, now)
        if abs(norm - now) > within:
            yield Move(where, "vectors by position", f"norm {norm:.4g} at position {place}", f"{now:.4g}")
            return
        if before.along and along and abs(component - along.get(place, 0.0)) > within:
            then = f"component {component:.4g} in a fixed direction at position {place}"
            yield Move(where, "vectors by position", then, f"{along.get(place, 0.0):.4g}")
            return


def mode_moves(before: LockedServingMode, after: LockedServingMode | None) -> Iterator[Move]:
    """What changed in one serving mode; a finding in a respect that was accepted may have other values."""
    where = f"serving mode {before.path}"
    if after is None:
        yield Move(where, "serving mode", before.verdict, "missing")
        return
    accepted = {_respect(one) for one in before.findings}
    new = [one for one in after.findings if _respect(one) not in accepted]
    if new or after.verdict != before.verdict:
        yield Move(where, "serving mode", before.verdict, next(iter(new), after.verdict))


def _respect(finding: str) -> str:
    return finding.partition(":")[0]
