"""The probe of learning: gradients and tangent kernels of each head during training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
import torch

from spectrope.core import require_least
from spectrope.lab.probes.learning import HeadLearning, learning
from spectrope.lab.probes.tangents import Kernels
from spectrope.lab.training.probe import Probe
from spectrope.models import Decoder
from spectrope.spectral import head_participation
from spectrope.tasks import Batch


@dataclass(frozen=True, kw_only=True)
class LearningProbe(Probe):
    """Measures gradients by frequency, tangent kernels, and the participation of heads.

    It stores three tables, with layers and heads counted from 0: "learning" has one row per step, layer and
    head, "gradients" one per frequency of each, and "participation" one per step and layer.
    """

    table: ClassVar[str] = "learning"
    further: ClassVar[tuple[str, ...]] = ("gradients", "participation")

    examples: int = 8  # The longest training examples.

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "examples")

    def choose(self, data: Batch) -> Batch:
        """The longest training examples, without common padding."""
        order = data.lengths.argsort(descending=True, stable=True)
        return data[order[: self.examples]].trimmed()

    def measure(self, model: Decoder, batch: Batch) -> Mapping[str, pl.DataFrame]:
        """The three tables."""
        layers = list(learning(model, batch))
        return {
            "learning": heads_table(layers),
            "gradients": gradients_table(layers),
            "participation": participation_table(layers),
        }


Layers = Sequence[Sequence[HeadLearning]]
KERNELS = ("tangent", "tangent_plain", "newton", "newton_plain")
FIGURES = ("largest", "trace", "effective_rank")
GRADIENTS = {
    **dict.fromkeys(("layer", "head", "pair"), pl.Int64),
    **dict.fromkeys(("frequency", "energy", "share"), pl.Float64),
}


def heads_table(layers: Layers) -> pl.DataFrame:
    """A row per head: energies of its gradient and of its form, its positional share, its kernels.

    "plain" kernels are those without rotation. They and the gradient's energy are missing if logits are not a
    product of queries and keys, or if the rotation has no fixed frequencies. "gradient_share" is the share of
    that energy among the heads of the layer.
    """
    rows = []
    for number, heads in enumerate(layers):
        shares = _shares([head.gradient_energy for head in heads])
        for place, (head, share) in enumerate(zip(heads, shares, strict=True)):
            row: dict[str, float | int | None] = {"layer": number, "head": place}
            row |= {"gradient_energy": head.gradient_energy, "gradient_share": share}
            row |= {"weight_energy": head.weight_energy}
            row |= {"positional_share": head.gradient.positional_share}
            row |= {"positional_null": head.gradient.positional_null}
            rows.append(row | _figures(head.kernels, head.plain_kernels))
    return _table(rows, "layer", "head")


def gradients_table(layers: Layers) -> pl.DataFrame:
    """A row per head and frequency in radians per token; without rotation, only frequency 0.

    "energy" is that of the gradient there, "share" its share of what all lags hold, at most 1, and
    "head_share" the head's share among those of its layer that have this frequency.
    """
    rows = [
        {"layer": number, "head": place, "pair": pair, "frequency": theta, "energy": energy, "share": share}
        for number, heads in enumerate(layers)
        for place, head in enumerate(heads)
        if head.frequencies is not None
        for pair, (theta, energy, share) in enumerate(
            zip(
                head.frequencies.tolist(),
                head.gradient.frequency_energy.tolist(),
                head.gradient.frequency_shares.tolist(),
                strict=True,
            ),
            start=1,
        )
    ]
    share = pl.col("energy") / pl.col("energy").sum().over("layer", "frequency")
    return pl.DataFrame(rows, schema=GRADIENTS).with_columns(head_share=share)


def participation_table(layers: Layers) -> pl.DataFrame:
    """A row per layer: the participation ratio of its heads, by gradients and by weights.

    It is 1/H if one of H heads has everything and 1 if all are equal; it is missing if all are zero.
    """
    rows = [
        {
            "layer": number,
            "gradient": _participation([head.gradient_energy for head in heads]),
            "weight": _participation([head.weight_energy for head in heads]),
        }
        for number, heads in enumerate(layers)
    ]
    return _table(rows, "layer")


def _figures(turned: Kernels | None, plain: Kernels | None) -> dict[str, float | None]:
    summaries = (
        turned and turned.tangent,
        plain and plain.tangent,
        turned and turned.newton,
        plain and plain.newton,
    )
    return {
        f"{name}_{figure}": None if summary is None else getattr(summary, figure)
        for name, summary in zip(KERNELS, summaries, strict=True)
        for figure in FIGURES
    }


def _shares(energies: Sequence[float | None]) -> list[float | None]:
    total = sum(energy for energy in energies if energy is not None)
    return [None if energy is None or total == 0 else energy / total for energy in energies]


def _participation(energies: Sequence[float | None]) -> float | None:
    known = [energy for energy in energies if energy is not None]
    if len(known) < len(energies) or not np.any(known):
        return None
    return head_participation(torch.tensor(known, dtype=torch.float64))


def _table(rows: Sequence[Mapping[str, float | int | None]], *counts: str) -> pl.DataFrame:
    types = {name: pl.Int64 if name in counts else pl.Float64 for name in rows[0]}
    return pl.DataFrame(rows, schema=types)
