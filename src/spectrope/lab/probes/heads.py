"""Capture queries, keys, bias, logits and hidden states of every attention layer of a decoder."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.encodings import Context, Encoding
from spectrope.models import Decoder, Heads
from spectrope.tasks import Batch


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """Attention of one layer on a batch, before the mask; derived quantities are computed on demand.

    Args:
        layer: Number of the layer, from 0.
        encoding: The encoding that acts in it.
        causal: Whether attention is causal: query i attends to keys j <= i only.
        ctx: Queries and keys before rotation (b, h, t, d), positions, and the hidden states that enter
            attention, `x_q` and `x_k`, (b, t, c).
    """

    layer: int
    encoding: Encoding
    causal: bool
    ctx: Context

    @cached_property
    def rotated(self) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b h t d"]] | None:
        """Queries and keys as they enter the product, less its factor; None where logits are none."""
        if not self.encoding.factors:
            return None
        ctx = self.ctx
        return self.encoding.rotate(ctx.q, ctx.q_pos, "query"), self.encoding.rotate(ctx.k, ctx.k_pos, "key")

    @cached_property
    def bias(self) -> Float[Tensor, "..."] | None:
        """Bias added to the product, broadcastable to (b, h, t, t), in logit units, or None."""
        return self.encoding.bias(self.ctx) if self.encoding.factors else None

    @cached_property
    def logits(self) -> Float[Tensor, "b h t t"]:
        """Attention logits before the mask and before softmax."""
        return self.encoding.logits(self.ctx)


@torch.no_grad()
def capture_heads(model: Decoder, batch: Batch, sink: Callable[[LayerHeads], None]) -> None:
    """Run the model once and pass the attention of each layer to `sink`.

    Args:
        model: A decoder, on the device of the batch.
        batch: Examples.
        sink: Called with each layer in order. Layers are not stored unless it keeps them.
    """

    def hand_over(layer: int) -> Callable[[Heads, tuple[Any, ...]], None]:
        def hook(heads: Heads, args: tuple[Any, ...]) -> None:
            x, stream, encoding, _ = args
            sink(LayerHeads(layer, encoding, heads.causal, heads.context(x, stream)[0]))

        return hook

    with ExitStack() as hooks:
        for layer, block in enumerate(model.blocks):
            handle = block.heads.register_forward_pre_hook(hand_over(layer))  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
            hooks.callback(handle.remove)
        model(batch)
