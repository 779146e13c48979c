"""Several encodings at once."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import OneOf, require
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig, Form, Side, Tag
from spectrope.encodings.composite import Composite, layered
from spectrope.encodings.drope import DRoPE
from spectrope.encodings.imaginary import RoPEPlusPlus
from spectrope.encodings.partial_dims import PartialDims
from spectrope.encodings.rope import RoPE
from spectrope.encodings.sinusoidal import Sinusoidal
from spectrope.encodings.xpos import XPos


class Sum(Composite, name="sum"):
    r"""Applies several encodings together:
    rotations one after the other, biases added: :math:`\sum_s b^{(s)}`.

    One part may be of form GENERAL; if it computes the logits itself, the others may add biases to them but
    must not rotate. Rotations in different planes do not commute, so logits with two of them can depend on
    more than the lag, even if those with either one depend only on the lag.

    References:
        Unpacking Positional Encoding in Transformers (Gu et al., 2025), Sec. 5.2, for RoPE with an absolute
        input term, the default here.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The parts, in the order in which they act."""

        parts: tuple[Annotated[EncodingConfig, OneOf(ENCODINGS)], ...] = (
            RoPE.Config(),
            Sinusoidal.Config(),
        )

        def __post_init__(self) -> None:
            require(len(self.parts) > 0, self, "parts", "at least one encoding")

        def build_layers(self, n_layers: int) -> list[Encoding]:
            return [Sum(self, terms) for terms in layered(self.parts, n_layers)]

    def built(self, config: "Sum.Config") -> list[Encoding]:
        return [part.build() for part in config.parts]

    def compose(self, config: "Sum.Config", terms: Sequence[Encoding]) -> None:
        super().compose(config, terms)
        general = [term for term in self.terms if term.form is Form.GENERAL]
        require(len(general) <= 1, config, "parts", "at most one encoding of form GENERAL")
        self.logit_scale = math.prod(term.logit_scale for term in self.terms)
        turned = (self.turns or self.scales) and not self.factors
        rule = "free of rotations and factors beside an encoding that computes logits by itself"
        require(not turned, config, "parts", rule)
        if not _commute([leaf for leaf in _leaves(self) if leaf.turns]):
            self.tags = self.tags - {Tag.SHIFT_INVARIANT}

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        for term in self.terms:
            x = term.embed(x, term.seen(pos))
        return x

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        for term in self.terms:
            q = term.scaled(q)
        return q

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        for term in self.terms:
            x = term.rotate(x, term.seen(pos), side)
        return x

    def bias(self, ctx: Context) -> Tensor | None:
        added = (term.bias(ctx.on_axes(term.axes)) for term in self.terms if term.factors)
        biases = [bias for bias in added if bias is not None]
        return reduce(torch.add, biases) if biases else None

    def lag_bias(self, lag: Tensor) -> Tensor:
        lagged = [term for term in self.terms if term.form is Form.DOT_PLUS_LAG]
        return reduce(torch.add, [term.lag_bias(lag) for term in lagged]) if lagged else super().lag_bias(lag)

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        if self.factors:
            return super().logits(ctx)
        general = next(term for term in self.terms if not term.factors)
        scores = general.logits(ctx.on_axes(general.axes))
        bias = self.bias(ctx)
        return scores if bias is None else scores + bias.to(scores.dtype)

    def read(
        self, pattern: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j e"], ctx: Context
    ) -> Float[Tensor, "b h i e"]:
        reader = next((term for term in self.terms if term.form is Form.GENERAL), self.terms[0])
        return reader.read(pattern, v, ctx.on_axes(reader.axes))


def _leaves(encoding: Encoding) -> Iterator[Encoding]:
    """The terms of a sum, and of every sum among them."""
    for term in encoding.terms if isinstance(encoding, Sum) else [encoding]:
        yield from _leaves(term) if isinstance(term, Sum) else [term]


def _commute(turning: Sequence[Encoding]) -> bool:
    """Whether all turn the same planes, as far as is known; one alone commutes with itself."""
    planes = {*map(_planes, turning)}
    return len(turning) < 2 or (len(planes) == 1 and None not in planes)


def _planes(term: Encoding) -> str | None:
    """Which coordinates form the pairs that an encoding turns; None where that is not known.

    Neighbours remain pairs if only the first coordinates are turned.
    """
    if isinstance(term, PartialDims):
        inner = _planes(term.terms[0])
        return inner if inner == "adjacent" else None
    return term.pairing if isinstance(term, RoPE | XPos | DRoPE | RoPEPlusPlus) else None
