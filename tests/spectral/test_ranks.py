"""Effective ranks count equal values, and are ordered."""

import pytest
import torch

from spectrope.core.errors import ConfigError
from spectrope.spectral import effective_ranks


def test_effective_ranks_of_equal_values_count_them_and_are_ordered():
    values = torch.tensor([[2.0, 2.0, 2.0, 0.0], [3.0, 1.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0]])
    ranks = effective_ranks(values)
    assert [rank[0].item() for rank in vars(ranks).values()] == pytest.approx([3, 3, 3])
    assert 1 <= ranks.stable[1] <= ranks.participation[1] <= ranks.entropy[1] <= 3
    assert all(rank[2].isnan() for rank in vars(ranks).values())


@pytest.mark.parametrize("values", [torch.tensor([1.0, -1.0]), torch.ones(2) * 1j])
def test_wrong_values_are_refused_in_one_line(values):
    with pytest.raises(ConfigError, match="singular_values must be real and not negative"):
        effective_ranks(values)
    with pytest.raises(ConfigError, match="singular_values must number at least one"):
        effective_ranks(values[:0].real)
