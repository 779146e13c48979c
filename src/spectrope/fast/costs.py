"""Predicted cost of exact and of polynomial attention, from counts of operations.

A prediction depends on shapes and on the constants of a `CostModel` alone, so that plans are the same on
every machine. Nothing here measures time.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from spectrope.core import ConfigError, Configured, from_dict, require
from spectrope.fast.chunkwise import chunk_length, dense_chunks, rows_at_once
from spectrope.fast.monomials import SUMMED, feature_count, steps
from spectrope.spectral import fast_length

KEY_BLOCK = 512  # Keys that torch's kernel on CPUs takes at once.
TERM_ENTRIES = 2**22  # Of the transforms taken at once, which bounds memory.
TRANSFORM = 0.3  # Nanoseconds of a point of an FFT per doubling of its length: one thread of an AMD EPYC.


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
        starts: Lags from which weights decay exponentially, in the past and in the future.
    """

    batch: int
    n_queries: int
    n_keys: int
    dim: int
    causal: bool
    biased: bool = False
    itemsize: int = 4
    starts: tuple[int, int] = (0, 0)


class Operations(NamedTuple):
    """Counts of operations that take time."""

    flops: float  # Floating-point operations in matrix products; one in float64 counts as two.
    bytes: float  # Read and written by everything else.
    exponentials: float
    calls: float  # Of torch's operations, views included.
    transforms: float = 0  # Points of FFTs times the logarithm of their number, base 2, in float64.


def exact_operations(shape: Shape) -> Operations:
    """Operations of torch's fused kernel, which leaves out blocks of later keys if nothing else is masked."""
    keys = float(shape.n_keys)
    if shape.causal and not shape.biased:
        keys = min(keys, (keys + KEY_BLOCK) / 2)
    pairs = shape.batch * shape.n_queries * keys
    words = shape.itemsize / 4
    mask = pairs * shape.itemsize if shape.biased else 0
    return Operations(4 * pairs * shape.dim * words, mask, pairs * words, 1)


def polynomial_operations(shape: Shape, rank: int, degree: int) -> Operations:
    """Operations of `polynomial_attention`: states of features, and dense products near the diagonal.

    Args:
        shape: Sizes of the head.
        rank: Coordinates that features are taken of.
        degree: Of the polynomial.
    """
    features, width = feature_count(rank, degree), shape.dim + 1
    chunk = chunk_length(features)
    chunks = math.ceil(max(shape.n_queries, shape.n_keys) / chunk)
    stated, dense = _visits(shape, chunks, chunk)
    tokens = (shape.n_queries + shape.n_keys) / chunks
    pairs = dense * shape.n_queries * shape.n_keys / chunks**2
    copied = 4 * rank * (shape.n_queries + shape.n_keys) + width * (8 * shape.n_queries + 6 * shape.n_keys)
    moved = 2 * stated * features * tokens + pairs * (4 * degree + 3) + copied
    flops = 2 * stated * features * width * tokens + 2 * pairs * (rank + width)
    size = shape.batch * shape.itemsize
    # Numbers of calls are those that torch dispatches, which tests count; decays by a lag bias are left out.
    products = len(steps(rank, degree))
    of_states = stated * (27 + 2 * products + math.ceil(features / SUMMED)) + 6 * products
    pieces = math.ceil(shape.batch / rows_at_once(features, chunk))
    calls = 48 + pieces * (of_states + dense * (21 + 2 * degree))
    return Operations(flops * size / 4, moved * size, 0, calls)


def fft_operations(shape: Shape, features: int) -> Operations:
    """Operations of `toeplitz_fft`: a transform and its inverse of each feature times each value, in float64.

    Args:
        shape: Sizes of the head.
        features: Terms of the polynomial.
    """
    width, tokens = shape.dim + 1, shape.n_queries + shape.n_keys
    points = fast_length(tokens - 1)
    columns = shape.batch * features * width
    chunks = math.ceil(columns * points / TERM_ENTRIES)
    moved = 8 * columns * (4 * tokens + 3 * points)
    return Operations(
        4 * columns * shape.n_queries, moved, 0, 60 * chunks, 2 * columns * points * math.log2(points)
    )


def relative_operations(shape: Shape, terms: int) -> Operations:
    """Operations of `relative_fft`: those of `toeplitz_fft`, and a transform of each term's weights of lags.

    Args:
        shape: Sizes of the head.
        terms: Of the polynomial in products of unrotated coordinates.
    """
    tokens = shape.n_queries + shape.n_keys
    points = fast_length(tokens - 1)
    of_lags = Operations(0, 16 * terms * (tokens + points), 0, 0, terms * points * math.log2(points))
    both = zip(fft_operations(shape, terms), of_lags, strict=True)
    return Operations(*(one + other for one, other in both))


def _visits(shape: Shape, chunks: int, chunk: int) -> tuple[int, int]:
    """Chunks that update and read a state, and pairs of chunks that meet in dense products."""
    if not (shape.causal or shape.biased):
        return chunks, 0
    stated, dense = 0, chunks
    for start in shape.starts[:1] if shape.causal else shape.starts:
        behind = min(dense_chunks(start, chunk), chunks - 1)
        stated += chunks - 1 - behind
        dense += sum(chunks - distance for distance in range(1, behind + 1))
    return stated, dense


@dataclass(frozen=True, kw_only=True)
class CostModel(Configured):
    """Nanoseconds of each kind of operation; only their ratios decide a choice.

    Args:
        flop: Of a floating-point operation in a matrix product, in float32.
        byte: Of a byte read or written elsewhere.
        exponential: Of an exponential, in float32.
        call: Of calling a torch operation.
        source: Where the constants come from, in words.
        transform: Of a point of an FFT per doubling of its length, in float64.
    """

    flop: float
    byte: float
    exponential: float
    call: float
    source: str
    transform: float = TRANSFORM

    def __post_init__(self) -> None:
        require(0 < self.flop < math.inf, self, "flop", "positive and finite")
        for name in ("byte", "exponential", "call", "transform"):
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

    def fft(self, shape: Shape, features: int) -> float:
        """Predicted nanoseconds of polynomial attention by FFT.

        Args:
            shape: Sizes of the head.
            features: Terms of the polynomial.
        """
        return self.of(fft_operations(shape, features))

    def relative(self, shape: Shape, terms: int) -> float:
        """Predicted nanoseconds of polynomial attention by FFT of unrotated vectors.

        Args:
            shape: Sizes of the head.
            terms: Of the polynomial in products of unrotated coordinates.
        """
        return self.of(relative_operations(shape, terms))

    def of(self, counts: Operations) -> float:
        """Predicted nanoseconds of some operations."""
        constants = (self.flop, self.byte, self.exponential, self.call, self.transform)
        return sum(constant * count for constant, count in zip(constants, counts, strict=True))


# Measured by `OMP_NUM_THREADS=1 spectrope attention calibrate --device cpu`.
DEFAULT = CostModel(
    flop=7.0e-3,
    byte=7.6e-2,
    exponential=0.51,
    call=3.8e3,
    source="defaults, measured on 1 thread of an Intel Xeon Processor (AVX512), torch 2.13.0",
)


def read_costs(path: Path) -> CostModel:
    """The costs in a file that `spectrope attention calibrate --out` wrote.

    Raises:
        ConfigError: If there is no such file, or something else in it.
    """
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} holds no costs that can be read: {error}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no costs, but {type(values).__name__}.")
    return from_dict(CostModel, values)
