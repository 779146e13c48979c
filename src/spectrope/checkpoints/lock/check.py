"""Compare a checkpoint with its lock: what changed, and between which versions."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import polars as pl

from spectrope.checkpoints.audit.anchored import anchored
from spectrope.checkpoints.audit.compare import Discrepancy, compare
from spectrope.checkpoints.audit.far_encoding import far_differences
from spectrope.checkpoints.lock.decays import decay_moves
from spectrope.checkpoints.lock.move import Move, new_findings
from spectrope.checkpoints.lock.records import (
    Lock,
    LockedDecay,
    LockedEmbeddings,
    LockedHead,
    LockedLayer,
    LockedServingMode,
    LockedVision,
)
from spectrope.checkpoints.lock.towers import vision_moves
from spectrope.console import Shown

COLUMNS = ("where", "locked", "now", "verdict")
OF_FREQUENCIES = ("SPE101", "SPE102")  # Codes of findings that a departure of frequencies explains.
Beside = TypeVar("Beside", LockedDecay, LockedVision)
AnyLayer = LockedLayer | LockedDecay | LockedVision
MovesOf = Callable[[Beside, Beside, float], Iterator[Move]]
UNCOMPARED = "kernels of heads were not compared, because query or key weights differ from the locked ones"
SAME_WEIGHTS = 1e-3  # Relative difference of the norms of queries and keys that is left to rounding.


@dataclass(frozen=True, repr=False)
class CheckedLock(Shown):
    """A lock compared with a new measurement.

    Args:
        before: The lock.
        after: The measurement.
        moves: What changed.
        other_weights: Layers whose query or key weights differ, so that the kernels of their heads were not
            compared.
    """

    before: Lock
    after: Lock
    moves: tuple[Move, ...]
    other_weights: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing changed."""
        return not self.moves

    @property
    def whole(self) -> bool:
        """Whether the kernels of all heads were compared."""
        return not self.other_weights

    @property
    def uncovered(self) -> tuple[str, ...]:
        """Parts of the model that the lock does not hold, in words."""
        unread = (name for name in self.after.unread if name in self.before.unread)
        return *self.lacking, *unread, *self.after.outside

    @property
    def lacking(self) -> tuple[str, ...]:
        """What the lock does not hold and a new one would, in words."""
        held = {one.name for one in self.before.every_layer}
        added = ", ".join(f"layer {one.name}" for one in self.after.every_layer if one.name not in held)
        missing = [added] if added else []
        if any(one.far is None and now.far is not None for one, now in self._both()):
            missing.append(f"what changes beyond {self.before.length} positions")
        if any(one.norms and not one.along for one in self.before.embeddings):
            missing.append("directions of the vectors that embeddings add by position, beside their norms")
        return tuple(f"{one}, which `spectrope lock` would add" for one in missing)

    def _both(self) -> Iterator[tuple[LockedLayer, LockedLayer]]:
        """Layers of the lock that are there now, too."""
        layers = {one.name: one for one in self.after.layers}
        return ((one, layers[one.name]) for one in self.before.layers if one.name in layers)

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
        return ", ".join(changed) or "neither library versions nor the configuration"

    def at(self, where: str) -> list[Move]:
        """What changed in one place."""
        return [move for move in self.moves if move.where == where]

    def places(self) -> Iterator[tuple[str, str, str]]:
        """Each place of the lock with what it held and holds, in words."""
        layers = {one.name: one for one in self.after.every_layer}
        for one in self.before.embeddings:
            yield f"embeddings of {one.block}", one.table or "no table", _table_of(self.after, one.block)
        for one in self.before.every_layer:
            yield f"layer {one.name}", *_in_words(one, layers.get(one.name))
        modes = {one.path: one.verdict for one in self.after.paths}
        for one in self.before.paths:
            yield f"serving mode {one.path}", one.verdict, modes.get(one.path, "missing")

    def to_frame(self) -> pl.DataFrame:
        """A row per place: what was locked, what is measured now, and whether it changed."""
        rows = [
            (where, then, now, "changed" if self.at(where) else "as locked")
            for where, then, now in self.places()
        ]
        return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield f"{self.after.named}, {self.after.length} positions in {self.after.dtype}", self.to_frame()
        for move in self.moves:
            yield f"{move.where}: {move.code} {move}"
        if self.moves:
            yield f"Changed since the lock: {self.between}."
        if self.other_weights:
            layers = ", ".join(self.other_weights)
            yield f"{layers}: {UNCOMPARED}. If this was intended, run `spectrope lock` again."
        if self.uncovered:
            yield f"Not in the lock, so not compared: {'; '.join(self.uncovered)}."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        return {
            "ok": self.ok,
            "whole": self.whole,
            "moves": [
                {"code": move.code, **dataclasses.asdict(move), "message": str(move)} for move in self.moves
            ],
            "other_weights": list(self.other_weights),
            "uncovered": list(self.uncovered),
            "versions": {name: list(pair) for name, pair in self.versions.items()},
            "between": self.between,
            "places": self.to_frame().to_dicts(),
        }


