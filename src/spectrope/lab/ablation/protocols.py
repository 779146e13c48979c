"""Ablation protocols: how each head is changed, and on which examples accuracy is measured."""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from spectrope.core import Configured, Registry
from spectrope.lab.ablation.fills.base import resolved_fill
from spectrope.lab.ablation.interventions import HeadAblation, Variant, single_heads
from spectrope.models import DecoderConfig
from spectrope.tasks import Batch


@dataclass(frozen=True, kw_only=True)
class Protocol(Configured):
    """How each head is changed, and on which examples accuracy is measured."""

    fill: str = "zero"  # Replacement for a head's output: a name in `FILLS`, or `file.py:Class`.
    restored: bool = True  # Whether the last head of a layer is restored before the next layer.
    data: Literal["held-out", "all"] = "held-out"  # "all" includes the training examples.

    def __post_init__(self) -> None:
        if self.fill != "zero":  # Looking for others imports plug-ins, which may import this module.
            object.__setattr__(self, "fill", resolved_fill(self.fill))

    def variants(self, config: DecoderConfig) -> list[Variant]:
        """The ablation of each head, layer by layer."""
        variants = single_heads(config, self.fill)
        return variants if self.restored else [_left_over(variant, config) for variant in variants]

    def examples(self, train: Batch, held_out: Batch, most: int | None = None) -> Batch:
        """The examples on which accuracy is measured.

        Args:
            train: Training examples.
            held_out: Held-out examples.
            most: Maximum number; if both kinds are used, they are taken in proportion to their numbers.
        """
        if self.data == "held-out":
            return held_out[:most]
        n = len(train) + len(held_out)
        share = 1.0 if most is None else min(1.0, most / n)
        return joined(*(part[: round(share * len(part))] for part in (train, held_out)))


CONTROLLED = Protocol()

PROTOCOLS: Registry[Protocol] = Registry("protocol", "spectrope.lab.ablation.protocols")
PROTOCOLS.register("controlled", CONTROLLED)


def joined(first: Batch, second: Batch) -> Batch:
    """The examples of two batches of one width."""
    positions = None
    if first.positions is not None and second.positions is not None:
        positions = torch.cat([first.positions, second.positions])
    whole = {name: torch.cat([getattr(first, name), getattr(second, name)]) for name in _TENSORS}
    return replace(first, positions=positions, **whole)


_TENSORS = ("inputs", "labels", "lengths")


def _left_over(variant: Variant, config: DecoderConfig) -> Variant:
    """A head's ablation together with those of the last heads of all layers before its own."""
    (ablation,) = variant
    last = config.n_heads - 1
    return (*(HeadAblation(layer, last, ablation.fill) for layer in range(ablation.layer)), ablation)
