"""Which coordinates of queries and keys form pairs that turn."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from spectrope.encodings import Pairing, complex_pairs

LAYOUT_POSITIONS = 64  # Positions from which the layout of the pairs is judged.
NORM_CHANGE = 1e-3  # Relative change of norms from which coordinates are called no pairs that turn.
SUMMED = 2**-23  # Relative rounding error of sums in float32, by which every product of matrices may be off.
WEAK = 1e-5  # Share of the mean energy below which rounding hides whether a pair keeps its norm.


@dataclass(frozen=True)
class Layout:
    """Which coordinates form pairs."""

    pairing: Pairing
    start: int
    width: int

    def planes(self, x: Float[Tensor, "*n d"]) -> Complex[Tensor, "*n m"]:
        """The pairs as complex numbers."""
        return complex_pairs(x[..., self.start : self.start + self.width], self.pairing)


def moving_coordinates(vectors: Float[Tensor, "n t d"], noise: float) -> Bool[Tensor, " d"]:
    """Coordinates that vary over positions by more than rounding.

    A number is rounded in proportion to itself: one large coordinate, as trained models have, says nothing of
    the others. Only what sums leave is in proportion to the whole vector.
    """
    first, (low, high) = vectors[:, 0], vectors.aminmax(dim=1)
    change, largest = torch.maximum(high - first, first - low), torch.maximum(high, -low)
    size = torch.linalg.vector_norm(vectors) / max(vectors.numel(), 1) ** 0.5
    return (change > 20 * (noise * largest + SUMMED * size)).any(0)


def _layouts(moving: Bool[Tensor, " d"]) -> Iterator[Layout]:
    """Leading blocks, and blocks at the end, that hold every moving coordinate."""
    d = len(moving)
    low, high = int(moving.nonzero()[0]), int(moving.nonzero()[-1])
    widths = range(high + 2 - high % 2, d + 1, 2)
    yield from (Layout("halves", 0, width) for width in widths)
    yield from (Layout("halves", start, d - start) for start in range(2 - d % 2, low + 1, 2))
    start = low - low % 2
    yield Layout("adjacent", start, high + 1 + (high + 1) % 2 - start if start else high + 1 + (high + 1) % 2)


def best_layout(
    vectors: Float[Tensor, "n t d"], moving: Bool[Tensor, " d"], noise: float, likely: Layout | None = None
) -> Layout | None:
    """Of the layouts whose pairs keep their norms, that whose coordinates pass most energy to each other.

    A likely one comes first.
    """
    step = max(1, vectors.shape[1] // LAYOUT_POSITIONS)
    sample, within = vectors[:16, ::step], max(NORM_CHANGE, 8 * noise)
    if likely is not None and _holds(likely, moving) and norm_change(likely.planes(sample)) < within:
        return likely
    drawn = ((layout, layout.planes(sample)) for layout in _layouts(moving))
    kept = [(_uncancelled(z, noise), layout) for layout, z in drawn if norm_change(z) < within]
    return min(kept, key=lambda one: one[0], default=(0.0, None))[1]


def _holds(layout: Layout, moving: Bool[Tensor, " d"]) -> bool:
    """Whether every moving coordinate is of a pair."""
    still = moving.clone()
    still[layout.start : layout.start + layout.width] = False
    return not bool(still.any())


def norm_change(z: Complex[Tensor, "n t m"]) -> float:
    """Variation of squared norms over positions, each relative to its own, in the mean over pairs."""
    squared = z.real.square() + z.imag.square()
    mean = squared.mean(1, keepdim=True)
    change, size = (squared - mean).square().mean((0, 1)), mean.square().mean((0, 1))
    return (change / (size + (WEAK * mean.mean()) ** 2).clamp(min=1e-300)).mean().sqrt().item()


def _uncancelled(z: Complex[Tensor, "n t m"], noise: float) -> float:
    """Share of the variation of two squared coordinates that their sum keeps, in the mean over pairs.

    Beside a large coordinate that stands still, a small one that moves changes no norm, and cancels nothing.
    """
    x, y = z.real.square(), z.imag.square()
    still = (20 * noise * (x + y).mean(1)).square() + torch.finfo(x.dtype).tiny
    both = (x.var(1, unbiased=False) + y.var(1, unbiased=False)).sum(0)
    return ((x + y).var(1, unbiased=False).sum(0) / (both + still.sum(0))).mean().item()
