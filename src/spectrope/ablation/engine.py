"""Class logits of many ablated variants of one model, each distinct stretch of computation done once.

A head's removal changes nothing before its layer and, within it, only what follows the output projection.
Variants form a tree, branching where they begin to differ: the trunk is walked once per piece of the data,
and all branches of a layer that bear one variant each are walked together as one batch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.ablation.fills import LayerMeans
from spectrope.ablation.gather import data_means, derangement, donor_outputs
from spectrope.ablation.interventions import Variant
from spectrope.ablation.passes import Piece
from spectrope.evaluation.score import IGNORED, by_length, counted_labels, precision
from spectrope.models.decoder import Decoder
from spectrope.tasks.base import Batch

NEED_MEANS = frozenset({"mean", "position-only"})
# Numbers in one batch's residual stream, variants included: few enough for a cache, or to fill a GPU.
BUDGET = {"cpu": 2**19, "cuda": 2**26}

Watch = Callable[[int, int], None]


def unwatched(done: int, total: int) -> None:
    """The watcher that shows nothing."""


@dataclass(frozen=True)
class Found:
    """Class logits of some variants on some examples.

    Args:
        variants: Places in the list of variants, with shape (v,).
        examples: Places in the data, with shape (b,).
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
) -> Iterator[Found]:
    """Class logits of every variant on every example, piece by piece; the model itself is never touched.

    Args:
        model: A trained decoder.
        data: Examples.
        variants: What to change; the empty variant is the intact model.
        seed: Pairs examples for "resample", where `donors` does not.
        dtype: Precision of matrix products.
        tokens: Tokens in one batch, variants included; None takes what measured best on the device.
        means: Means for "mean" and "position-only"; None takes those over `data`.
        donors: For each example another one, for "resample"; None draws them from `data`.

    Raises:
        ConfigError: If the model has no such head, or there is no other example to resample from.
        UnsupportedError: If a fill has no meaning for the model's encoding.
    """
    fills = {ablation.fill for variant in variants for ablation in variant}
    for variant in variants:
        for ablation in variant:
            ablation.check(model.config)
    if means is None and fills & NEED_MEANS:
        means = data_means(model, data, dtype=dtype)
    if donors is None and "resample" in fills:
        donors = data[derangement(len(data), seed)]
    yield from _pieces(model, data, variants, dtype, tokens, means, donors)


