"""Queries that grow with their position."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require_least
from spectrope.encodings.base import Encoding, EncodingConfig, Side, Tag


class Temperature(Encoding, name="temperature"):
    r"""Multiplies queries by a factor that grows with the logarithm of their position:
    :math:`1 + a \ln(1 + \lfloor (p + o)/w \rfloor)`.

    Softmax over more keys is flatter; larger logits of later queries make up for it. The factor is 1 while
    p + o < w. With growth "smooth" it is :math:`1 + a\ln\max(1, (p + o)/w)`. Nothing is rotated: combine it
    with a rotation by `sum`, or use it in layers without one by `per_layer`.

    References:
        Scalable-Softmax Is Superior for Attention (Nakanishi, 2025), as in transformers: steps with o = 1 in
        Llama 4, where layers do not rotate, and with o = 0 in Ministral 3; smooth with o = 1 in Inkling.
    """

    family = "absolute"
    tags = frozenset({Tag.CONTENT_FREE})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """How early and how fast queries grow."""

        strength: float = 0.1  # a; 0.1 in Llama 4.
        window: int = 8  # w, in positions; 8192 in Llama 4. The trained length or less.
        offset: int = 1  # o, added to positions.
        growth: Literal["steps", "smooth"] = "steps"

        def __post_init__(self) -> None:
            require_least(self, 1, "window")
            require_least(self, 0, "strength", "offset")

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        if side == "key":
            return x
        windows = (torch.atleast_2d(pos).double() + self.config.offset) / self.config.window
        steps = 1 + windows.floor() if self.config.growth == "steps" else windows
        factor = 1 + self.config.strength * steps.clamp(min=1).log()
        return x * factor[:, None, :, None].to(x.dtype)
