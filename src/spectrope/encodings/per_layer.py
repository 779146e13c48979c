"""A different encoding for some layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from jaxtyping import Float
from torch import Tensor

from spectrope.core import OneOf, require
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig, Scope, Side
from spectrope.encodings.composite import Composite, require_no_input
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE


class PerLayer(Composite, name="per_layer"):
    r"""Uses a different encoding in each layer, in a repeating order:
    :math:`L^{(\ell)} = L^{(\ell)}_{e(\ell \bmod n)}`.

    The default leaves every fourth layer without positions, as SmolLM3 and Llama 4 do. `build` returns the
    encoding of the first layer, and `build_layers` those of all layers.

    References:
        RoPE to NoPE and Back Again: A New Hybrid Attention Strategy (Yang et al., 2025).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The encodings of the first layers, after which the cycle starts again."""

        layers: tuple[Annotated[EncodingConfig, OneOf(ENCODINGS)], ...] = (
            RoPE.Config(),
            RoPE.Config(),
            RoPE.Config(),
            NoPE.Config(),
        )

        def __post_init__(self) -> None:
            require(len(self.layers) > 0, self, "layers", "at least one encoding")

        def build_layers(self, n_layers: int) -> list[Encoding]:
            cycle = len(self.layers)
            counts = [len(range(start, n_layers, cycle)) for start in range(cycle)]
            built = [c.build_layers(n) if n else [] for c, n in zip(self.layers, counts, strict=True)]
            require_no_input([e for encodings in built for e in encodings], self, "layers")
            return [built[layer % cycle][layer // cycle] for layer in range(n_layers)]

    def built(self, config: "PerLayer.Config") -> list[Encoding]:
        return [part.build() for part in config.layers]

    def compose(self, config: "PerLayer.Config", terms: Sequence[Encoding]) -> None:
        super().compose(config, terms)
        require_no_input(self.terms, config, "layers")
        first = self.terms[0]
        self.form, self.tags, self.scope = first.form, first.tags, Scope.LAYER
        self.axes = first.axes
        self.prefix_consistent, self.logit_scale = first.prefix_consistent, first.logit_scale

    @property
    def pairwise(self) -> bool:
        return self.terms[0].pairwise

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        return self.terms[0].scaled(q)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        return self.terms[0].rotate(x, pos, side)

    def bias(self, ctx: Context) -> Tensor | None:
        return self.terms[0].bias(ctx)

    def lag_bias(self, lag: Tensor) -> Tensor:
        return self.terms[0].lag_bias(lag)

    def read(
        self, pattern: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j e"], ctx: Context
    ) -> Float[Tensor, "b h i e"]:
        return self.terms[0].read(pattern, v, ctx)

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        return self.terms[0].logits(ctx)
