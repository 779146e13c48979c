"""Images of four polygons whose sides are to be counted, drawn at any resolution: a finite data set."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.core import Configured, OneOf, numpy_stream, require
from spectrope.grokking.tasks.distributions import DISTRIBUTIONS, Distribution, Random

CELLS = 4  # In a grid of two by two.
RADIUS = 0.8  # Of a polygon, in halves of its cell.
STROKE = 0.06  # Width of a line, likewise; never less than a pixel.


@dataclass(frozen=True, kw_only=True)
class ShapesConfig(Configured):
    """Which polygons there are, and which of their combinations train.

    The operands of `distribution` are the sides of the two upper polygons: `Strip(k)` holds out the images
    whose upper left polygon has at most k sides, `Square(k)` those of which both have.
    """

    sides: tuple[int, ...] = (0, *range(3, 13))  # Of the polygons, ascending; 0 leaves a cell empty.
    resolution: int = 224  # Pixels along an image.
    n_train: int = 3660  # Of all combinations.
    distribution: Annotated[Distribution, OneOf(DISTRIBUTIONS)] = field(default_factory=Random)

    added_later = frozenset({"distribution"})

    def __post_init__(self) -> None:
        known = self.sides and all(m == 0 or m >= 3 for m in self.sides)
        require(bool(known), self, "sides", "numbers of sides, 0 or at least 3")
        require(len(set(self.sides)) == len(self.sides), self, "sides", "different from one another")
        ascends = list(self.sides) == sorted(self.sides)
        require(ascends, self, "sides", "in ascending order", "MED compares each polygon with the next.")
        require(self.resolution >= 8 and self.resolution % 2 == 0, self, "resolution", "even and at least 8")
        self._check_distribution()
        count = len(self.sides) ** CELLS
        require(0 < self.n_train < count, self, "n_train", f"between 1 and {count - 1}")

    def _check_distribution(self) -> None:
        held = self.distribution.held_out(*(side.ravel() for side in np.meshgrid(self.sides, self.sides)))
        holds_some = isinstance(self.distribution, Random) or bool(held.any())
        way_out = f"k is a number of sides: at least {self.sides[0]} and below {self.sides[-1]}."
        rule = "one that holds out some of the images, but not all"
        require(holds_some and not held.all(), self, "distribution", rule, way_out)

    @property
    def n_classes(self) -> int:
        """Labels from 0 to the greatest sum, whether each occurs or not."""
        return CELLS * max(self.sides) + 1

    def build(self) -> "Shapes":
        """The task that this configuration describes."""
        return Shapes(self)


class Shapes:
    """All arrangements of polygons in a two-by-two grid; the label is the total number of sides.

    A polygon is drawn as its edges and its spokes from the centre, one vertex at the top, in white on black.

    Args:
        config: Which polygons, and at what size.

    References:
        arXiv 2504.03162, public code: 0 or 3 to 12 sides, 14,641 images, 3,660 of which train.
    """

    def __init__(self, config: ShapesConfig) -> None:
        self.config = config
        half = config.resolution // 2
        self.glyphs = torch.stack([glyph(sides, half) for sides in config.sides])
        grid = np.indices((len(config.sides),) * CELLS).reshape(CELLS, -1).T
        self.cells = torch.from_numpy(np.ascontiguousarray(grid))
        self.labels = torch.tensor(config.sides)[self.cells].sum(1)

    def __len__(self) -> int:
        return len(self.labels)

    def draw(self, index: Int[Tensor, " n"]) -> Float[Tensor, "n 3 h w"]:
        """Images of some combinations, from 0 to 1, the same in all three channels."""
        four = self.glyphs.to(index.device)[self.cells.to(index.device)[index]]  # (n 4 h/2 w/2)
        return _joined(four)

    def alone(self) -> Iterator[Float[Tensor, "s 3 h w"]]:
        """For each cell, images of every polygon in it, the other cells being empty."""
        for cell in range(CELLS):
            four = self.glyphs.new_zeros(len(self.glyphs), CELLS, *self.glyphs.shape[1:])
            four[:, cell] = self.glyphs
            yield _joined(four)

    def held_out(self) -> Bool[Tensor, " n"]:
        """Which combinations the distribution keeps out of training whatever the seed."""
        upper = torch.tensor(self.config.sides)[self.cells[:, :2]].numpy()
        return torch.from_numpy(self.config.distribution.held_out(upper[:, 0], upper[:, 1]))

    def split(self, seed: int) -> Bool[Tensor, " n"]:
        """Which combinations train, `n_train` of them, drawn without replacement; the others are the test.

        Raises:
            ConfigError: If the distribution lets fewer train.
        """
        allowed = (~self.held_out()).nonzero().squeeze(1).numpy()
        enough = self.config.n_train <= len(allowed)
        require(enough, self.config, "n_train", f"at most {len(allowed)}, which are not held out")
        trains = torch.zeros(len(self), dtype=torch.bool)
        drawn = numpy_stream(seed, "shapes/split").permutation(allowed)[: self.config.n_train]
        trains[torch.from_numpy(drawn)] = True
        return trains


def _joined(four: Float[Tensor, "n 4 s s"]) -> Float[Tensor, "n 3 h w"]:
    """Images of four cells each, the same in all three channels."""
    rows = [torch.cat([four[:, left], four[:, left + 1]], -1) for left in (0, 2)]
    return torch.cat(rows, -2)[:, None].expand(-1, 3, -1, -1)


def glyph(sides: int, size: int) -> Float[Tensor, "s s"]:
    """One polygon on a square of pixels; at the edge of a stroke brightness falls to 0 over a pixel."""
    if sides == 0:
        return torch.zeros(size, size)
    angles = 2 * math.pi * torch.arange(sides) / sides
    corners = RADIUS * torch.stack([angles.sin(), -angles.cos()], 1)
    starts = torch.cat([corners, torch.zeros_like(corners)])
    ends = torch.cat([corners.roll(-1, 0), corners])
    middle = (torch.arange(size) + 0.5) * 2 / size - 1
    pixels = torch.stack(torch.meshgrid(middle, middle, indexing="xy"), -1).reshape(-1, 2)
    pixel, stroke = 2 / size, max(STROKE, 2 / size)
    distance = _to_segments(pixels, starts, ends).amin(1)
    return ((stroke / 2 - distance) / pixel + 0.5).clamp(0, 1).reshape(size, size)


def _to_segments(
    x: Float[Tensor, "n 2"], starts: Float[Tensor, "m 2"], ends: Float[Tensor, "m 2"]
) -> Float[Tensor, "n m"]:
    """Distance of each point to each segment."""
    along = ends - starts
    from_start = x[:, None] - starts
    share = ((from_start * along).sum(-1) / along.square().sum(-1)).clamp(0, 1)
    return (from_start - share[..., None] * along).norm(dim=-1)