@torch.inference_mode()
def _pieces(
    model: Decoder,
    data: Batch,
    variants: Sequence[Variant],
    dtype: torch.dtype,
    tokens: int | None,
    means: tuple[LayerMeans, ...] | None,
    donors: Batch | None,
) -> Iterator[Found]:
    device = next(model.parameters()).device
    tokens = tokens or BUDGET[device.type] // model.config.d_model
    width = min(model.config.n_heads, len(variants))
    size = max(1, tokens // (width * max(1, data.inputs.shape[1])))
    for index, batch in by_length(data, size, trim=model.padding_is_inert):
        with precision(device, dtype):
            given = None if donors is None else donor_outputs(model, donors[index], batch.inputs.shape[1])
            piece = Piece.of(model, batch.to(device), means=means, donors=given)
            room = max(1, tokens // batch.inputs.numel())
            for which, logits in _Tree(piece, variants, room).grow():
                yield Found(torch.tensor(which), index, logits.float().cpu())


@dataclass(frozen=True)
class _Tree:
    """The variants of one piece.

    Args:
        piece: The examples.
        variants: What to change.
        room: Variants that fit in one batch.
    """

    piece: Piece
    variants: Sequence[Variant]
    room: int

    def grow(self) -> Iterator[tuple[list[int], Tensor]]:
        """Places of variants and their logits (v, b, classes), in any order."""
        yield from self._trunk(0, self.piece.x, list(range(len(self.variants))))

    def at(self, which: int, layer: int) -> Variant:
        """What a variant changes in a layer."""
        return tuple(sorted({a for a in self.variants[which] if a.layer == layer}))

    def _trunk(self, layer: int, x: Tensor, which: list[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Variants that share the state x (b, t, c) before a layer."""
        if layer == len(self.piece.model.blocks):
            yield which, self.piece.readout(x[None]).expand(len(which), -1, -1)
            return
        groups: dict[Variant, list[int]] = defaultdict(list)
        for w in which:
            groups[self.at(w, layer)].append(w)
        fork, block = _Fork.of(self.piece, layer, x, list(groups)), self.piece.block(layer)
        for changes, members in groups.items():
            if len(members) > 1:
                yield from self._trunk(layer + 1, block.feed_forward(fork.after(changes), None), members)
        single = [(members[0], changes) for changes, members in groups.items() if len(members) == 1]
        for start in range(0, len(single), self.room):
            some = single[start : start + self.room]
            states = torch.stack([fork.after(changes) for _, changes in some])
            yield from self._branches(layer + 1, block.feed_forward(states, None), [w for w, _ in some])

    def _branches(self, layer: int, x: Tensor, which: list[int]) -> Iterator[tuple[list[int], Tensor]]:
        """Variants with a state each, x (v, b, t, c), before a layer, side by side to the end."""
        for later in range(layer, len(self.piece.model.blocks)):
            changes = [self.at(w, later) for w in which]
            outputs = self._outputs(later, x, changes)
            x = self.piece.block(later).after_heads(x.flatten(0, 1), outputs, None).view_as(x)
        yield which, self.piece.readout(x)

    def _outputs(self, layer: int, x: Tensor, changes: list[Variant]) -> Tensor:
        """Head outputs (v * b, h, t, k) with each variant's own changes made."""
        if not any(changes):
            return self.piece.outputs(layer, x)
        site = self.piece.site(layer, x)
        outputs = site.outputs.clone().unflatten(0, x.shape[:2])
        fills = {fill: site.filled(fill).unflatten(0, x.shape[:2]) for fill in _fills(changes)}
        for row, variant in enumerate(changes):
            for ablation in variant:
                outputs[row, :, ablation.head] = fills[ablation.fill][row, :, ablation.head]
        return outputs.flatten(0, 1)


def _fills(changes: Sequence[Variant]) -> set[str]:
    return {ablation.fill for variant in changes for ablation in variant}


@dataclass(frozen=True)
class _Fork:
    """A layer in which variants part: its attention is computed once, then corrected head by head.

    Args:
        intact: The residual stream behind attention, nothing changed, with shape (b, t, c).
        differences: What each fill would change in the heads' outputs, with shape (b, h, t, k).
        weight: Of the output projection, with shape (c, h * k).
    """

    intact: Tensor
    differences: dict[str, Tensor]
    weight: Tensor

    @classmethod
    def of(cls, piece: Piece, layer: int, x: Tensor, variants: Sequence[Variant]) -> "_Fork":
        site, out = piece.site(layer, x[None]), piece.block(layer).out
        differences: dict[str, Tensor] = {f: site.filled(f) - site.outputs for f in _fills(variants)}
        return cls(x + out(site.outputs.transpose(1, 2).flatten(2)), differences, out.weight)

    def after(self, changes: Variant) -> Tensor:
        """The residual stream behind attention with some heads changed, through their columns alone."""
        x = self.intact
        for ablation in changes:
            difference = self.differences[ablation.fill][:, ablation.head]
            width = difference.shape[-1]
            columns = self.weight[:, ablation.head * width : (ablation.head + 1) * width]
            x = x + F.linear(difference, columns)
        return x


def correctness(
    model: Decoder, data: Batch, variants: Sequence[Variant], *, watch: Watch = unwatched, **how: Any
) -> Bool[Tensor, "v n"]:
    """Whether each variant gets each example right, for the examples that count.

    Args:
        model: A trained decoder.
        data: Examples.
        variants: What to change.
        watch: Called with the numbers of head-forwards done and in all.
        how: Passed on to `ablated_logits`.
    """
    labels = counted_labels(model, data.labels)
    hits = torch.zeros(len(variants), len(data), dtype=torch.bool)
    done = 0
    for found in ablated_logits(model, data, variants, **how):
        hits[found.variants[:, None], found.examples] = found.logits.argmax(-1) == labels[found.examples]
        done += found.logits[..., 0].numel()
        watch(done, hits.numel())
    return hits[:, labels != IGNORED]
