"""A lock compared with a new measurement, as text, as a table and as JSON."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from spectrope.checkpoints.lock.kernels import MOVED, UNCOMPARED
from spectrope.checkpoints.lock.lacking import NOT_HELD, lacked, left_out
from spectrope.checkpoints.lock.move import Move, Uncompared
from spectrope.checkpoints.lock.records import Lock, LockedDecay, LockedLayer, LockedVision
from spectrope.console import Shown

COLUMNS = ("where", "locked", "now", "verdict")
AnyLayer = LockedLayer | LockedDecay | LockedVision


@dataclass(frozen=True, repr=False)
class CheckedLock(Shown):
    """A lock compared with a new measurement.

    Args:
        before: The lock.
        after: The measurement.
        moves: What changed.
        accepted: What would be a change without a tolerance that was raised in the lock.
        uncompared: What could not be compared and would have to be, such as kernels of heads whose weights
            differ.
    """

    before: Lock
    after: Lock
    moves: tuple[Move, ...]
    accepted: tuple[Move, ...] = ()
    uncompared: tuple[Uncompared, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing changed."""
        return not self.moves

    @property
    def whole(self) -> bool:
        """Whether everything was compared that a lock is written with, among it the kernels of all heads."""
        return not self.uncompared

    @property
    def other_weights(self) -> tuple[str, ...]:
        """Layers whose kernels say nothing, because query or key weights differ."""
        return tuple(one.where for one in self.uncompared if one.why in (UNCOMPARED, MOVED))

    @property
    def reasons(self) -> dict[str, list[str]]:
        """What could not be compared and would have to be: why, and where."""
        reasons: dict[str, list[str]] = {}
        for one in self.uncompared:
            reasons.setdefault(one.why, []).append(one.where)
        return reasons

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Parts of the model that the lock does not hold, in words."""
        unread = (name for name in self.after.unread if name in self.before.unread)
        return *self.lacking, *left_out(self.before, self.after), *unread, *self.after.outside

    @property
    def lacking(self) -> tuple[str, ...]:
        """What the lock does not hold and a new one would, in words."""
        missing = filter(None, lacked(self.before, self.after))
        return tuple(f"{one}, which `spectrope lock` would add" for one in missing)

    @property
    def versions(self) -> dict[str, tuple[str, str]]:
        """Library versions that differ from those of the lock: locked and current."""
        before, after = self.before.versions, self.after.versions
        names = dict.fromkeys((*before, *after))
        both = {name: (before.get(name, "none"), after.get(name, "none")) for name in names}
        return {name: pair for name, pair in both.items() if pair[0] != pair[1]}

    @property
    def between(self) -> str:
        """What else changed since the lock was written: versions and the configuration, in one line."""
        changed = [f"{name} {then} to {now}" for name, (then, now) in self.versions.items()]
        digests = self.before.config_sha256, self.after.config_sha256
        if all(digests) and digests[0] != digests[1]:
            changed.append("config.json edited")
        if self.before.dtype != self.after.dtype:
            changed.append(f"arithmetic {self.before.dtype} to {self.after.dtype}")
        if changed:
            return ", ".join(changed)
        if all(digests):
            return "neither library versions nor the configuration"
        return "no library version; config.json was not compared"

    def at(self, where: str) -> list[Move]:
        """What changed in one place."""
        return [move for move in self.moves if move.where == where]

    def why_not(self, where: str) -> str:
        """Why something in one place could not be compared; "" if all was."""
        return "; ".join(one.why for one in self.uncompared if one.where == where)

    def places(self) -> Iterator[tuple[str, str, str]]:
        """Each place of the lock with what it held and holds, in words; then the others that changed or could
        not be compared."""
        layers = {one.name: one for one in self.after.every_layer}
        for one in self.before.embeddings:
            yield f"embeddings of {one.block}", one.table or "no table", _table_of(self.after, one.block)
        for one in self.before.every_layer:
            yield f"layer {one.name}", *_in_words(one, layers.get(one.name))
        modes = {one.path: one.verdict for one in self.after.paths}
        for one in self.before.paths:
            yield f"serving mode {one.path}", one.verdict, modes.get(one.path, "missing")
        yield from ((one, *self._elsewhere(one)) for one in self.other_places())

    def other_places(self) -> tuple[str, ...]:
        """Names of what changed, or could not be compared, and is no place of the lock."""
        known = set(self.before.places)
        return tuple(
            dict.fromkeys(one.where for one in (*self.moves, *self.uncompared) if one.where not in known)
        )

    def _elsewhere(self, where: str) -> tuple[str, str]:
        """What the lock says of a place that it does not hold, and what is there now."""
        if moves := self.at(where):
            return moves[0].locked, moves[0].now
        known = {f"layer {one.name}": one.described for one in self.after.every_layer}
        known |= {f"embeddings of {one.block}": one.table or "no table" for one in self.after.embeddings}
        known |= {f"serving mode {one.path}": one.verdict for one in self.after.paths}
        return "nothing", known.get(where, "")

    def verdict(self, where: str) -> str:
        """Of one place, in a few words."""
        if self.at(where):
            return "changed"
        if why := self.why_not(where):
            return "not in the lock" if why == NOT_HELD else "compared in part"
        return "accepted" if any(one.where == where for one in self.accepted) else "as locked"

    def to_frame(self) -> pl.DataFrame:
        """A row per place: what was locked, what is measured now, and whether it changed."""
        rows = [(where, then, now, self.verdict(where)) for where, then, now in self.places()]
        return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield f"{self.after.named}, {self.after.length} positions in {self.after.dtype}", self.to_frame()
        for move in self.moves:
            yield f"{move.where}: {move.code} {move}"
        for move in self.accepted:
            yield f"accepted: {move.where}: {move.code} {move}"
        if self.moves:
            yield f"Changed since the lock: {self.between}."
        for why, places in self.reasons.items():
            yield f"{', '.join(places)}: {why}. If this was intended, run `spectrope lock` again."
        if self.uncovered:
            yield f"Not in the lock, so not compared: {'; '.join(self.uncovered)}."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        return {
            "ok": self.ok,
            "whole": self.whole,
            "moves": [_fields(move) for move in self.moves],
            "accepted": [_fields(move) for move in self.accepted],
            "other_weights": list(self.other_weights),
            "uncompared": [dataclasses.asdict(one) for one in self.uncompared],
            "uncovered": list(self.uncovered),
            "versions": {name: list(pair) for name, pair in self.versions.items()},
            "between": self.between,
            "places": self.to_frame().to_dicts(),
        }


def _fields(move: Move) -> dict[str, Any]:
    return {"code": move.code, **dataclasses.asdict(move), "message": str(move)}


def _in_words(before: AnyLayer, after: AnyLayer | None) -> tuple[str, str]:
    """What a layer applied and applies, without windows if the lock holds none beyond its positions."""
    if isinstance(before, LockedLayer) and isinstance(after, LockedLayer) and before.far is None:
        return before.applies, after.applies
    return before.described, "missing" if after is None else after.described


def _table_of(lock: Lock, block: str) -> str:
    found = (one.table or "no table" for one in lock.embeddings if one.block == block)
    return next(found, "missing")
