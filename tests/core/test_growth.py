"""Peak memory at large lengths, derived from a run at a small one."""

import pytest
import torch

from spectrope.core.growth import TRIED, peak_growth

CPU = torch.device("cpu")


def bytes_at(run, length):
    return peak_growth(run).at(length)[CPU]


def test_squares_triangles_and_lines_grow_by_their_powers():
    n = 4000
    assert bytes_at(lambda n: torch.ones(2, n, n, dtype=torch.bool), n) == 2 * n * n
    triangle = bytes_at(lambda n: torch.ones(n * (n + 1) // 2, dtype=torch.float64), n)
    assert triangle == pytest.approx(8 * n * (n + 1) // 2, rel=0.01)
    by_lag = bytes_at(lambda n: torch.ones(n, 2 * n - 1, dtype=torch.bool), n)
    assert by_lag == pytest.approx(n * (2 * n - 1), rel=0.01)
    assert bytes_at(lambda n: torch.ones(n, 64, dtype=torch.float64), n) == n * 64 * 8
    assert bytes_at(lambda _: torch.ones(1000, dtype=torch.uint8), n) == 1000


def test_the_largest_moment_at_a_small_length_need_not_be_the_largest_later():
    def run(n):
        torch.ones(n, 4096, dtype=torch.uint8)  # freed at once
        torch.ones(n, n, dtype=torch.uint8)

    assert bytes_at(run, TRIED) == 4096 * TRIED
    assert bytes_at(run, 100_000) == 100_000**2


def test_views_and_the_storage_of_arguments_do_not_count():
    weights = torch.ones(TRIED, TRIED)
    assert CPU not in peak_growth(lambda n: weights.T[:n].unsqueeze(0)).moments

    def run(n):
        x = torch.ones(n, n, dtype=torch.uint8)
        return x.T, x[None], x.view(-1)

    assert bytes_at(run, 1000) == 1000**2


def test_tensors_without_data_do_not_count():
    assert not peak_growth(lambda n: torch.ones(n, n, device="meta")).moments


def test_the_largest_length_that_fits():
    growth = peak_growth(lambda n: torch.ones(n, n, dtype=torch.uint8))
    assert growth.longest({CPU: 10**6}) == 1000
    assert growth.longest({CPU: 10**6 - 1}) == 999
    assert growth.longest({CPU: 0}) == 0
