"""Multi-head attention: how small it starts."""

import pytest
import torch

from spectrope.attention.heads import HeadSizes
from spectrope.attention.multi_head import MultiHead
from spectrope.core.config import to_dict
from spectrope.core.errors import ConfigError
from spectrope.models.decoder import DecoderConfig

SIZES = HeadSizes(d_model=8, n_heads=2, head_dim=4, causal=True)


def built(start):
    heads = MultiHead.Config(start=start).build(SIZES)
    assert isinstance(heads, MultiHead)
    return heads


def test_a_small_start_scales_queries_and_keys_alone():
    usual, small = built(1.0), built(0.1)
    x = torch.randn(1, 3, 8)
    for bias in (usual.qkv.bias, small.qkv.bias):
        torch.nn.init.zeros_(bias)
    (q, k, v), (small_q, small_k, small_v) = usual.project(x, None), small.project(x, None)
    torch.testing.assert_close(small_q, 0.1 * q)
    torch.testing.assert_close(small_k, 0.1 * k)
    assert torch.equal(small_v, v)


def test_a_usual_start_leaves_the_names_of_runs_as_they_were():
    assert "attention" not in to_dict(DecoderConfig())
    assert to_dict(DecoderConfig(attention=MultiHead.Config(start=0.5)))["attention"]["start"] == 0.5
    assert "start" not in to_dict(MultiHead.Config())


def test_a_start_from_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"MultiHead\.Config\.start must be positive; got 0\.0"):
        MultiHead.Config(start=0.0)
