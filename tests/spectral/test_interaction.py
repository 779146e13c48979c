"""Interaction of content and lag: none in additive logits, 2m dimensions in those of RoPE."""

import pytest
import torch

from spectrope.core import ConfigError
from spectrope.spectral import interaction_rank, rope_logits


@pytest.mark.parametrize("m", [1, 3, 8])
def test_rope_has_two_dimensions_for_each_frequency(m):
    n, frequencies = 40, 0.9 * 0.7 ** torch.arange(m, dtype=torch.float64)
    rng = torch.Generator().manual_seed(m)
    q, k = torch.randn(2, 60, 1, m, generator=rng, dtype=torch.complex128)
    by_lag = [
        rope_logits(one.expand(n, m), other.expand(n, m), frequencies)[:, 0]
        for one, other in zip(q, k, strict=True)
    ]
    assert interaction_rank(torch.stack(by_lag)) == 2 * m
    bias = torch.randn(n, generator=rng, dtype=torch.float64)
    assert interaction_rank(torch.stack(by_lag).mean(1, keepdim=True) + bias) == 0


def test_one_lag_has_no_interaction_to_measure():
    with pytest.raises(ConfigError, match="2 pairs and 2 lags or more"):
        interaction_rank(torch.zeros(5, 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_hides_no_interaction_that_is_large(dtype):
    table = torch.zeros(200, 150)
    table[:4, :4] = 100 * torch.eye(4)
    assert interaction_rank(table.to(dtype)) == 4


def test_rounding_in_float32_is_no_interaction():
    draw = torch.Generator().manual_seed(0)
    content, bias = torch.randn(50, 1, generator=draw), torch.randn(30, generator=draw)
    assert interaction_rank(content + bias) == 0
    assert interaction_rank(content + bias + torch.eye(50, 30)) == 29  # Less than 30: means are removed.
