"""Spans of words and positions: what they have in common, and at what angle they meet."""

import math

import pytest
import torch

from spectrope.core import ConfigError
from spectrope.spectral import span_overlap


def test_spans_with_known_directions():
    axes = torch.eye(5, dtype=torch.float64)
    tilted = math.cos(0.3) * axes[0] + math.sin(0.3) * axes[3]
    overlap = span_overlap(torch.stack([axes[0], 2 * axes[0], axes[1]]), tilted[None])
    assert (overlap.first_rank, overlap.second_rank, overlap.common) == (2, 1, 0)
    assert overlap.largest_cosine == pytest.approx(math.cos(0.3))
    shared = span_overlap(axes[:3], axes[2:])
    assert (shared.first_rank, shared.second_rank, shared.common) == (3, 3, 1)
    assert shared.largest_cosine == pytest.approx(1)


def test_nothing_spans_nothing():
    overlap = span_overlap(torch.zeros(2, 4), torch.eye(4))
    assert (overlap.first_rank, overlap.common, overlap.largest_cosine) == (0, 0, 0)


def test_vectors_of_different_widths_are_refused():
    with pytest.raises(ConfigError, match="must have one width; got 3 and 4"):
        span_overlap(torch.eye(3), torch.eye(4))


def test_rounding_in_float32_spans_nothing():
    draw = torch.Generator().manual_seed(0)
    first, second = (torch.randn(6, 2, generator=draw) @ torch.randn(2, 10, generator=draw) for _ in range(2))
    overlap = span_overlap(first, second)
    assert (overlap.first_rank, overlap.second_rank, overlap.common) == (2, 2, 0)
