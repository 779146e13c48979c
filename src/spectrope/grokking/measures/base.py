"""Base class of progress measures."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core import Registered, Registry
from spectrope.grokking.tasks.modular import Split

PROGRESS_MEASURES: Registry[type["ProgressMeasure"]] = Registry(
    "progress measure", "spectrope.grokking.measures"
)


@dataclass(frozen=True)
class Snapshot:
    """A model at one moment of its training, in float64 on the CPU.

    Args:
        split: All pairs, and which of them train.
        cycle: Residues in the order of the group that the operation adds up in.
        of_a: Embeddings of the first operands.
        of_b: Embeddings of the second operands.
        representations: What the last linear map reads, for each pair.
        logits: Its output for each pair.
        weights: All trained parameters by name.
    """

    split: Split
    cycle: Int[Tensor, " m"]
    of_a: Float[Tensor, "p c"]
    of_b: Float[Tensor, "p c"]
    representations: Float[Tensor, "n r"]
    logits: Float[Tensor, "n p"]
    weights: Mapping[str, Tensor]

    @property
    def operands(self) -> tuple[Float[Tensor, "p c"], Float[Tensor, "p c"]]:
        """Embeddings of both operands."""
        return self.of_a, self.of_b


class ProgressMeasure(Registered, ABC):
    """Base of the progress measures, each of which fills some columns of the table of a run."""

    registry = PROGRESS_MEASURES

    columns: ClassVar[Mapping[str, str]]  # Name of each column, and what it is, with its unit.

    @abstractmethod
    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        """The value of each column, None where it is undefined."""


def columns() -> dict[str, str]:
    """Every column of every measure, and what it is."""
    return {
        name: text for kind in PROGRESS_MEASURES for name, text in PROGRESS_MEASURES[kind].columns.items()
    }


def on_sphere(x: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """Rows divided by their norms; a row of zeros stays."""
    norms = x.norm(dim=-1, keepdim=True)
    return x / norms.where(norms > 0, 1.0)  # `F.normalize` divides by at least 1e-12.
