"""Bounded attention: no logit reaches the bound, and directions are kept."""

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention.bounded import Bounded
from spectrope.attention.heads import HeadSizes, Stream
from spectrope.attention.multi_head import MultiHead
from spectrope.core.errors import ConfigError
from spectrope.encodings import RoPE
from spectrope.encodings.base import Encoding


def built(reach: float = 1.0, dim: int = 4) -> Bounded:
    heads = Bounded.Config(reach=reach).build(HeadSizes(d_model=8, n_heads=2, head_dim=dim, causal=True))
    assert isinstance(heads, Bounded)
    return heads.double()


def logits(heads: Bounded, x: torch.Tensor, encoding: Encoding) -> torch.Tensor:
    real = torch.ones(x.shape[:2], dtype=torch.bool)
    ctx, _ = heads.context(x, Stream(None, torch.arange(x.shape[1])[None], real, None, None))
    return encoding.logits(ctx)


@pytest.mark.parametrize("reach", [0.3, 1.0, 4.0])
def test_no_logit_reaches_the_bound_before_or_after_rotation(reach):
    heads = built(reach)
    x = 1e3 * torch.randn(2, 9, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for encoding in (Encoding(), RoPE(RoPE.Config(head_dim=4))):
        largest = logits(heads, x, encoding).abs().max()
        assert 0.5 * reach < largest <= reach * (1 + 1e-9)


def test_the_map_keeps_directions_and_the_values():
    heads, x = built(), torch.randn(1, 5, 8, dtype=torch.float64)
    plain = heads.projections
    assert isinstance(plain, MultiHead)
    for mine, theirs in (
        (heads.queries(x), plain.queries(x)),
        (heads.keys_values(x)[0], plain.keys_values(x)[0]),
    ):
        expected = theirs / (1 + theirs.square().sum(-1, keepdim=True) / 4**0.5).sqrt()
        assert_close(mine, expected)
    assert torch.equal(heads.keys_values(x)[1], plain.keys_values(x)[1])
    assert torch.equal(heads.value_bias(), plain.value_bias())


def test_gradients_are_those_of_the_map():
    heads, x = built(), torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda y: heads.queries(y).sum((0, 1)), x)


def test_half_precision_is_kept_and_squares_do_not_overflow():
    heads = built(1.0).to(torch.float16)
    q = heads._inside(torch.full((1, 1, 1, 4), 1e4, dtype=torch.float16))
    assert q.dtype is torch.float16
    assert_close(q.float().norm(), torch.tensor(2.0**0.5), rtol=1e-2, atol=0)


def test_a_bound_that_is_not_positive_is_refused():
    for reach in (0.0, float("inf")):
        with pytest.raises(ConfigError, match=r"Bounded\.Config\.reach must be positive and finite"):
            Bounded.Config(reach=reach)
