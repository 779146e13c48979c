"""Encodings that look at tokens, against loops over their definitions."""

import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention import attention
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.encodings.base import ENCODINGS, Context
from spectrope.encodings.cope import CoPE
from spectrope.encodings.decay import CABLE, FoX
from spectrope.encodings.grape_ap import GRAPEPath
from spectrope.encodings.path import PaTH
from spectrope.encodings.token_rotary import CARoPE

B, N, H, D, C = 2, 8, 2, 6, 10
SIZES = {"d_model": C, "n_heads": H, "head_dim": D}


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context(mask=None):
    pos, x = torch.arange(N)[None], draw(B, N, C, seed=2)
    return Context(draw(B, H, N, D), draw(B, H, N, D, seed=1), pos, pos, x, x, mask)


def built(config):
    return config.fitted(**SIZES).build().double()


def test_fox_sums_the_log_gates_in_between():
    fox, ctx = built(FoX.Config()), context()
    bias = fox.bias(ctx)
    gates = torch.sigmoid(ctx.x_k @ fox.gate.weight.T + fox.gate.bias)
    for i in range(N):
        for j in range(i + 1):
            expected = gates[:, j + 1 : i + 1].log().sum(1)
            assert_close(bias[:, :, i, j], expected)
            assert_close(bias[:, :, j, i], expected)


def test_cable_is_fox_with_its_gate_turned_around():
    cable, fox, ctx = built(CABLE.Config()), built(FoX.Config()), context()
    with torch.no_grad():
        fox.gate.weight.copy_(-cable.gate.weight)
        fox.gate.bias.copy_(-cable.gate.bias)
    assert_close(cable.bias(ctx), fox.bias(ctx))
    steps = torch.nn.functional.softplus(ctx.x_k @ cable.gate.weight.T + cable.gate.bias)
    assert_close(cable.bias(ctx)[:, :, 5, 2], -steps[:, 3:6].sum(1))


def test_cable_starts_near_a_slope_of_ln_2():
    cable, ctx = built(CABLE.Config(std=0.0)), context()
    assert_close(cable.bias(ctx), -math.log(2) * ctx.lag.abs().expand(B, H, N, N).double())


def test_cope_counts_gates_from_key_to_query():
    cope, ctx = built(CoPE.Config(n_positions=4)), context()
    with torch.no_grad():
        cope.table.copy_(draw(4, D, seed=3))
    bias = cope.bias(ctx)
    for b, h, i, j in [(0, 0, 7, 7), (0, 1, 7, 2), (1, 0, 5, 0), (1, 1, 0, 0), (0, 0, 2, 5)]:
        gates = [torch.sigmoid(ctx.q[b, h, i] @ ctx.k[b, h, k] / D**0.5) for k in range(j, i + 1)]
        count = min(float(sum(gates, torch.tensor(0.0)).detach()), 3.0)
        below, above = math.floor(count), math.ceil(count)
        row = cope.table[below] * (1 - count + below) + cope.table[above] * (count - below)
        assert_close(bias[b, h, i, j], ctx.q[b, h, i] @ row / D**0.5)


def test_cope_counts_in_float32_under_autocast():
    cope, many = built(CoPE.Config(n_positions=128)).float(), 128
    with torch.no_grad():
        cope.table.copy_(draw(many, D, seed=3))
    pos = torch.arange(many)[None]
    ctx = Context(draw(B, H, many, D).bfloat16(), draw(B, H, many, D, seed=1).bfloat16(), pos, pos)
    exact = cope.bias(ctx)
    with torch.autocast("cpu", torch.bfloat16):
        low = cope.bias(ctx)
    assert low.dtype is torch.float32
    assert torch.equal(low, exact)


def test_cope_does_not_count_what_is_masked():
    cope = built(CoPE.Config(n_positions=6))
    with torch.no_grad():
        cope.table.copy_(draw(6, D, seed=3))
    real = (torch.arange(N) != 4)[None, None, None, :]
    ctx, masked = context(), context(mask=real)
    gone = [v[..., torch.arange(N) != 4, :] for v in (ctx.k,)]
    short = Context(ctx.q[:, :, 7:], gone[0], ctx.q_pos[:, 7:], ctx.k_pos[:, torch.arange(N) != 4])
    assert_close(cope.bias(masked)[:, :, 7:][..., torch.arange(N) != 4], cope.bias(short))


def test_path_is_a_product_of_householder_transformations():
    path, ctx = built(PaTH.Config(rank=3)), context()
    logits = path.logits(ctx)
    w, strength = path.reflections(ctx.x_k)
    assert_close(w.norm(dim=-1), torch.ones(B, H, N).double())
    identity = torch.eye(D).double()
    for b, h in [(0, 0), (1, 1)]:
        for i in range(N):
            carried = identity
            for j in range(i, -1, -1):
                assert_close(logits[b, h, i, j], ctx.q[b, h, i] @ carried @ ctx.k[b, h, j] / D**0.5)
                carried = carried @ (identity - strength[b, h, j] * torch.outer(w[b, h, j], w[b, h, j]))
    assert not logits.triu(1).any()


def test_path_makes_its_vectors_from_the_last_three_tokens():
    path, ctx = built(PaTH.Config()), context()
    changed = ctx.x_k.clone()
    changed[:, 3] += 1
    moved = (path.reflections(changed)[0] - path.reflections(ctx.x_k)[0]).abs().amax((0, 1, 3)) > 0
    assert moved.tolist() == [False, False, False, True, True, True, False, False]


@pytest.mark.parametrize("encoding", [FoX, CABLE, PaTH, CARoPE, GRAPEPath])
def test_hidden_states_are_needed(encoding):
    ctx = context()
    blind = Context(ctx.q, ctx.k, ctx.q_pos, ctx.k_pos)
    with pytest.raises(UnsupportedError, match=f"{encoding.__name__} needs hidden states"):
        built(encoding.Config()).logits(blind)


def test_path_runs_in_the_reference_and_is_refused_by_the_fast_kernel():
    path, ctx, v = built(PaTH.Config()), context(), draw(B, H, N, D, seed=4)
    out = attention(ctx, v, path, causal=True)
    pattern = path.logits(ctx).masked_fill(ctx.lag[0] < 0, -torch.inf).softmax(-1)
    assert_close(out, pattern @ v)
    with pytest.raises(UnsupportedError, match="cannot compute form GENERAL"):
        attention(ctx, v, path, causal=True, impl="explicit")


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        *((kind, "d_model", 0) for kind in ("fox", "cable", "path")),
        *((kind, "n_heads", 0) for kind in ("fox", "cable", "path")),
        *(("path", field, 0) for field in ("head_dim", "rank", "kernel")),
        *(("cope", field, 0) for field in ("head_dim", "n_positions")),
        ("cable", "std", -1.0),
    ],
)
def test_impossible_settings_are_refused(kind, field, value):
    with pytest.raises(ConfigError, match=f"{field} must be at least"):
        ENCODINGS.config(kind)(**{field: value})
