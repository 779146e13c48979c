"""Forward passes that expose every layer's heads, for the intact model and for many variants in one batch."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.attention import attention
from spectrope.encodings import Context, Encoding, Form
from spectrope.lab.ablation.fills.base import LayerMeans, Site
from spectrope.models import Block, Decoder, Stream
from spectrope.tasks import Batch


@dataclass(frozen=True)
class Piece:
    """Some examples on the device, with everything that does not depend on the ablated heads.

    Args:
        model: The model.
        x: Input of the first layer, with shape (b, t, c).
        stream: Inputs that all layers share.
        means: Means of each layer over a data set, if any fill needs them.
        donors: Head outputs of each layer on other examples, (b, h, t, k), if any fill needs them.
    """

    model: Decoder
    x: Float[Tensor, "b t c"]
    stream: Stream
    means: tuple[LayerMeans, ...] | None = None
    donors: tuple[Tensor, ...] | None = None
    _memory: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Decoder, batch: Batch, **given: tuple | None) -> "Piece":
        """A piece from a batch on the model's device."""
        return cls(model, *model.begin(batch), **given)  # pyright: ignore[reportArgumentType]

    def block(self, layer: int) -> Block:
        """A layer of the model."""
        block = self.model.blocks[layer]
        assert isinstance(block, Block)
        return block

    def site(self, layer: int, x: Float[Tensor, "v b t c"]) -> Site:
        """The heads of a layer in v variants, as one batch of v * b examples.

        Keys and values that come from the embeddings are computed once per piece.
        """
        block, encoding, stream = self.block(layer), self.model.encoding_of(layer), self.stream
        copies, hidden = len(x), block.attention_norm(x).flatten(0, 1)
        if stream.memory is None:
            q, k, v = block.heads.project(hidden, None)
        else:
            q = block.heads.queries(hidden)
            k, v = (_copied(y, copies) for y in self.keys_values(layer))
        pos = stream.pos if len(stream.pos) == 1 else _copied(stream.pos, copies)
        memory = hidden if stream.memory is None else _copied(stream.memory, copies)
        mask = None if stream.mask is None else _copied(stream.mask, copies)
        mask = block.heads.visible(mask, hidden.shape[1])
        ctx = Context(q, k, pos, pos, hidden, memory, mask)
        outputs = attention(ctx, v, encoding, causal=block.heads.causal, impl=self.model.impl)
        donors = None if self.donors is None else _copied(self.donors[layer], copies)
        means = None if self.means is None else self.means[layer]
        return Site(block.heads, encoding, ctx, v, outputs, self.model.impl, means, donors)

    def outputs(self, layer: int, x: Float[Tensor, "v b t c"]) -> Float[Tensor, "vb h t k"]:
        """Outputs of the heads of `site`, by the cheapest computation."""
        encoding = self.model.encoding_of(layer)
        if self.stream.memory is None or not _takes_any_order(encoding):
            return self.site(layer, x).outputs
        return self._one_memory(layer, x, encoding)

    def keys_values(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the embeddings, each (b, h, t, k)."""
        if layer not in self._memory:
            assert self.stream.memory is not None
            self._memory[layer] = self.block(layer).heads.keys_values(self.stream.memory)
        return self._memory[layer]

    def readout(self, x: Float[Tensor, "v b t c"]) -> Float[Tensor, "v b classes"]:
        """Class logits of every variant."""
        stream = replace(self.stream, real=_copied(self.stream.real, len(x)))
        return self.model.readout(x.flatten(0, 1), stream).unflatten(0, x.shape[:2])

    def _one_memory(self, layer: int, x: Tensor, encoding: Encoding) -> Tensor:
        """Variants as further queries of the same keys, which are neither copied nor rotated twice."""
        heads, (copies, _, t, _) = self.block(layer).heads, x.shape
        q = heads.queries(self.block(layer).attention_norm(x).flatten(0, 1)).unflatten(0, x.shape[:2])
        q = q.movedim(0, 2).flatten(2, 3)
        k, v = self.keys_values(layer)
        mask = heads.visible(self.stream.mask, t)
        if mask is not None and mask.shape[-2] > 1:
            mask = mask.repeat(1, 1, copies, 1)
        if heads.causal:
            past = torch.ones(t, t, dtype=torch.bool, device=x.device).tril().repeat(copies, 1)
            mask = past if mask is None else mask & past
        pos = self.stream.pos
        ctx = Context(q, k, torch.cat([pos] * copies, 1), pos, mask=mask)
        outputs = attention(ctx, v, encoding, causal=False, impl=self.model.impl)
        return outputs.unflatten(2, (copies, t)).movedim(2, 0).flatten(0, 1)


def _takes_any_order(encoding: Encoding) -> bool:
    """Whether queries may be put in any order, as long as their positions go with them."""
    return encoding.pairwise and encoding.form is not Form.GENERAL


def _copied(x: Tensor, copies: int) -> Tensor:
    """`copies` copies of x one behind the other along its first axis."""
    return x if copies == 1 else x.expand(copies, *x.shape).flatten(0, 1)


def intact_sites(piece: Piece) -> Iterator[Site]:
    """The heads of every layer of the intact model, first layer first."""
    x = piece.x[None]
    for layer in range(len(piece.model.blocks)):
        site = piece.site(layer, x)
        yield site
        x = piece.block(layer).after_heads(x[0], site.outputs, None)[None]
