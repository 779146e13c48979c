"""Crossovers and exponents of made-up timings, and what is timed."""

import pytest
import torch

from spectrope.fast.crossover import KernelTiming, SyntheticHead, crossover, degree_errors, exponent
from spectrope.fast.planning import rotated


def timed(exact: float, fast: float, lengths=(1024, 2048, 4096, 8192)) -> list[KernelTiming]:
    """Quadratic and linear seconds and bytes."""
    return [
        KernelTiming(kernel, "forward", n, seconds, n / 1024)
        for n in lengths
        for kernel, seconds in (("exact", exact * n**2), ("polynomial", fast * n))
    ]


def test_power_laws_cross_where_they_are_equal():
    assert crossover(timed(1e-9, 3e-6), "polynomial", "forward") == pytest.approx(3000)
    assert crossover(timed(1e-9, 1e-3), "polynomial", "forward") is None
    assert crossover(timed(1.0, 1e-9), "polynomial", "forward") == 1024


def test_exponents_of_power_laws():
    found = timed(1e-9, 3e-6)
    assert exponent(found, "exact", "forward") == pytest.approx(2)
    assert exponent(found, "polynomial", "forward") == pytest.approx(1)
    assert exponent(found, "polynomial", "forward", "mib") == pytest.approx(1)
    assert exponent(timed(1.0, 1.0, lengths=(64,)), "exact", "forward") is None


def test_logits_reach_as_far_as_asked_and_no_farther():
    ctx, _, encoding = SyntheticHead(head_dim=8, reach=1.5).inputs(300, torch.device("cpu"))
    turned = rotated(ctx, encoding)
    norms = turned.q.norm(dim=-1).max() * turned.k.norm(dim=-1).max()
    assert 0.98 * 1.5 < norms <= 1.5


@pytest.mark.parametrize("causal", [True, False])
def test_measured_errors_keep_to_certified_ones(causal):
    errors = degree_errors(SyntheticHead(head_dim=4, reach=1.0, causal=causal), 4096, torch.device("cpu"))
    assert all(e.error_bound is not None and e.error <= e.error_bound for e in errors)
    assert errors[0].error > 10 * errors[2].error
