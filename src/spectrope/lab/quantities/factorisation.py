"""Distance of a head's logits from a product of content and position."""

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.encodings import complex_pairs
from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import HeadQuantity
from spectrope.spectral import factorisation_residuals


class Factorisation(HeadQuantity, name="factorisation"):
    """Least residual of the complex logits as content times position, row means kept.

    It is defined if the encoding rotates all coordinates at fixed frequencies.
    """

    heading, caption = "residual", "residual of content times position"

    def values(self, layer: ObservedLayer) -> Float[Tensor, "b h"] | None:
        if not any(layer.rotations):
            return None
        residuals = torch.full(layer.logits.shape[:2], torch.nan, dtype=torch.float64)
        for head, rotation in enumerate(layer.rotations):
            if rotation is not None:
                q, k = (complex_pairs(x[:, head], rotation.pairs) for x in layer.plain)
                frequencies = rotation.frequencies * layer.spacing
                residuals[:, head] = factorisation_residuals(q, k, frequencies, causal=layer.causal)
        return residuals
