"""Predicted cost of exact and of polynomial attention, from counts of operations.

A prediction depends on shapes and on the constants of a `CostModel` alone, so that plans are the same on
every machine. Nothing here measures time.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spectrope.core.config import Configured, from_dict
from spectrope.core.errors import ConfigError, require
from spectrope.fast.chunkwise import chunk_length, dense_chunks, rows_at_once
from spectrope.fast.monomials import SUMMED, feature_count, steps


@dataclass(frozen=True)
class Shape:
    """Sizes of one head's attention; values are taken to be as wide as queries.

    Args:
        batch: Examples.
        n_queries: Queries of each example.
        n_keys: Keys of each example.
        dim: Width of queries and keys.
        causal: Whether queries see no later key.
        biased: Whether there is a lag bias, which the exact kernel takes as a dense mask.
        itemsize: Bytes of a number: 8 in float64 and 4 else, as lower precisions are summed in float32.
        start: Lag from which the weights of lags decay exponentially, 0 without a lag bias.
    """

    batch: int
    n_queries: int
    n_keys: int
    dim: int
    causal: bool
    biased: bool = False
    itemsize: int = 4
    start: int = 0


class Operations(NamedTuple):
    """Counts of what takes time."""

    flops: float  # Floating-point operations in matrix products; one in float64 counts as two.
    bytes: float  # Read and written by everything else.
    exponentials: float
    calls: float  # Of torch's operations.


def exact_operations(shape: Shape) -> Operations:
    """Operations of torch's fused kernel; with a causal mask alone it leaves out one half."""
    pairs = shape.batch * shape.n_queries * shape.n_keys
    if shape.causal and not shape.biased:
        pairs /= 2
    words = shape.itemsize / 4
    mask = pairs * shape.itemsize if shape.biased else 0
    return Operations(4 * pairs * shape.dim * words, mask, pairs * words, 1)


def polynomial_operations(shape: Shape, rank: int, degree: int) -> Operations:
    """Operations of `polynomial_attention`: states of features, and dense products near the diagonal."""
    features, width = feature_count(rank, degree), shape.dim + 1
    n_q, n_k = shape.n_queries, shape.n_keys
    longest = chunk_length(features)
    chunk = min(longest, max(n_q, n_k))
    scans = 2 if shape.biased and not shape.causal else 1
    behind = dense_chunks(shape.start, chunk)
    dense = scans * behind + 1 if shape.causal or shape.biased else 0  # Chunks that a query sees densely.
    products = n_q * min(dense * chunk, n_k)
    flops = scans * 2 * features * width * (n_q + n_k) + 2 * products * (rank + width)
    moved = scans * 2 * features * (n_q + n_k) + products * (4 * degree + 3)
    copied = 4 * rank * (n_q + n_k) + width * (8 * n_q + 6 * n_k)
    calls = scans * (2 * len(steps(rank, degree)) + math.ceil(features / SUMMED) + 16)
    calls += dense * (2 * degree + 10)
    pieces = math.ceil(shape.batch / rows_at_once(features, longest)) * math.ceil(max(n_q, n_k) / chunk)
    size = shape.batch * shape.itemsize
    return Operations(flops * size / 4, (moved + copied) * size, 0, calls * pieces)


@dataclass(frozen=True, kw_only=True)
class CostModel(Configured):
    """Nanoseconds of each kind of operation; only their ratios decide a choice.

    Args:
        flop: Of a floating-point operation in a matrix product, in float32.
        byte: Of a byte read or written elsewhere.
        exponential: Of an exponential, in float32.
        call: Of calling a torch operation.
        source: Where the constants come from, in words.
    """

    flop: float
    byte: float
    exponential: float
    call: float
    source: str

    def __post_init__(self) -> None:
        require(0 < self.flop < math.inf, self, "flop", "positive and finite")
        for name in ("byte", "exponential", "call"):
            require(0 <= getattr(self, name) < math.inf, self, name, "finite and not negative")

    def exact(self, shape: Shape) -> float:
        """Predicted nanoseconds of exact attention."""
        return self.of(exact_operations(shape))

    def polynomial(self, shape: Shape, rank: int, degree: int) -> float:
        """Predicted nanoseconds of polynomial attention.

        Args:
            shape: Sizes of the head.
            rank: Coordinates that features are taken of.
            degree: Of the polynomial.
        """
        return self.of(polynomial_operations(shape, rank, degree))

    def of(self, counts: Operations) -> float:
        """Predicted nanoseconds of some operations."""
        constants = (self.flop, self.byte, self.exponential, self.call)
        return sum(constant * count for constant, count in zip(constants, counts, strict=True))


# Measured by `OMP_NUM_THREADS=1 spectrope attention calibrate --device cpu`.
DEFAULT = CostModel(
    flop=7.2e-3,
    byte=5.2e-2,
    exponential=0.58,
    call=5.6e3,
    source="default, measured on 1 thread of an Intel Xeon Processor (AVX512), torch 2.13",
)


def read_costs(path: Path) -> CostModel:
    """The costs in a file that `spectrope attention calibrate --out` wrote.

    Raises:
        ConfigError: If there is no such file, or something else in it.
    """
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} holds no costs that can be read: {error}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no costs, but {type(values).__name__}.")
    return from_dict(CostModel, values)
