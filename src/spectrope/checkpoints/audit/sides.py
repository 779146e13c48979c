"""Each head of the queries and each of the keys by itself."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median

from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.rotary import Rotation, fit_rotation
from spectrope.checkpoints.audit.starts import factor_of
from spectrope.checkpoints.probes.constant_content import LayerKernel

Place = tuple[str, int]  # Side ("queries" or "keys") and head.


@dataclass(frozen=True)
class HeadSide:
    """One head of the queries or of the keys.

    Args:
        x: The vectors, with shape (b, 1, t, d).
        rotation: What they go through, None if they do not turn in pairs.
        factor: Of unrotated vectors over those projected; None where these were not seen.
    """

    x: Float[Tensor, "b 1 t d"]
    rotation: Rotation | None
    factor: float | None

    @property
    def gain(self) -> float | None:
        """Factor on the vectors, rotated or not; None where those projected were not seen."""
        return self.factor if self.rotation is None else self.rotation.query_gain


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

    @property
    def factor(self) -> float | None:
        """Factor on the dot products of unrotated vectors; None where those projected were not seen."""
        queries, keys = self.gains["queries"], self.gains["keys"]
        return None if queries is None or keys is None else queries * keys

    def side(self, side: str) -> list[HeadSide]:
        """The heads of one side."""
        return [one for (name, _), one in self.of.items() if name == side]

    def start(self, side: str) -> int | None:
        """The position by which most heads of a side have turned at the first token."""
        seen = [r.position for r in self.rotations(side) if r.position is not None]
        return Counter(seen).most_common(1)[0][0] if seen else None

    def rotations(self, side: str) -> Sequence[Rotation]:
        """Those of the heads that turn."""
        return [one.rotation for one in self.side(side) if one.rotation is not None]

    def agreed(self, turning: Turning) -> Turning:
        """A rotation of all heads, with what most of them say of factors, pairing and first positions."""
        first, second = self.start("queries"), self.start("keys")
        offset = None if first is None or second is None else second - first
        both = self.gains["queries"], self.gains["keys"]
        turning = replace(turning, key_offset=offset, gain=None, gains=None)
        if both[0] is None or both[1] is None:
            return turning
        return replace(turning, gain=both[0] * both[1], gains=(both[0], both[1]))


def each_head(
    q: Float[Tensor, "b h t d"], kernel: LayerKernel, together: Rotation | None, noise: float
) -> Sides:
    """Measure every head of both sides.

    Args:
        q: Queries, freed of a factor that grows with position.
        kernel: Whose keys are measured beside them.
        together: Rotation of all heads, whose layout is tried first.
        noise: Relative rounding error of the model's arithmetic.
    """
    sides = {"queries": q, "keys": kernel.call.k.double()}
    likely = None if together is None else together.layout
    return Sides(
        {
            (side, head): _head(x[:, head : head + 1], kernel, likely, noise)
            for side, x in sides.items()
            for head in range(x.shape[1])
        }
    )


def _head(x: Float[Tensor, "b 1 t d"], kernel: LayerKernel, likely: Layout | None, noise: float) -> HeadSide:
    rotation = fit_rotation(x, None, kernel.sources, noise, likely)
    return HeadSide(x, rotation, factor_of(x[:, 0, 0], kernel.sources, noise) if rotation is None else None)


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
