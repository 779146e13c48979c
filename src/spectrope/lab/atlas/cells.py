"""Cells of an atlas: one intervention on one head, in one frequency band or as a whole."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from spectrope.core import Configured, require
from spectrope.encodings import Band
from spectrope.lab.ablation.banded import band_name
from spectrope.lab.ablation.interventions import HeadAblation, Variant

BANDED = ("remove-band", "freeze-band", "keep-band", "remove-band-off-sink")
WHOLE = ("zero", "position-only", "content-only")
COSTS, SPARED, UNDECIDED, UNMEASURED = "costs", "does not", "undecided", "not measured"


@dataclass(frozen=True, kw_only=True)
class AtlasSettings(Configured):
    """What an atlas measures."""

    bands: int = 4  # Frequency bands of each head.
    threshold: float = 5.0  # Drop, in points, above which a cell is said to cost.

    def __post_init__(self) -> None:
        require(self.bands >= 1, self, "bands", "at least 1")
        require(0 < self.threshold < 100, self, "threshold", "above 0 and below 100 points")

    def require_at_most(self, frequencies: int) -> None:
        """Refuse more bands than a head has frequencies to divide.

        Args:
            frequencies: Rotating pairs of a head, or waves of its lag kernel.

        Raises:
            ConfigError: If a band would be empty.
        """
        rule = f"at most {frequencies}, the number of frequencies that a head has"
        require(self.bands <= frequencies, self, "bands", rule)


@dataclass(frozen=True)
class Cell:
    """One intervention on one head.

    Args:
        layer: Layer of the head, from 0; of a checkpoint, the place of its attention module.
        head: Its number within the layer, from 0.
        intervention: Name of the fill, without its setting.
        band: Number of the band, highest frequencies first, or None for the whole head.
        of: Number of bands.
    """

    layer: int
    head: int
    intervention: str
    band: int | None
    of: int

    @property
    def variant(self) -> Variant:
        """The intervention as an ablation of the head."""
        fill = self.intervention
        if self.band is not None:
            fill = f"{fill}@{band_name(Band(index=self.band, of=self.of))}"
        return (HeadAblation(self.layer, self.head, fill),)


def cells_of(heads: Iterable[tuple[int, int]], bands: int) -> list[Cell]:
    """All cells of some heads, each named by layer and number."""
    banded = [(name, band) for name in BANDED for band in range(bands)]
    changes = [*banded, *((name, None) for name in WHOLE)]
    return [Cell(layer, head, name, band, bands) for layer, head in heads for name, band in changes]


def call_of(low: float, high: float, threshold: float) -> str:
    """Decide from an interval whether a drop exceeds a threshold: "costs", "does not" or "undecided"."""
    if low > threshold:
        return COSTS
    return SPARED if high <= threshold else UNDECIDED


def cell_columns(cells: Sequence[Cell]) -> pl.DataFrame:
    """Layer, head, intervention and band of each cell."""
    columns = {"layer": pl.Int64, "head": pl.Int64, "intervention": pl.String, "band": pl.Int64}
    rows = [{name: getattr(cell, name) for name in columns} for cell in cells]
    return pl.DataFrame(rows, schema=columns)
