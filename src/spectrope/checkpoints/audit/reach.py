"""How far the pairs of a rotation turn: within training, within an audit, and relative to their base."""

import math
from dataclasses import dataclass

from spectrope.checkpoints.audit.encoding import Turning

SLOWED = 1e-3  # Relative slowdown from which a pair counts as slowed.
TURN = 2 * math.pi


@dataclass(frozen=True)
class PairReach:
    """How far one coordinate pair turns.

    Args:
        pair: Its number, from 0; as a rule the fastest comes first.
        wavelength: Positions per turn; None where it stands still.
        turned_in_training: Whether it makes at least one full turn within the trained length.
        turned: Whether it makes one within the audited length.
        unseen: Whether within the audited length it reaches angles that no training position had.
        aliased: Whether it turns by more than half a turn per position, so that its sense is ambiguous.
        slowdown: Factor by which it is slower than the base implies; 1 if it is not slower, None if it does
            not rotate.
    """

    pair: int
    wavelength: float | None
    turned_in_training: bool
    turned: bool
    unseen: bool
    aliased: bool
    slowdown: float | None

    @property
    def slowed(self) -> bool:
        """Whether it is slower than the base alone makes it."""
        return self.slowdown != 1


@dataclass(frozen=True)
class Reach:
    """How far the pairs of a rotation turn.

    Args:
        trained: Positions that the configuration gives the model.
        length: Positions of the audit.
        turned_in_training: Number of pairs that make at least one full turn within the trained length.
        turned: Number of those that make one within the audited length.
        unseen: Number of those that within the audited length reach angles that no training position had.
        aliased: Number of those that turn by more than half a turn per position.
        slowed_from: The first pair, from 0, that turns slower than the base alone makes it, if any does.
        slowdown: How many times slower the slowest of them is, 1 if none is; None where one stands still.
        pairs: A record per pair.
    """

    trained: int
    length: int
    turned_in_training: int
    turned: int
    unseen: int
    aliased: int
    slowed_from: int | None
    slowdown: float | None
    pairs: tuple[PairReach, ...]


def reach_of(turning: Turning, base: float, trained: int, length: int, noise: float = 0.0) -> Reach:
    """Find the pairs whose angles exceed a turn, the trained range and the sampling limit.

    Args:
        turning: The rotation.
        base: Of the progression that its frequencies would be in unscaled.
        trained: Positions that the configuration gives the model.
        length: Positions of the audit.
        noise: Relative rounding error of the model's arithmetic.
    """
    m = len(turning.frequencies)
    pairs = tuple(
        _pair(j, abs(frequency), base ** (-j / m), 5 * error + 4 * noise / length, trained, length)
        for j, (frequency, error) in enumerate(zip(turning.frequencies, turning.errors, strict=True))
    )
    slowed = [pair for pair in pairs if pair.slowed]
    factors = [pair.slowdown for pair in slowed if pair.slowdown is not None]
    return Reach(
        trained=trained,
        length=length,
        turned_in_training=sum(pair.turned_in_training for pair in pairs),
        turned=sum(pair.turned for pair in pairs),
        unseen=sum(pair.unseen for pair in pairs),
        aliased=sum(pair.aliased for pair in pairs),
        slowed_from=slowed[0].pair if slowed else None,
        slowdown=max(factors, default=1.0) if len(factors) == len(slowed) else None,
        pairs=pairs,
    )


def _pair(j: int, speed: float, unscaled: float, bound: float, trained: int, length: int) -> PairReach:
    """One pair at a speed in radians per position, known within a bound."""
    slowed = unscaled - speed > SLOWED * unscaled + bound
    slowdown = unscaled / speed if speed else None
    return PairReach(
        pair=j,
        wavelength=TURN / speed if speed else None,
        turned_in_training=speed * (trained - 1) >= TURN,
        turned=speed * (length - 1) >= TURN,
        unseen=0 < speed * (trained - 1) < min(TURN, speed * (length - 1)),
        aliased=speed > math.pi,
        slowdown=slowdown if slowed else 1.0,
    )
