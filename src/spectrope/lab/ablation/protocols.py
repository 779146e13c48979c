"""How a sweep is carried out: ours, and the paper's public code with its faults, switch by switch."""

from dataclasses import dataclass, replace
from typing import Literal

import torch

from spectrope.core.config import Configured
from spectrope.lab.ablation.interventions import Fill, HeadAblation, Variant, single_heads
from spectrope.models.decoder import DecoderConfig
from spectrope.tasks.base import Batch


@dataclass(frozen=True, kw_only=True)
class Protocol(Configured):
    """What is changed for each head, and on which examples accuracy is measured."""

    # What takes the place of a head's output. R9 zeroes value rows: "value-bias"; R12 "latent-columns".
    fill: Fill = "zero"
    restored: bool = True  # Whether a layer's last head is put back before the next layer (R9: it is not).
    data: Literal["held-out", "all"] = "held-out"  # R10 takes training examples too.

    def variants(self, config: DecoderConfig) -> list[Variant]:
        """What is changed when the turn comes to each head, layer by layer."""
        variants = single_heads(config, self.fill)
        return variants if self.restored else [_left_over(variant, config) for variant in variants]

    def examples(self, train: Batch, held_out: Batch, most: int | None = None) -> Batch:
        """The examples that accuracy is measured on.

        Args:
            train: Those of training.
            held_out: The others.
            most: Take the first so many; of both kinds, in proportion to their numbers, where both count.
        """
        if self.data == "held-out":
            return held_out[:most]
        n = len(train) + len(held_out)
        share = 1.0 if most is None else min(1.0, most / n)
        return joined(*(part[: round(share * len(part))] for part in (train, held_out)))


CONTROLLED = Protocol()
# R9 and R10 are faults of the released code; R12 takes R9's place where attention is latent.
PROTOCOLS = {
    "controlled": CONTROLLED,
    "R9": Protocol(fill="value-bias", restored=False),
    "R10": Protocol(data="all"),
    "R12": Protocol(fill="latent-columns"),
    "released": Protocol(fill="value-bias", restored=False, data="all"),
    "released-mla": Protocol(fill="latent-columns", restored=False, data="all"),
}


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
    (own,) = variant
    last = config.n_heads - 1
    return (*(HeadAblation(layer, last, own.fill) for layer in range(own.layer)), own)
