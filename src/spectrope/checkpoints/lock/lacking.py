"""What a lock does not hold of a model, and what of that leaves the answer incomplete."""

from collections.abc import Iterator

from spectrope.checkpoints.lock.move import Uncompared
from spectrope.checkpoints.lock.records import SERVING_MODES, Lock, LockedLayer

ALWAYS = ("embeddings", "layers")  # Kinds of record that locks of all versions hold.
NOT_HELD = "the lock does not hold it"


def lacked(before: Lock, after: Lock) -> Iterator[str]:
    """What a lock does not hold and a new one would, in words."""
    held = {one.name for one in before.every_layer}
    yield ", ".join(f"layer {one.name}" for one in after.every_layer if one.name not in held)
    yield ", ".join(place for kind, place in _new(before, after) if kind in ("embeddings", SERVING_MODES))
    both = [*_both(before, after)]
    if any(one.far is None and now.far is not None for one, now in both):
        yield f"what changes beyond {before.length} positions"
    if any(one.far and one.far.grows is None and now.far and now.far.frequencies for one, now in both):
        yield "declared frequencies, which show changes below the rounding of the arithmetic"
    if any(one.norms and not one.along for one in before.embeddings):
        yield "directions of the vectors that embeddings add by position, beside their norms"


def left_out(before: Lock, after: Lock) -> Iterator[str]:
    """Serving modes, in words, where neither the lock nor the measurement holds those that the model has."""
    if not before.paths and SERVING_MODES not in after.kinds:
        yield f"{SERVING_MODES}, which the lock was made without"


def missing_places(before: Lock, after: Lock) -> Iterator[Uncompared]:
    """Places whose absence leaves the answer incomplete: what the lock was written with is no longer in it,
    or a serving mode differs of which it knows nothing.

    Kinds of record that its version did not write, and layers whose attention it did not read, are missing
    by no fault of its own.
    """
    unread = {f"layer {one.name}" for one in after.layers if one.module in before.unread}
    if not before.kinds and not any(map(_is_indexer, before.layers)):  # Of a version that had none.
        unread |= {f"layer {one.name}" for one in after.layers if _is_indexer(one)}
    differing = {f"serving mode {one.path}" for one in after.paths if one.verdict == "differs"}
    for kind, place in _new(before, after):
        written = kind in (*ALWAYS, *before.kinds) or before.by_kind[kind]
        if kind == SERVING_MODES:
            written = place in differing or (kind in before.kinds and not before.paths)
        if written and place not in unread:
            yield Uncompared(place, NOT_HELD)


def _is_indexer(layer: LockedLayer) -> bool:
    return layer.name.startswith("indexer ")


def _new(before: Lock, after: Lock) -> Iterator[tuple[str, str]]:
    """Places of a measurement that a lock does not have, each with its kind."""
    for kind, places in after.by_kind.items():
        yield from ((kind, place) for place in places if place not in before.by_kind[kind])


def _both(before: Lock, after: Lock) -> Iterator[tuple[LockedLayer, LockedLayer]]:
    """Layers of the lock that are there now, too."""
    layers = {one.name: one for one in after.layers}
    return ((one, layers[one.name]) for one in before.layers if one.name in layers)
