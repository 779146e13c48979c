"""Cells of the suite: combinations of options of a rotary embedding."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core import numpy_stream, require, torch_stream

HEAD_DIM, TOKENS, BASE = 64, 12, 10000.0
LONGEST = 1_000_000  # The largest position.
PairLayout = Literal["interleaved", "halves"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
STARTS = (0, 4096, 131_072, LONGEST - 4 * TOKENS + 1)
LAYOUTS: tuple[PairLayout, ...] = ("halves", "interleaved")
ORDERS = ("consecutive", "scattered")
WIDTHS = (1.0, 0.5, 0.25)
SCALINGS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
}
SECTIONS = ("one axis", "three axes")


@dataclass(frozen=True)
class RotaryCell:
    """One combination.

    Args:
        dtype: Of the vectors.
        start: The smallest position that may occur.
        layout: Whether neighbours form pairs, or coordinates half of the rotated width apart.
        order: Whether positions increase by one, or jump and repeat, as in packed sequences.
        width: Rotated share of a head.
        scaling: Of the frequencies; a name in `SCALINGS`.
        sections: Whether positions are numbers, or triples, each component of which rotates one section of
            the pairs.
    """

    dtype: str = "float32"
    start: int = 0
    layout: PairLayout = "halves"
    order: str = "consecutive"
    width: float = 1.0
    scaling: str = "none"
    sections: str = "one axis"

    def __post_init__(self) -> None:
        known = {
            "dtype": DTYPES,
            "layout": LAYOUTS,
            "order": ORDERS,
            "scaling": SCALINGS,
            "sections": SECTIONS,
        }
        for field, values in known.items():
            require(getattr(self, field) in values, self, field, f"one of {', '.join(values)}")

    @property
    def rotated(self) -> int:
        """Rotated coordinates."""
        return int(HEAD_DIM * self.width)

    @property
    def parts(self) -> tuple[int, ...] | None:
        """Pairs in each section; None where positions have one axis."""
        quarter = self.rotated // 8
        return None if self.sections == "one axis" else (2 * quarter, quarter, quarter)

    def positions(self) -> Int[Tensor, "*axes t"]:
        """Where the tokens are, with shape (t,), or (3, t) where there are sections."""
        rng = numpy_stream(0, "positions", self.order, self.sections)
        axes = 1 if self.parts is None else 3
        if self.order == "consecutive":
            places = torch.arange(TOKENS).expand(axes, TOKENS) + TOKENS * torch.arange(axes)[:, None]
        else:
            places = torch.from_numpy(rng.integers(0, 4 * TOKENS, (axes, TOKENS)))
            places[:, TOKENS // 2] = 0  # Another sequence begins here.
        places = places + self.start
        return places[0] if self.parts is None else places

    def vectors(self, name: str) -> Float[Tensor, "1 2 t d"]:
        """Random vectors, with shape (batch, heads, tokens, width), in the cell's type."""
        generator = torch_stream(0, "vectors", name)
        return torch.randn(1, 2, TOKENS, HEAD_DIM, generator=generator).to(DTYPES[self.dtype])

    def asked(self) -> dict[str, Any]:
        """Arguments other than vectors and positions that differ from their defaults."""
        asked: dict[str, Any] = {"base": BASE, "layout": self.layout}
        if self.width != 1:
            asked["width"] = self.rotated
        if self.scaling != "none":
            asked["scaling"] = dict(SCALINGS[self.scaling])
        if self.parts is not None:
            asked["sections"] = list(self.parts)
        return asked


def cells() -> Iterator[RotaryCell]:
    """All combinations, the plainest first."""
    for sections, scaling, width, layout, order, start, dtype in product(
        SECTIONS, SCALINGS, WIDTHS, LAYOUTS, ORDERS, STARTS, DTYPES
    ):
        yield RotaryCell(dtype, start, layout, order, width, scaling, sections)
