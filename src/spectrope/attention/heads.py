"""The heads of one layer, from hidden states to head outputs; subclasses define queries, keys and values."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from spectrope.attention.base import attention
from spectrope.core import Configured, Noise, Registered, Registry, SeededModule
from spectrope.encodings import CatalogueEntry, Context, Encoding, EncodingConfig, documented

ATTENTIONS: Registry[type["Heads"]] = Registry("attention", "spectrope.attention")


@dataclass(frozen=True)
class Stream:
    """Inputs that all layers of one forward pass share.

    Args:
        memory: Source of keys and values with shape (b, t, c), or None where it is the hidden state.
        pos: Positions, with shape (b or 1, t).
        real: True at tokens, False at padding, with shape (b, t).
        mask: Attention mask, or None where nothing needs one.
        noise: Dropout masks, or None outside training.
    """

    memory: Tensor | None
    pos: Tensor
    real: Bool[Tensor, "b t"]
    mask: Bool[Tensor, "..."] | None
    noise: Noise | None


@dataclass(frozen=True)
class HeadSizes:
    """Sizes that the model decides.

    Args:
        d_model: Width of the residual stream.
        n_heads: Heads of the layer.
        head_dim: Width of one head's values, and by default of its queries and keys.
        causal: Whether attention is causal.
    """

    d_model: int
    n_heads: int
    head_dim: int
    causal: bool


@dataclass(frozen=True, kw_only=True)
class AttentionConfig(Configured):
    """Base of the configurations of attention: how queries, keys and values are made."""

    kind: ClassVar[str]

    @classmethod
    def for_width(cls, d_model: int) -> "AttentionConfig":
        """The defaults of this kind in a residual stream of some width."""
        return cls()

    def encoded_dim(self, head_dim: int) -> int:
        """Coordinates of each query and key that the encoding acts on."""
        return head_dim

    def check(self, encoding: EncodingConfig) -> None:
        """Raise an error if this kind of attention does not support the encoding."""

    def encode(self, layers: Sequence[Encoding]) -> list[Encoding]:
        """The encoding of queries and keys in each layer; layers that share an encoding still share it."""
        return list(layers)

    def build(self, sizes: HeadSizes) -> "Heads":
        """The heads of one layer."""
        return ATTENTIONS[self.kind](self, sizes)


class Heads(Registered, SeededModule, ABC):
    """Base of the heads of one layer: hidden states (b, t, c) to outputs (b, h, t, k), before the projection.

    Interventions on heads hook this module's output.

    Args:
        config: How queries, keys and values are made.
        sizes: Sizes that the model decides.
    """

    registry = ATTENTIONS

    Config: ClassVar[type[AttentionConfig]] = AttentionConfig

    def __init__(self, config: AttentionConfig, sizes: HeadSizes) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.causal = sizes.n_heads, sizes.head_dim, sizes.causal
        self.inner = sizes.n_heads * sizes.head_dim

    @abstractmethod
    def queries(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t d"]:
        """Queries before rotation."""

    @abstractmethod
    def keys_values(self, memory: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor]:
        """Keys before rotation, (b, h, t, d), and values, (b, h, t, k)."""

    @abstractmethod
    def value_bias(self) -> Float[Tensor, "h 1 k"]:
        """The value bias: the values of a zero input."""

    def visible(self, mask: Bool[Tensor, "..."] | None, n: int) -> Bool[Tensor, "..."] | None:
        """What queries may see of keys, beside causality; subclasses may allow less.

        Args:
            mask: Mask of the keys, with shape (b, 1, 1, n), or None where all are tokens.
            n: Number of tokens.
        """
        return mask

    def project(self, x: Float[Tensor, "b t c"], memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, and keys and values of `memory` (of x where that is None)."""
        return self.queries(x), *self.keys_values(x if memory is None else memory)

    def context(self, x: Float[Tensor, "b t c"], stream: Stream) -> tuple[Context, Float[Tensor, "b h t k"]]:
        """The context of this layer's encoding, and the values."""
        q, k, v = self.project(x, stream.memory)
        memory = x if stream.memory is None else stream.memory
        mask = self.visible(stream.mask, x.shape[1])
        return Context(q, k, stream.pos, stream.pos, x, memory, mask), v

    def forward(self, x: Tensor, stream: Stream, encoding: Encoding, impl: str) -> Float[Tensor, "b h t k"]:
        ctx, v = self.context(x, stream)
        return attention(ctx, v, encoding, causal=self.causal, impl=impl, noise=stream.noise)


def describe_attention(name: str) -> CatalogueEntry:
    """The catalogue entry of a registered attention; forms and laws are its encoding's."""
    text = documented(ATTENTIONS[name].__doc__)
    return CatalogueEntry(name=name, family="attention", form="", tags=(), **text)
