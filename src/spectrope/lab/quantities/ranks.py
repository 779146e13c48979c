"""Effective ranks of a head's logits, row means removed."""

from jaxtyping import Float
from torch import Tensor

from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import HeadQuantity


class StableRank(HeadQuantity, name="stable_rank"):
    """Sum of squared singular values over the largest square."""

    heading, caption = "rank", "stable rank"

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.ranks.stable


class ParticipationRank(HeadQuantity, name="participation_rank"):
    """Squared sum of singular values over their sum of squares."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.ranks.participation


class EntropyRank(HeadQuantity, name="entropy_rank"):
    """Exponential of the entropy of normalised singular values."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.ranks.entropy