def check(before: Lock, after: Lock) -> CheckedLock:
    """Compare the encodings that a model applies with its lock.

    Args:
        before: The lock.
        after: A new measurement of the model, at the same length.

    Example:
        >>> import spectrope as sp
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, num_attention_heads=4, **sizes))
        >>> before = sp.lock(model, length=64, watch=sp.unwatched)
        >>> model.model.rotary_emb.inv_freq *= 0.5
        >>> move = sp.check(before, sp.lock(model, length=64, watch=sp.unwatched)).moves[0]
        >>> move.what, move.locked, move.now
        ('scaling', 'base 10000', 'base 10000, linear by 2')
    """
    layers = {one.name: one for one in after.layers}
    moves, others = list(_coverage(before, after)), list[str]()
    noise = max(before.noise, after.noise)
    for one in before.layers:
        if (now := layers.get(one.name)) is None:
            continue
        differing = compare(anchored(one.encoding), now.encoding, before.length, noise)
        of_layer = list(_encoding(one, now, differing)) or list(_far(one, now))
        if not _same_weights(one, now, noise):
            others.append(f"layer {one.name}")
        elif not differing and not of_layer:
            of_layer += _kernels(one, now)
        moves += of_layer
    moves += _beside(before.decays, after.decays, noise, decay_moves)
    moves += _beside(before.vision, after.vision, noise, vision_moves)
    stacks = {one.block: one for one in after.embeddings}
    for one in before.embeddings:
        moves += _embeddings(one, stacks.get(one.block), noise)
    modes = {one.path: one for one in after.paths}
    for one in before.paths:
        moves += _serving_mode(one, modes.get(one.path))
    return CheckedLock(before, after, tuple(moves), tuple(others))


def _in_words(before: AnyLayer, after: AnyLayer | None) -> tuple[str, str]:
    """What a layer applied and applies, without windows if the lock holds none beyond its positions."""
    if isinstance(before, LockedLayer) and isinstance(after, LockedLayer) and before.far is None:
        return before.applies, after.applies
    return before.described, "missing" if after is None else after.described


def _coverage(before: Lock, after: Lock) -> Iterator[Move]:
    """Layers that are missing, or whose attention is no longer read."""
    known = {one.name for one in after.every_layer}
    for one in before.every_layer:
        if one.name not in known:
            yield Move(f"layer {one.name}", "layers", one.described, "missing")
    for name in sorted(set(after.unread) - set(before.unread)):
        yield Move(name, "layers", "read", "an unsupported form of attention")


def _beside(
    before: Sequence[Beside], after: Sequence[Beside], noise: float, moves_of: MovesOf[Beside]
) -> Iterator[Move]:
    """What changed in layers of linear attention, or of a vision tower.

    What the audit finds now and did not find before explains a change best. Without that, the configuration
    has changed alike.
    """
    now = {one.name: one for one in after}
    for one in before:
        if (other := now.get(one.name)) is not None:
            found = list(new_findings(f"layer {one.name}", one.findings, other.findings))
            yield from found or moves_of(one, other, noise)


def _encoding(before: LockedLayer, after: LockedLayer, differing: list[Discrepancy]) -> Iterator[Move]:
    """Where a layer applies another encoding beyond its tolerance, and what the audit newly finds there."""
    where, seen = f"layer {before.name}", {one.what for one in differing}
    for one in differing:
        departure = one.residual if one.residual is not None else _departure(one, before, after)
        if departure > before.tolerance:
            yield Move(where, one.what, one.expected, one.effective, one.head, _declaration(before, after))
    yield from new_findings(where, before.findings, after.findings, seen)


def _far(before: LockedLayer, after: LockedLayer) -> Iterator[Move]:
    """Where a layer applies another encoding beyond the lock's positions."""
    where = f"layer {before.name}"
    for one in far_differences(before.far, after.far, before.tolerance):
        yield Move(where, one.what, one.expected, one.effective, note=one.note)


