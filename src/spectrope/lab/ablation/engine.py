"""Class logits of many ablated variants of a decoder, batch by batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.core import Progress, Watch, each_within, inference, unwatched
from spectrope.lab.ablation.change import changed_outputs
from spectrope.lab.ablation.fills.base import LayerMeans, Site, layer_fills, needs_of
from spectrope.lab.ablation.gather import derangement, donor_outputs, means_for
from spectrope.lab.ablation.interventions import Variant
from spectrope.lab.ablation.passes import Piece
from spectrope.lab.ablation.tree import Tree, changes_in, fills_of
from spectrope.lab.evaluation.score import IGNORED, by_length, counted_labels, most_tokens
from spectrope.models import Decoder
from spectrope.tasks import Batch


@dataclass(frozen=True)
class VariantLogits:
    """Class logits of some variants on some examples.

    Args:
        variants: Indices into the list of variants, with shape (v,).
        examples: Indices into the data, with shape (b,).
        logits: In float32 on the CPU, with shape (v, b, classes).
    """

    variants: Int[Tensor, " v"]
    examples: Int[Tensor, " b"]
    logits: Float[Tensor, "v b classes"]


def ablated_logits(
    model: Decoder,
    data: Batch,
    variants: Sequence[Variant],
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    tokens: int | None = None,
    means: tuple[LayerMeans, ...] | None = None,
    donors: Batch | None = None,
) -> Iterator[VariantLogits]:
    """Class logits of every variant on every example, batch by batch; the model is never modified.

    Args:
        model: A trained decoder.
        data: Examples.
        variants: Sets of ablations; the empty variant is the intact model.
        seed: Seed for pairing examples for fills that need donors, if `donors` is not given.
        dtype: Precision of matrix products.
        tokens: Tokens per batch, over all variants (default: the fastest number measured on the device).
        means: Means for fills that need them (default: those over `data`).
        donors: Another example for each example, for fills that need donors (default: drawn from `data`).

    Raises:
        ConfigError: If the model has no such head, or there is no other example to resample from.
        UnsupportedError: If a fill is undefined for the model's encoding.
    """
    needs = needs_of(fills_of(variants))
    for variant in variants:
        for ablation in variant:
            ablation.check(model.config)
    if means is None:
        means = means_for(needs, model, data, dtype)
    if donors is None and "donors" in needs:
        donors = data[derangement(len(data), seed)]
    yield from _pieces(model, data, variants, dtype, tokens, means, donors)


def _pieces(
    model: Decoder,
    data: Batch,
    variants: Sequence[Variant],
    dtype: torch.dtype,
    tokens: int | None,
    means: tuple[LayerMeans, ...] | None,
    donors: Batch | None,
) -> Iterator[VariantLogits]:
    device = next(model.parameters()).device
    tokens = tokens or most_tokens(model)
    width = min(model.config.n_heads, len(variants))
    size = max(1, tokens // (width * max(1, data.inputs.shape[1])))
    context = partial(inference, device, dtype)
    for index, batch in by_length(data, size, trim=model.padding_is_inert):
        with context():
            donated = None if donors is None else donor_outputs(model, donors[index], batch.inputs.shape[1])
            piece = Piece.of(model, batch.to(device), means=means, donors=donated)
        room = max(1, tokens // batch.inputs.numel())
        for which, logits in each_within(context, Tree(_Stages(piece), variants, room).grow()):
            yield VariantLogits(torch.tensor(which), index, logits.float().cpu())


@dataclass(frozen=True)
class _Stages:
    """A decoder on one piece of the data."""

    piece: Piece

    @property
    def n_layers(self) -> int:
        return len(self.piece.model.blocks)

    def start(self) -> Tensor:
        return self.piece.x

    def fork(self, layer: int, x: Tensor, changes: Sequence[Variant]) -> "_Fork":
        site, out = self.piece.site(layer, x[None]), self.piece.block(layer).out
        fills = fills_of(changes)
        fills -= layer_fills(fills)
        differences: dict[str, Tensor] = {fill: site.filled(fill) - site.outputs for fill in fills}
        intact = x + out(site.outputs.transpose(1, 2).flatten(2))
        return _Fork(self.piece, layer, site, intact, differences, out.weight)

    def read(self, x: Tensor) -> Tensor:
        return self.piece.readout(x[None])[0]


@dataclass(frozen=True)
class _Fork:
    """A layer whose attention is computed once, then corrected head by head.

    Args:
        piece: The examples.
        layer: Number of the layer.
        site: Its heads, nothing changed.
        intact: The residual stream behind attention, nothing changed, with shape (b, t, c).
        differences: What each fill would change in the heads' outputs, with shape (b, h, t, k).
        weight: Of the output projection, with shape (c, h * k).
    """

    piece: Piece
    layer: int
    site: Site
    intact: Tensor
    differences: dict[str, Tensor]
    weight: Tensor

    def advance(self, changes: Variant) -> Tensor:
        return self.piece.block(self.layer).feed_forward(self._after(changes), None)

    def finish(self, variants: Sequence[Variant]) -> Tensor:
        """All variants side by side, from states x (v, b, t, c)."""
        states = torch.stack([self._after(changes_in(variant, self.layer)) for variant in variants])
        x = self.piece.block(self.layer).feed_forward(states, None)
        for layer in range(self.layer + 1, len(self.piece.model.blocks)):
            outputs = self._outputs(layer, x, [changes_in(variant, layer) for variant in variants])
            x = self.piece.block(layer).after_heads(x.flatten(0, 1), outputs, None).view_as(x)
        return self.piece.readout(x)

    def _after(self, changes: Variant) -> Tensor:
        """The residual stream behind attention with some heads changed, through their columns alone."""
        x = self.intact
        if layer_fills(fills_of([changes])):  # changes every head
            difference = changed_outputs(self.site, changes) - self.site.outputs
            return x + F.linear(difference.transpose(1, 2).flatten(2), self.weight)
        for ablation in changes:
            difference = self.differences[ablation.fill][:, ablation.head]
            width = difference.shape[-1]
            columns = self.weight[:, ablation.head * width : (ablation.head + 1) * width]
            x = x + F.linear(difference, columns)
        return x

    def _outputs(self, layer: int, x: Tensor, changes: list[Variant]) -> Tensor:
        """Head outputs (v * b, h, t, k) with each variant's own changes made."""
        if not any(changes):
            return self.piece.outputs(layer, x)
        site = self.piece.site(layer, x)
        outputs = site.outputs.clone().unflatten(0, x.shape[:2])
        whole = layer_fills(fills_of(changes))
        fills = {fill: site.filled(fill).unflatten(0, x.shape[:2]) for fill in fills_of(changes) - whole}
        for row, variant in enumerate(changes):
            if fills_of([variant]) & whole:
                outputs[row] = changed_outputs(self.piece.site(layer, x[row : row + 1]), variant)
                continue
            for ablation in variant:
                outputs[row, :, ablation.head] = fills[ablation.fill][row, :, ablation.head]
        return outputs.flatten(0, 1)


def correctness(
    model: Decoder, data: Batch, variants: Sequence[Variant], *, watch: Watch = unwatched, **how: Any
) -> Bool[Tensor, "v n"]:
    """Whether each variant is correct on each example, for examples whose label is not ignored.

    Args:
        model: A trained decoder.
        data: Examples.
        variants: Sets of ablations.
        watch: Progress callback, called with the number of head-forwards done.
        how: Further arguments of `ablated_logits`.
    """
    labels = counted_labels(model, data.labels)
    hits = torch.zeros(len(variants), len(data), dtype=torch.bool)
    done = 0
    for piece in ablated_logits(model, data, variants, **how):
        hits[piece.variants[:, None], piece.examples] = piece.logits.argmax(-1) == labels[piece.examples]
        done += piece.logits[..., 0].numel()
        watch(Progress("ablate", done, hits.numel()))
    return hits[:, labels != IGNORED]
