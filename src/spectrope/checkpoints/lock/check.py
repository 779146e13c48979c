"""Compare a checkpoint with its lock: what changed, and between which versions."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from spectrope.checkpoints.audit.anchored import anchored
from spectrope.checkpoints.audit.compare import Discrepancy, compare
from spectrope.checkpoints.audit.far_encoding import far_differences
from spectrope.checkpoints.lock.checked import CheckedLock
from spectrope.checkpoints.lock.decays import decay_moves
from spectrope.checkpoints.lock.kernels import ACCEPTED, is_trained, kernel_outcomes, other_weights
from spectrope.checkpoints.lock.lacking import missing_places
from spectrope.checkpoints.lock.move import (
    Accepted,
    LockOutcome,
    Move,
    Uncompared,
    new_findings,
    with_accepted,
)
from spectrope.checkpoints.lock.records import Lock, LockedDecay, LockedLayer, LockedVision
from spectrope.checkpoints.lock.terms import LEARNED, mode_moves, term_outcomes
from spectrope.checkpoints.lock.towers import vision_moves

OF_FREQUENCIES = ("SPE101", "SPE102")  # Codes of findings that a departure of frequencies explains.
SINKS = "attention sinks of head"  # How the respects of values that training moves begin.
Beside = TypeVar("Beside", LockedDecay, LockedVision)
MovesOf = Callable[[Beside, Beside, float], Iterator[Move]]


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
    outcomes = list(_outcomes(before, after, max(before.noise, after.noise)))
    return CheckedLock(
        before,
        after,
        moves=tuple(one for one in outcomes if isinstance(one, Move)),
        accepted=tuple(one.move for one in outcomes if isinstance(one, Accepted)),
        uncompared=tuple(one for one in outcomes if isinstance(one, Uncompared)),
    )


def _outcomes(before: Lock, after: Lock, noise: float) -> Iterator[LockOutcome]:
    """What changed, what is accepted and what could not be compared, everywhere."""
    yield from _coverage(before, after)
    layers = {one.name: one for one in after.layers}
    pairs = [(one, layers[one.name]) for one in before.layers if one.name in layers]
    for one, now in pairs:
        yield from _layer(one, now, before, after, noise)
    yield from _beside(before.decays, after.decays, noise, decay_moves)
    yield from _beside(before.vision, after.vision, noise, vision_moves)
    stacks = {one.block: one for one in after.embeddings}
    trained = any(is_trained(one, now, noise) for one, now in pairs)
    for one in before.embeddings:
        yield from term_outcomes(one, stacks.get(one.block), noise, trained=trained)
    modes = {one.path: one for one in after.paths}
    for one in before.paths:
        yield from mode_moves(one, modes.get(one.path))
    yield from missing_places(before, after)


def _coverage(before: Lock, after: Lock) -> Iterator[Move]:
    """Layers that are missing, or whose attention is no longer read."""
    known = {one.name for one in after.every_layer}
    for one in before.every_layer:
        if one.name not in known:
            yield Move(f"layer {one.name}", "layers", one.described, "missing")
    for name in sorted(set(after.unread) - set(before.unread)):
        yield Move(name, "layers", "read", "an unsupported form of attention")


def _layer(
    one: LockedLayer, now: LockedLayer, before: Lock, after: Lock, noise: float
) -> Iterator[LockOutcome]:
    """One layer: its encoding, and where that is the locked one, the kernels of its heads."""
    where, found = f"layer {one.name}", compare(anchored(one.encoding), now.encoding, before.length, noise)
    trained = is_trained(one, now, noise)
    differing = [each for each in found if not (trained and each.what.startswith(SINKS))]
    if len(differing) < len(found):
        yield Uncompared(where, LEARNED)
    new = list(new_findings(where, one.findings, now.findings, {each.what for each in found}))
    far = list(_far(one, now, one.tolerance))
    moves = [*_encoding(one, now, differing, one.tolerance), *new] or far
    beyond = {each.what for each in far}
    far_within = [each for each in _far(one, now, 0.0) if each.what not in beyond]
    yield from with_accepted(moves, list(_encoding(one, now, differing, 0.0)) or far_within)
    if why := other_weights(one, now, noise):
        yield Uncompared(where, why)
    elif not moves:
        turned = _turned(one, now, differing)
        lower = before.noise > after.noise
        if turned is None:
            yield Uncompared(where, ACCEPTED)
        else:
            yield from kernel_outcomes(one, now, turned, lower=lower)


def _turned(before: LockedLayer, after: LockedLayer, differing: list[Discrepancy]) -> float | None:
    """By how many radians per position frequencies differ that are accepted; None where something else does,
    too."""
    if not differing:
        return 0.0
    then, now = before.encoding.turning, after.encoding.turning
    of_frequencies = all(one.code in OF_FREQUENCIES for one in differing)
    if not of_frequencies or then is None or now is None or after.encoding.scale is None:
        return None
    return max(abs(a - b) for a, b in zip(then.frequencies, now.frequencies, strict=True))


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


def _encoding(
    before: LockedLayer, after: LockedLayer, differing: list[Discrepancy], within: float
) -> Iterator[Move]:
    """Where a layer applies another encoding beyond a tolerance."""
    for one in differing:
        departure = one.residual if one.residual is not None else _departure(one, before, after)
        if departure > within:
            told = one.what, one.expected, one.effective, one.head, _declaration(before, after)
            yield Move(f"layer {before.name}", *told)


def _far(before: LockedLayer, after: LockedLayer, within: float) -> Iterator[Move]:
    """Where a layer applies another encoding beyond the lock's positions."""
    for one in far_differences(before.far, after.far, within):
        yield Move(f"layer {before.name}", one.what, one.expected, one.effective, note=one.note)


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
