"""What no longer agrees with a lock, what it accepts, and what could not be compared with it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spectrope.checkpoints.audit.catalogue import code_of


@dataclass(frozen=True)
class Move:
    """One property in which a checkpoint no longer agrees with its lock.

    Args:
        where: Layer, embeddings or serving mode.
        what: The respect.
        locked: What the lock says.
        now: What was measured.
        head: Query head; None for a whole layer.
        note: What it looks like.
    """

    where: str
    what: str
    locked: str
    now: str
    head: int | None = None
    note: str = ""

    @property
    def code(self) -> str:
        """Of the catalogue."""
        return code_of(self.what)

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.what}: {self.locked} locked, {self.now} now{note}"


@dataclass(frozen=True)
class Accepted:
    """A departure within a tolerance that was raised in the lock.

    Args:
        move: What it would be without that.
    """

    move: Move


@dataclass(frozen=True)
class Uncompared:
    """Something that a lock should tell and does not.

    Args:
        where: Layer, embeddings or serving mode.
        why: What was not compared, and why.
    """

    where: str
    why: str


LockOutcome = Move | Accepted | Uncompared


def with_accepted(moves: list[Move], strict: Iterable[Move]) -> Iterator[Move | Accepted]:
    """What changed, and what would have with the tolerances that `spectrope lock` writes."""
    changed = {(one.where, one.what) for one in moves}
    yield from moves
    yield from (Accepted(one) for one in strict if (one.where, one.what) not in changed)


def new_findings(
    where: str, before: Iterable[str], after: Iterable[str], seen: Iterable[str] = ()
) -> Iterator[Move]:
    """What the audit finds in a layer now and did not find when it was locked.

    Args:
        where: The layer.
        before: Findings of the lock, which were accepted.
        after: Findings now.
        seen: Respects in which a change has been noticed already.
    """
    accepted, told = {finding.partition(":")[0] for finding in before}, set(seen)
    for finding in after:
        respect, _, said = finding.partition(":")
        code, _, what = respect.partition(" ")
        if respect not in accepted and what not in told:
            yield Move(where, what, "nothing found", said.strip(), note=f"new finding {code}")
