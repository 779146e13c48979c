"""Contraction: ratios of norms of query-key products with rotation to those without."""

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import HeadQuantity


class ContractionSpectral(HeadQuantity, name="contraction_spectral"):
    """Largest singular value with rotation over that without it, row means removed."""

    heading, caption = "contr.", "largest singular value with rotation over that without"

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        return layer.contraction and _where_turned(layer, layer.contraction.gauge_fixed.spectral)


class ContractionFrobenius(HeadQuantity, name="contraction_frobenius"):
    """Frobenius norm with rotation over that without it, row means removed."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        return layer.contraction and _where_turned(layer, layer.contraction.gauge_fixed.frobenius)


class ContractionNuclear(HeadQuantity, name="contraction_nuclear"):
    """Sum of singular values with rotation over that without it, row means removed."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        return layer.contraction and _where_turned(layer, layer.contraction.gauge_fixed.nuclear)


class ContractionRawSpectral(HeadQuantity, name="contraction_raw_spectral"):
    """Largest singular value with rotation over that without it, row means kept."""

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        return layer.contraction and _where_turned(layer, layer.contraction.raw.spectral)


def _where_turned(layer: ObservedLayer, ratios: Float[Tensor, "b h"]) -> Float[Tensor, "b h"]:
    """NaN in the place of heads that nothing rotates."""
    return ratios.masked_fill(~torch.tensor(layer.turning), torch.nan)
