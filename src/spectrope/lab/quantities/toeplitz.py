"""Toeplitz shares: how much of a head's logits depends only on the lag."""

from jaxtyping import Float
from torch import Tensor

from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import HeadQuantity


class Toeplitz(HeadQuantity, name="toeplitz"):
    """Share of lags in the energy of the logits, row effects removed, which softmax ignores."""

    heading, caption = "Toeplitz", "share of lags in logits, row means removed"

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.shares.gauge_fixed


class ToeplitzContent(HeadQuantity, name="toeplitz_content"):
    """The Toeplitz share of the product of queries and keys before rotation and without bias.

    It is defined where the encoding rotates or adds a bias.
    """

    heading, caption = "content", "the Toeplitz share without rotation and bias"

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        return layer.content_share()


class ToeplitzRaw(HeadQuantity, name="toeplitz_raw"):
    """Share of energy in the nearest Toeplitz matrix, row means kept."""

    heading, caption = "raw", "the Toeplitz share with row means kept"

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.shares.raw


class ToeplitzMeanRemoved(HeadQuantity, name="toeplitz_mean_removed"):
    """Share of energy in the nearest Toeplitz matrix of the logits minus their one mean."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"]:
        return layer.shares.mean_removed
