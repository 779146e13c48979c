"""Measure the constants of a `CostModel` on this machine, on request only; plans never do."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import Tensor

from spectrope.core import machine, torch_stream
from spectrope.fast.chunkwise import PolynomialWeights
from spectrope.fast.clock import own_seconds
from spectrope.fast.costs import (
    CostModel,
    Operations,
    Shape,
    exact_operations,
    fft_operations,
    polynomial_operations,
)
from spectrope.fast.polynomial import polynomial_attention
from spectrope.fast.toeplitz import SharedLags, Terms, normalised

ROUNDS = 10
LENGTHS = {"cpu": (1024, 2048), "cuda": (8192, 16_384)}
EXACT_DIMS = (16, 64, 128)
FFTS = ((2, 2, 2), (4, 1, 4), (4, 2, 4))
POLYNOMIALS = ((4, 2, 16), (16, 1, 16), (16, 2, 16), (16, 3, 16), (32, 2, 64), (64, 1, 64), (64, 2, 64))


@dataclass(frozen=True)
class Case:
    """Attention of one head, exact or by a polynomial.

    Args:
        shape: Sizes of the head.
        rank: Coordinates that features are taken of, or None for exact attention.
        degree: Of the polynomial.
        by_fft: Whether its sums are taken by FFT rather than over blocks.
    """

    shape: Shape
    rank: int | None = None
    degree: int = 0
    by_fft: bool = False

    @property
    def label(self) -> str:
        """The case in words."""
        shape = self.shape
        kernel = "exact" if self.rank is None else f"degree {self.degree} of {self.rank} coordinates"
        options = ", causal" * shape.causal + ", biased" * shape.biased + ", by FFT" * self.by_fft
        return f"{kernel}, width {shape.dim}, {shape.n_keys:,} tokens{options}"

    @property
    def operations(self) -> Operations:
        """Counts of its operations."""
        if self.rank is None:
            return exact_operations(self.shape)
        if self.by_fft:
            return fft_operations(self.shape, math.comb(self.rank + self.degree, self.degree))
        return polynomial_operations(self.shape, self.rank, self.degree)

    def call(self, device: torch.device) -> Callable[[], Tensor]:
        """The computation, on random tensors."""
        n, dim, stream = self.shape.n_keys, self.shape.dim, torch_stream(0, "calibration", self.label)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=stream).to(device)

        if self.rank is None:
            q, k, v = (draw(1, 1, n, dim) for _ in range(3))
            options = {"attn_mask": draw(1, 1, n, n) if self.shape.biased else None}
            return partial(F.scaled_dot_product_attention, q, k, v, is_causal=self.shape.causal, **options)
        q, k = (draw(1, 1, n, self.rank) / self.rank for _ in range(2))
        coefficients = (1.0,) * (self.degree + 1)
        if self.by_fft:
            wide = (x.double() for x in (q, k, draw(1, 1, n, dim)))
            lags = SharedLags(torch.ones(1, 2 * n - 1, dtype=torch.float64, device=device))
            blind = torch.zeros(1, n, dtype=torch.bool, device=device)
            return partial(normalised, Terms.of(self.rank, coefficients), *wide, lags, blind)
        weights = PolynomialWeights(coefficients, self.shape.causal)
        return partial(polynomial_attention, q, k, draw(1, 1, n, dim), weights)


def cases(device: torch.device) -> list[Case]:
    """What is measured on a kind of device."""
    masks = ((False, False), (True, False), (False, True))
    lengths = LENGTHS[device.type]
    exact = [
        Case(Shape(1, n, n, dim, causal, biased))
        for n, dim, (causal, biased) in product(lengths, EXACT_DIMS, masks)
    ]
    blocked = [
        Case(Shape(1, n, n, dim, causal), rank, degree)
        for n, (rank, degree, dim), causal in product(lengths, POLYNOMIALS, (False, True))
    ]
    ffts = [
        Case(Shape(1, n, n, dim, False), rank, degree, by_fft=True)
        for n, (rank, degree, dim) in product(lengths, FFTS)
    ]
    return exact + blocked + ffts


def rounds(measured: Sequence[Case], device: torch.device) -> Iterator[list[float]]:
    """The least nanoseconds of each case so far, after each of several rounds over all cases.

    Gradients are not computed.
    """
    calls, least = [case.call(device) for case in measured], [math.inf] * len(measured)
    with torch.no_grad():
        for call in calls:
            call()
        for _ in range(ROUNDS):
            times = [own_seconds(call, device) for call in calls]
            least = [min(before, 1e9 * now) for before, now in zip(least, times, strict=True)]
            yield least


def fit(measured: Sequence[Case], times: Sequence[float]) -> CostModel:
    """The constants with the least squared relative errors of the predicted times, none of them negative.

    Args:
        measured: The cases.
        times: Nanoseconds of each.
    """
    counts = np.array([case.operations for case in measured]) / np.array(times)[:, None]
    flop, byte, exponential, call, transform = (float(x) for x in nnls(counts, np.ones(len(times)))[0])
    on = machine()
    where = f"{on['threads']} thread{'s' * (on['threads'] != 1)} of {on['processor']} ({on['capability']})"
    where = where if on["accelerator"] == "none" else f"{on['accelerator']}, {where}"
    source = f"measured on {where}, torch {on['torch']}"
    return CostModel(
        flop=flop, byte=byte, exponential=exponential, call=call, transform=transform, source=source
    )
