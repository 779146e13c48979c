"""The probe of factors: what gradient reaches each head as a model begins to train."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
from jaxtyping import Float
from torch import Tensor

from spectrope.core.errors import require
from spectrope.models.decoder import Decoder
from spectrope.probes.head_factors import factor_gradients
from spectrope.tasks.base import Batch
from spectrope.training.probe import Probe


@dataclass(frozen=True, kw_only=True)
class FactorProbe(Probe):
    """Leaves the table "head_gradients": a row per step, layer and head, both counted from 1."""

    table: ClassVar[str] = "head_gradients"

    examples: int = 256  # The first training examples.

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.examples >= 1, self, "examples", "at least 1")

    def choose(self, data: Batch) -> Batch:
        """The first training examples, without common padding."""
        return data[: self.examples].trimmed()

    def measure(self, model: Decoder, batch: Batch) -> Mapping[str, pl.DataFrame]:
        """The energy of the gradient by each head's factors."""
        return {self.table: by_head(factor_gradients(model, batch))}


def by_head(layers: Sequence[Float[Tensor, " h"]]) -> pl.DataFrame:
    """A row per layer and head, with its energy."""
    rows = [
        {"layer": layer, "head": head, "energy": energy}
        for layer, heads in enumerate(layers, start=1)
        for head, energy in enumerate(heads.tolist(), start=1)
    ]
    return pl.DataFrame(rows, schema={"layer": pl.Int64, "head": pl.Int64, "energy": pl.Float64})
