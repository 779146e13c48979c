"""Exact sweep: the drop of every head, measured on all examples."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool

from spectrope.core import Watch, unwatched
from spectrope.lab.ablation.engine import correctness
from spectrope.lab.ablation.interventions import Variant
from spectrope.lab.ablation.protocols import CONTROLLED, Protocol
from spectrope.models import Decoder
from spectrope.stats import Discordance, Interval, Intervals, difference_intervals
from spectrope.tasks import Batch


@dataclass(frozen=True)
class HeadDrop:
    """The drop of one head; layers and heads count from 0, as in `HeadAblation`.

    Args:
        layer: Layer of the head.
        head: Its number within the layer.
        fill: Replacement for its output.
        intact: Accuracy of the whole model, as a fraction.
        ablated: Accuracy with the head changed, as a fraction.
        drop: `intact - ablated`, in percentage points.
        low: Lower end of the drop's 95 % interval over examples.
        high: Upper end.
        n: Number of examples.
    """

    layer: int
    head: int
    fill: str
    intact: float
    ablated: float
    drop: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Sweep:
    """Correctness of each ablated model on each example, from which all statistics of drops are computed.

    Args:
        fill: Replacement for head outputs.
        intact: Whether the intact model is correct on each example.
        ablated: Whether the model with each head changed is correct on each example.
    """

    fill: str
    intact: Bool[np.ndarray, " n"]
    ablated: Bool[np.ndarray, "layers heads n"]

    def drops(self) -> list[HeadDrop]:
        """One row per head, layer by layer, with its paired interval over examples."""
        intervals = difference_intervals(Discordance.of(self.intact, self.ablated)).scaled(100)
        return [self._row(intervals, *at) for at in np.ndindex(*self.ablated.shape[:2])]

    def _row(self, intervals: Intervals, layer: int, head: int) -> HeadDrop:
        drop = intervals.at(layer, head)
        assert isinstance(drop, Interval)
        return HeadDrop(
            layer=layer,
            head=head,
            fill=self.fill,
            intact=float(self.intact.mean()),
            ablated=float(self.ablated[layer, head].mean()),
            drop=drop.estimate,
            low=drop.low,
            high=drop.high,
            n=len(self.intact),
        )


def sweep(
    model: Decoder,
    data: Batch,
    *,
    protocol: Protocol = CONTROLLED,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    watch: Watch = unwatched,
) -> Sweep:
    """Measure the drop of every head on every example.

    Args:
        model: A trained decoder.
        data: Examples, held-out ones unless the protocol says otherwise; see `Protocol.examples`.
        protocol: Ablation protocol.
        dtype: Precision of matrix products.
        seed: Seed for pairing examples when outputs are resampled.
        watch: Progress callback, called with the number of head-forwards done.

    Raises:
        UnsupportedError: If the fill is undefined for the model's encoding.
    """
    variants: list[Variant] = [(), *protocol.variants(model.config)]
    hits = correctness(model, data, variants, seed=seed, dtype=dtype, watch=watch).numpy()
    shape = model.config.n_layers, model.config.n_heads
    return Sweep(protocol.fill, hits[0], hits[1:].reshape(*shape, -1))
