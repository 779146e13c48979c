"""R12: the paper's public code zeroes columns of latent attention's weights instead of a head."""

from collections.abc import Collection
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.attention import Latent
from spectrope.core import UnsupportedError
from spectrope.lab import LayerFill, Site


class LatentColumns(LayerFill, name="latent-columns"):
    """Outputs of all heads where some columns of the up-projections of latent attention are zero.

    For head h, the code zeroes columns h * head_dim to (h + 1) * head_dim, which belong to the latents of
    queries, keys and values, instead of the rows of the head. For heads beyond the width of the latents,
    nothing changes.
    """

    def layer_output(self, site: Site, heads: Collection[int]) -> Float[Tensor, "b h i k"]:
        latent = site.heads
        if not isinstance(latent, Latent):
            raise UnsupportedError(
                f"fill {self.kind!r} needs attention 'mla'; this model has {type(latent).__name__}, "
                "whose public protocol is 'R9'."
            )
        x_q, x_k = site.ctx.x_q, site.ctx.x_k
        assert x_q is not None
        assert x_k is not None

        def cut(latents: Tensor) -> Tensor:
            keep = torch.ones_like(latents[0, 0])
            for head in heads:
                keep[head * latent.head_dim : (head + 1) * latent.head_dim] = 0
            return latents * keep

        z, c = latent.query_down(x_q), latent.key_value_down(x_k)
        q = latent.expand_queries(cut(z) if latent.compresses_queries else z)
        k, v = latent.expand_keys_values(cut(c), latent.rotary_key(x_k))
        return site.attend(replace(site.ctx, q=q, k=k), site.encoding, v)
