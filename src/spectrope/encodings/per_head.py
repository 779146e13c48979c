"""A different encoding for some heads."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import ConfigError, OneOf, require, require_least
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig, Form, Side, Sized
from spectrope.encodings.composite import Composite, layered, require_no_input
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE


@dataclass(frozen=True, kw_only=True)
class Group(Sized):
    """Neighbouring heads that share an encoding."""

    heads: int = 1  # How many.
    encoding: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(default_factory=RoPE.Config)

    def __post_init__(self) -> None:
        require_least(self, 1, "heads")
        object.__setattr__(self, "encoding", self.encoding.fitted(n_heads=self.heads))


class PerHead(Composite, name="per_head"):
    r"""Uses a different encoding in each group of heads:
    :math:`L^{(h)} = L^{(h)}_{e(h)}`; heads beyond them have none.

    RoPE on the first k heads is one group of k heads.

    References:
        Unpacking Positional Encoding in Transformers (Gu et al., 2025), Sec. 5.1, for partial RoPE.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Groups of heads, from head 0 on."""

        n_heads: int = 16
        groups: tuple[Group, ...] = (Group(),)

        def __post_init__(self) -> None:
            require(len(self.groups) > 0, self, "groups", "at least one group")
            if (heads := sum(group.heads for group in self.groups)) > self.n_heads:
                raise ConfigError(
                    f"PerHead.Config.groups must be of {self.n_heads} heads at most together; got {heads}."
                )

        @property
        def encodings(self) -> tuple[EncodingConfig, ...]:
            """The encoding of each group, and NoPE for the rest."""
            return *(group.encoding for group in self.groups), NoPE.Config()

        def build_layers(self, n_layers: int) -> list[Encoding]:
            return [PerHead(self, terms) for terms in layered(self.encodings, n_layers)]

    def built(self, config: "PerHead.Config") -> list[Encoding]:
        return [part.build() for part in config.encodings]

    def compose(self, config: "PerHead.Config", terms: Sequence[Encoding]) -> None:
        bounds = [0, *accumulate(group.heads for group in config.groups)]
        if bounds[-1] == config.n_heads:
            terms = terms[:-1]  # no heads are left over
        super().compose(config, terms)
        require_no_input(terms, config, "groups")
        ends = [*bounds[1:], config.n_heads]
        self.slices = [slice(a, b) for a, b in zip(bounds, ends, strict=True)][: len(terms)]

    def parts(self) -> Iterator[tuple[slice, Encoding]]:
        yield from zip(self.slices, self.terms, strict=True)

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        return torch.cat([term.scaled(q[:, heads]) for heads, term in self.parts()], 1) if self.scales else q

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        return torch.cat([term.rotate(x[:, heads], term.seen(pos), side) for heads, term in self.parts()], 1)

    def bias(self, ctx: Context) -> Tensor | None:
        biases = [term.bias(_seen(ctx, heads, term)) for heads, term in self.parts()]
        if all(bias is None for bias in biases):
            return None
        none = ctx.q.new_zeros(1, 1, 1, 1)
        batch = max(len(bias) for bias in biases if bias is not None)
        shape = ctx.q.shape[-2], ctx.k.shape[-2]
        filled = [
            (none if bias is None else bias).expand(batch, heads.stop - heads.start, *shape)
            for bias, heads in zip(biases, self.slices, strict=True)
        ]
        return torch.cat(filled, 1)

    def lag_bias(self, lag: Tensor) -> Tensor:
        biases = [
            term.lag_bias(lag)
            if term.form is Form.DOT_PLUS_LAG
            else torch.zeros(*lag.shape, heads.stop - heads.start, device=lag.device)
            for heads, term in self.parts()
        ]
        return torch.cat(biases, -1)

    def read(
        self, pattern: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j e"], ctx: Context
    ) -> Float[Tensor, "b h i e"]:
        outputs = [term.read(pattern[:, h], v[:, h], _seen(ctx, h, term)) for h, term in self.parts()]
        return torch.cat(outputs, 1)

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        return torch.cat([term.logits(_seen(ctx, heads, term)) for heads, term in self.parts()], 1)


def _seen(ctx: Context, heads: slice, term: Encoding) -> Context:
    """What the heads of a term see."""
    return ctx.of_heads(heads).on_axes(term.axes)
