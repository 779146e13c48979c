"""Rotation of part of each head's coordinates."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import ConfigError, OneOf, require
from spectrope.encodings.base import ENCODINGS, Encoding, EncodingConfig, Form, Side
from spectrope.encodings.composite import Composite, require_no_input
from spectrope.encodings.rope import RoPE


class PartialDims(Composite, name="partial_dims"):
    r"""Applies another encoding to the first coordinates of each head, and none to the others:
    :math:`(R(x_{<r}, p),\, x_{\ge r})`.

    References:
        GPT-NeoX-20B: An Open-Source Autoregressive Language Model (Black et al., 2022).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """What is rotated, and how."""

        head_dim: int = 16  # Width of queries and keys.
        fraction: float = 0.5  # Share of the coordinates that is rotated; GPT-NeoX rotates a quarter.
        inner: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(default_factory=RoPE.Config)

        def __post_init__(self) -> None:
            require(0 < self.fraction <= 1, self, "fraction", "above 0 and at most 1")
            try:
                inner = self.inner.fitted(head_dim=self.width)
            except ConfigError as error:
                raise ConfigError(
                    f"PartialDims.Config.fraction={self.fraction} of {self.head_dim} coordinates is "
                    f"{self.width}: {error}"
                ) from None
            object.__setattr__(self, "inner", inner)

        @property
        def width(self) -> int:
            """Number of coordinates that are rotated."""
            return int(self.head_dim * self.fraction)

        def fitted(self, **sizes: Any) -> "PartialDims.Config":
            whole = replace(self, head_dim=sizes.get("head_dim", self.head_dim))
            return replace(whole, inner=self.inner.fitted(**{**sizes, "head_dim": whole.width}))

    def built(self, config: "PartialDims.Config") -> list[Encoding]:
        return [config.inner.build()]

    def compose(self, config: "PartialDims.Config", terms: Sequence[Encoding]) -> None:
        super().compose(config, terms)
        (inner,) = terms
        require_no_input(terms, config, "inner")
        turns = inner.form is Form.DOT
        require(turns, config, "inner", "an encoding that rotates queries and keys and adds nothing")
        self.width = config.width

    def acts_on(self, width: int) -> range:
        return range(self.width)

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        return (
            torch.cat([self.terms[0].scaled(q[..., : self.width]), q[..., self.width :]], -1)
            if self.scales
            else q
        )

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        turned = self.terms[0].rotate(x[..., : self.width], pos, side)
        return torch.cat([turned, x[..., self.width :]], -1)