def _departure(one: Discrepancy, before: LockedLayer, after: LockedLayer) -> float:
    """Largest relative departure of a frequency; infinite for what is no matter of frequencies."""
    then, now = before.encoding.turning, after.encoding.turning
    if one.code not in OF_FREQUENCIES or then is None or now is None:
        return math.inf
    pairs = zip(then.frequencies, now.frequencies, strict=True)
    return max(abs(b / a - 1) if a else math.inf for a, b in pairs)


def _declaration(before: LockedLayer, after: LockedLayer) -> str:
    """Whether the configuration declares another encoding, too."""
    if before.declared == after.declared:
        return f"{after.declared} is still declared"
    return f"{after.declared} is declared now, {before.declared} when it was locked"


def _same_weights(before: LockedLayer, after: LockedLayer, noise: float) -> bool:
    """Whether queries and keys have the norms that they had, which no rotation and no order changes."""
    if before.module != after.module or len(before.heads) != len(after.heads):
        return False
    pairs = [
        pair
        for one, other in zip(before.heads, after.heads, strict=True)
        for pair in ((one.query, other.query), (one.key, other.key))
    ]
    return all(abs(a - b) <= max(SAME_WEIGHTS, 2 * noise) * max(abs(a), abs(b)) for a, b in pairs)


def _kernels(before: LockedLayer, after: LockedLayer) -> Iterator[Move]:
    """The heads whose kernels changed, where the layer's encoding itself did not."""
    changed = [
        (one.head, *gap)
        for one, other in zip(before.heads, after.heads, strict=True)
        if (gap := _gap(one, other)) is not None
    ]
    if not changed:
        return
    head, lag, then, now = changed[0]
    heads = ", ".join(str(one[0]) for one in changed)
    note = f"heads {heads}; a different order of the rows of queries and keys has this effect"
    yield Move(
        f"layer {before.name}", f"kernel of head {head}", f"{then:.4g} at lag {lag}", f"{now:.4g}", head, note
    )


def _gap(before: LockedHead, after: LockedHead) -> tuple[int, float, float] | None:
    """The lag at which a kernel changed most, if it changed beyond its tolerance: lag, then, now."""
    known = dict(zip(after.lags, after.kernel, strict=True))
    both = [(lag, x, known[lag]) for lag, x in zip(before.lags, before.kernel, strict=True) if lag in known]
    lag, then, now = max(both, key=lambda one: abs(one[1] - one[2]), default=(0, 0.0, 0.0))
    within = max(before.tolerance, after.tolerance)
    return (lag, then, now) if abs(then - now) > within else None


def _embeddings(before: LockedEmbeddings, after: LockedEmbeddings | None, noise: float) -> Iterator[Move]:
    where = f"embeddings of {before.block}"
    if after is None:
        yield Move(where, "absolute term", before.table or "no table", "missing")
        return
    if before.table != after.table:
        yield Move(where, "absolute term", before.table or "no table", after.table or "no table")
    if before.first_row != after.first_row:
        yield Move(where, "first position", f"row {before.first_row}", f"row {after.first_row}")
    norms = dict(zip(after.positions, after.norms, strict=True))
    along = dict(zip(after.positions, after.along, strict=bool(after.along)))
    components = before.along if before.along and along else (0.0,) * len(before.norms)
    for place, norm, component in zip(before.positions, before.norms, components, strict=True):
        now = norms.get(place, 0.0)
        within = max(before.tolerance, 10 * noise) * max(norm, now)
        if abs(norm - now) > within:
            yield Move(where, "vectors by position", f"norm {norm:.4g} at position {place}", f"{now:.4g}")
            return
        if before.along and along and abs(component - along.get(place, 0.0)) > within:
            then = f"component {component:.4g} in a fixed direction at position {place}"
            yield Move(where, "vectors by position", then, f"{along.get(place, 0.0):.4g}")
            return


def _serving_mode(before: LockedServingMode, after: LockedServingMode | None) -> Iterator[Move]:
    where = f"serving mode {before.path}"
    if after is None:
        yield Move(where, "serving mode", before.verdict, "missing")
    elif after.verdict != before.verdict or set(after.findings) - set(before.findings):
        told = next(iter(set(after.findings) - set(before.findings)), after.verdict)
        yield Move(where, "serving mode", before.verdict, told)


def _table_of(lock: Lock, block: str) -> str:
    found = (one.table or "no table" for one in lock.embeddings if one.block == block)
    return next(found, "missing")
