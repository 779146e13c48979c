"""The probe of factors: what gradient reaches each head as a model begins to train."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import require
from spectrope.lab.probes.head_factors import factor_gradients, projections
from spectrope.lab.training.probe import Probe
from spectrope.models import Decoder
from spectrope.tasks import Batch


@dataclass(frozen=True, kw_only=True)
class FactorProbe(Probe):
    """Leaves the table "head_gradients": a row per step, layer and head, both counted from 0."""

    table: ClassVar[str] = "head_gradients"

    examples: int = 256  # The first training examples.

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.examples >= 1, self, "examples", "at least 1")

    def choose(self, data: Batch) -> Batch:
        """The first training examples, without common padding."""
        return data[: self.examples].trimmed()

    def measure(self, model: Decoder, batch: Batch) -> Mapping[str, pl.DataFrame]:
        """The energy of the gradient by each head's factors, and by its W_Q and W_K."""
        by_factors, shared = (factor_gradients(model, batch), factor_gradients(model, batch, projections))
        return {self.table: by_head(energy=by_factors, projections=shared)}


def by_head(**energies: Sequence[Float[Tensor, " h"]]) -> pl.DataFrame:
    """A row per layer and head, with its energies, a column for each."""
    values = {name: torch.stack(list(layers)).double() for name, layers in energies.items()}
    n_layers, n_heads = next(iter(values.values())).shape
    layers, heads = torch.meshgrid(torch.arange(n_layers), torch.arange(n_heads), indexing="ij")
    places = {"layer": layers, "head": heads}
    return pl.DataFrame({name: column.flatten().numpy() for name, column in (places | values).items()})
