"""Each head of the queries and each of the keys by itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.rotary import Rotation, fit_rotation
from spectrope.checkpoints.audit.starts import match_of

Place = tuple[str, int]  # Side ("queries" or "keys") and head.


@dataclass(frozen=True)
class HeadSide:
    """One head of the queries or of the keys.

    Args:
        x: The vectors, with shape (b, 1, t, d).
        rotation: What they go through, None if they do not turn in pairs.
        factor: Of unrotated vectors over those projected; None where these were not seen.
        places: Where the vectors begin in what was projected; empty where that was not seen.
    """

    x: Float[Tensor, "b 1 t d"]
    rotation: Rotation | None
    factor: float | None
    places: tuple[int, ...] = ()

    @property
    def gain(self) -> float | None:
        """Factor on the vectors, rotated or not; None where those projected were not seen."""
        return self.factor if self.rotation is None else self.rotation.query_gain

    def without_gain(self) -> "HeadSide":
        """The same where the sizes of the vectors say nothing."""
        rotation = self.rotation and replace(self.rotation, query_gain=None, key_gain=None)
        return replace(self, rotation=rotation, factor=None)


@dataclass(frozen=True)
class Sides:
    """All heads of a layer.

    Args:
        of: By side and head.
    """

    of: Mapping[Place, HeadSide]

    @cached_property
    def gains(self) -> dict[str, float | None]:
        """The middle one of the factors on each side."""
        return {side: _middle([one.gain for one in self.side(side)]) for side in ("queries", "keys")}

    def without_gains(self) -> "Sides":
        """The same of vectors whose sizes say nothing of those projected."""
        return Sides({place: one.without_gain() for place, one in self.of.items()})

    def side(self, side: str) -> list[HeadSide]:
        """The heads of one side."""
        return [one for (name, _), one in self.of.items() if name == side]

    def start(self, side: str) -> int | None:
        """The position by which most heads of a side have turned at the first token."""
        seen = [r.position for r in self.rotations(side) if r.position is not None]
        return Counter(seen).most_common(1)[0][0] if seen else None

    def order(self, side: str) -> list[int]:
        """Which of the projected heads each head of a side is; empty where some were not seen.

        Of several that are the same, it is the first that is not before the head ahead of it.
        """
        taken: list[int] = []
        for one in self.side(side):
            if not one.places:
                return []
            last = taken[-1] if taken else 0
            taken.append(next((place for place in one.places if place >= last), one.places[0]))
        known = sorted({*taken})
        return [known.index(place) for place in taken]

    def alike(self, side: str) -> bool:
        """Whether some heads of a side could be several of those projected."""
        return any(len(one.places) > 1 for one in self.side(side))

    def rotations(self, side: str) -> Sequence[Rotation]:
        """Those of the heads that turn."""
        return [one.rotation for one in self.side(side) if one.rotation is not None]

    def agreed(self, turning: Turning) -> Turning:
        """A rotation of all heads, with what most of them say of factors, pairing and first positions."""
        first, second = self.start("queries"), self.start("keys")
        offset = None if first is None or second is None else second - first
        both = self.gains["queries"], self.gains["keys"]
        turning = replace(turning, position=first, key_offset=offset, gain=None, gains=None)
        if both[0] is None or both[1] is None:
            return turning
        return replace(turning, gain=both[0] * both[1], gains=(both[0], both[1]))


def each_head(
    q: Float[Tensor, "b h t d"],
    k: Float[Tensor, "b g t d"],
    sources: list[Float[Tensor, "b _"]],
    together: Rotation | None,
    noise: float,
) -> Sides:
    """Measure every head of both sides.

    Args:
        q: Queries, freed of a factor that grows with position.
        k: Keys likewise.
        sources: What the layer's inner modules put out at the first position.
        together: Rotation of all heads, whose layout is tried first.
        noise: Relative rounding error of the model's arithmetic.
    """
    sides, sources = {"queries": q, "keys": k}, [*sources]
    likely = None if together is None else together.layout
    return Sides(
        _laid_out_alike(
            {
                (side, head): _head(x[:, head : head + 1], sources, likely, noise)
                for side, x in sides.items()
                for head in range(x.shape[1])
            }
        )
    )


def _laid_out_alike(of: dict[Place, HeadSide]) -> dict[Place, HeadSide]:
    """Heads whose vectors before rotation were not found have pairs laid out as those that were."""
    seen = [one.rotation for one in of.values() if one.rotation is not None and one.gain is not None]
    known = {rotation.seen_pairing: rotation.pairing for rotation in seen}

    def alike(one: HeadSide) -> HeadSide:
        rotation = one.rotation
        if rotation is None or one.gain is not None or rotation.seen_pairing not in known:
            return one
        return replace(one, rotation=replace(rotation, pairing=known[rotation.seen_pairing]))

    return {place: alike(one) for place, one in of.items()}


def _head(
    x: Float[Tensor, "b 1 t d"], sources: list[Float[Tensor, "b _"]], likely: Layout | None, noise: float
) -> HeadSide:
    rotation = fit_rotation(x, None, sources, noise, likely)
    if rotation is not None:
        return HeadSide(x, rotation, None, rotation.places)
    match = match_of(x[:, 0, 0], sources, noise)
    return HeadSide(x, None, None) if match is None else HeadSide(x, None, match.factor, match.places)


def _middle(values: Sequence[float | None]) -> float | None:
    """The value nearest to all others, of ties that nearest to 1."""
    known = [value for value in values if value is not None]
    return min(known, key=lambda x: (sum(abs(x - y) for y in known), abs(x - 1)), default=None)
