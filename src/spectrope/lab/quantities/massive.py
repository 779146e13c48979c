"""How far single coordinates of a head's queries and keys exceed the others."""

from jaxtyping import Float
from torch import Tensor

from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import HeadQuantity


class MassiveQueries(HeadQuantity, name="massive_queries"):
    """Largest norm of a coordinate of the queries over tokens, divided by the mean over coordinates.

    Queries are those before rotation. It is 1 where all coordinates are equally large, and the head's width
    where one of them has everything. Massive Values in Self-Attention Modules (Jin et al., 2025) calls a
    coordinate massive where this ratio is large.
    """

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.coordinates[0].amax(-1)


class MassiveKeys(HeadQuantity, name="massive_keys"):
    """The same of the keys."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.coordinates[1].amax(-1)
