"""KERPLE, FIRE, Sandwich, Shaw, Transformer-XL, DeBERTa and TUPE against loops and independent code."""

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from transformers import DebertaConfig
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as wav2vec2_bert

from spectrope.attention import attention
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.core.random import initial_weights
from spectrope.encodings.base import ENCODINGS, Context, Scope
from spectrope.encodings.deberta import DeBERTa
from spectrope.encodings.fire import FIRE
from spectrope.encodings.kerple import KerpleLog, KerplePower
from spectrope.encodings.sandwich import Sandwich
from spectrope.encodings.shaw import Shaw
from spectrope.encodings.transformer_xl import TransformerXL
from spectrope.encodings.tupe import TUPE

N, H, D, C = 9, 2, 6, 10
SIZES = {"d_model": C, "n_heads": H, "head_dim": D, "max_length": 20}
HEADED = ("kerple_log", "kerple_power", "fire", "sandwich", "transformer_xl", "tupe", "deberta")
DRAWN = ("shaw", "transformer_xl", "deberta", "tupe")
PAIRS = [(i, j) for i in range(N) for j in range(N)]


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def context():
    pos = torch.arange(N)[None]
    return Context(draw(2, H, N, D), draw(2, H, N, D, seed=1), pos, pos)


def built(config):
    torch.manual_seed(0)
    encoding = config.fitted(**SIZES).build().double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return encoding


def numbers(encoding):
    return {name: parameter.detach().tolist() for name, parameter in encoding.named_parameters()}


@given(seed=st.integers(0, 999), lag=st.integers(-5000, 5000))
def test_kerple_is_its_two_kernels_within_range(seed, lag):
    for cls, kernel in (
        (KerpleLog, lambda r, s, n: -r * math.log(1 + s * n)),
        (KerplePower, lambda r, s, n: -r * n**s),
    ):
        with initial_weights(seed):
            kerple = cls.Config(n_heads=3).build().double()
        r, s = kerple.amplitude.clamp(min=0.01).tolist(), kerple.shape.clamp(min=0.01, max=2).tolist()
        expected = [kernel(r[h], s[h], abs(lag)) for h in range(3)]
        assert_close(kerple.lag_bias(torch.tensor(lag)).tolist(), expected, rtol=1e-6, atol=1e-6)


@given(seed=st.integers(0, 999), positions=st.lists(st.integers(0, 300), min_size=2, max_size=7, unique=True))
def test_kerple_is_conditionally_positive_definite(seed, positions):
    weights = draw(len(positions), seed=seed)
    weights -= weights.mean()  # the condition: weights that sum to zero
    pos = torch.tensor(positions, dtype=torch.float64)
    for cls in (KerpleLog, KerplePower):
        with initial_weights(seed):
            kerple = cls.Config(n_heads=4).build().double()
        bias = kerple.lag_bias(pos[:, None] - pos).detach()
        forms = torch.einsum("i,ijh,j->h", weights, bias, weights)
        assert float(forms.min()) > -1e-9 * float(bias.abs().max())


@pytest.mark.parametrize("cls", [KerpleLog, KerplePower])
def test_kerple_numbers_out_of_range_still_learn(cls):
    kerple = cls.Config(n_heads=2).build()
    with torch.no_grad():
        kerple.amplitude.fill_(-1.0)
        kerple.shape.fill_(5.0)
    kerple.lag_bias(torch.tensor([7])).sum().backward()
    assert kerple.amplitude.grad.abs().min() > 0
    assert kerple.shape.grad.abs().min() > 0


def test_fire_is_a_network_of_the_interpolated_lag():
    fire, far = built(FIRE.Config(threshold=4.0)), context().q_pos * 3
    ctx = context()
    bias = fire.bias(Context(ctx.q, ctx.k, far, far))
    c, limit = fire.compression.item(), abs(fire.stretch.item() * 4.0)
    for i, j in PAIRS:
        ratio = math.log1p(abs(c * 3 * (i - j))) / (math.log1p(abs(c * max(3 * i, limit))) + 1e-6)
        hidden = (fire.network[0].weight[:, 0] * ratio + fire.network[0].bias).relu()
        assert_close(bias[0, :, i, j], fire.network[2].weight @ hidden + fire.network[2].bias)


def test_fire_tells_far_lags_apart_under_autocast():
    fire, pos = built(FIRE.Config()).float(), torch.arange(512)[None]
    far = torch.zeros(1, H, 512, D)
    with torch.autocast("cpu", torch.bfloat16):
        last = fire.bias(Context(far, far, pos, pos))[0, 0, -1]
    assert len(last.unique()) == 512


def test_sandwich_is_nemos():
    bias = Sandwich.Config(n_heads=4, width=16).build().lag_bias(torch.arange(30.0, dtype=torch.float64))
    inv_freq = 1.0 / (10000 ** (2 * torch.arange(1, 9, dtype=torch.float64) / 16))
    cosines = (torch.arange(30)[:, None] * inv_freq).cos().sum(-1)
    for head in range(4):
        assert_close(bias[:, head], (cosines - 8) / ((head + 1) * 8 / 4))


def test_shaw_adds_to_keys_and_values():
    shaw, ctx, v = built(Shaw.Config(max_distance=3)), context(), draw(2, H, N, D, seed=2)
    out = attention(ctx, v, shaw, causal=False)
    logits, expected = torch.zeros(2, H, N, N).double(), torch.zeros_like(out)
    for i, j in PAIRS:
        row = min(max(i - j, -3), 3) + 3
        logits[:, :, i, j] = (ctx.q[:, :, i] * (ctx.k[:, :, j] + shaw.keys[row])).sum(-1) / D**0.5
    pattern = logits.softmax(-1)
    for i, j in PAIRS:
        row = min(max(i - j, -3), 3) + 3
        expected[:, :, i] += pattern[:, :, i, j, None] * (v[:, :, j] + shaw.values[row])
    assert_close(shaw.logits(ctx), logits)
    assert_close(out, expected)


def test_shaws_keys_are_transformers():
    shaw, ctx = built(Shaw.Config(max_distance=3, values=False)), context()
    table = torch.nn.Embedding.from_pretrained(shaw.keys.detach().flip(0))  # theirs counts from query to key
    theirs = SimpleNamespace(
        distance_embedding=table,
        left_max_position_embeddings=3,
        right_max_position_embeddings=3,
        scaling=D**-0.5,
    )
    _, expected = wav2vec2_bert._apply_relative_key_position_encoding(theirs, ctx.q, ctx.k)
    assert_close(shaw.bias(ctx), expected)


def test_shaw_without_values_runs_on_the_fast_kernel():
    shaw, ctx, v = built(Shaw.Config(values=False)), context(), draw(2, H, N, D, seed=2)
    expected = attention(ctx, v, shaw, causal=True)
    assert_close(attention(ctx, v, shaw, causal=True, impl="explicit"), expected)
    with pytest.raises(UnsupportedError, match="GENERAL"):
        attention(ctx, v, built(Shaw.Config()), causal=True, impl="explicit")


def test_transformer_xl_scores_lags_by_sinusoids():
    xl, ctx = built(TransformerXL.Config()), context()
    logits, expected = xl.logits(ctx), torch.zeros(2, H, N, N).double()
    waves = 10000.0 ** -(torch.arange(0, C, 2).double() / C)
    for i, j in PAIRS:
        r = torch.cat([((i - j) * waves).sin(), ((i - j) * waves).cos()])
        for h in range(H):
            q, k = ctx.q[:, h, i], ctx.k[:, h, j]
            content = ((q + xl.content_query[h, 0]) * k).sum(-1)
            lag = (q + xl.lag_query[h, 0]) @ (xl.projection[h] @ r)
            expected[:, h, i, j] = (content + lag) / D**0.5
    assert_close(logits, expected)


def test_transformer_xl_is_transformers():
    xl, ctx = built(TransformerXL.Config()), context()
    waves = 10000.0 ** -(torch.arange(0, C, 2).double() / C)
    angles = torch.arange(N - 1, -N, -1)[:, None] * waves  # of lags, the largest first
    linear = torch.nn.Linear(C, H * D, bias=False).double()
    linear.weight = torch.nn.Parameter(xl.projection.detach().flatten(0, 1))
    theirs = SimpleNamespace(
        linear_pos=linear,
        head_size=D,
        scaling=D**-0.5,
        pos_bias_u=xl.content_query[:, 0],
        pos_bias_v=xl.lag_query[:, 0],
    )
    vectors = torch.cat([angles.sin(), angles.cos()], -1)[None]
    query, bias = wav2vec2_bert._apply_relative_position_encoding(theirs, ctx.q, ctx.k, vectors)
    assert_close(xl.logits(ctx), query @ ctx.k.mT * D**-0.5 + bias)


def test_deberta_is_transformers():
    config = DebertaConfig(
        hidden_size=H * D,
        num_attention_heads=H,
        relative_attention=True,
        max_relative_positions=N,
        pos_att_type=["c2p", "p2c"],
    )
    theirs = DisentangledSelfAttention(config).double()
    ours = DeBERTa.Config(d_model=H * D, n_heads=H, head_dim=D, max_distance=N).build().double()
    ours.load_state_dict(
        {
            "table": draw(2 * N, H * D),
            "keys.weight": theirs.pos_proj.weight,
            "queries.weight": theirs.pos_q_proj.weight,
            "queries.bias": theirs.pos_q_proj.bias,
        }
    )
    ctx = context()
    relative = ctx.lag
    q = ctx.q / (3 * D) ** 0.5
    bias = theirs.disentangled_att_bias(q, ctx.k, relative, ours.table.detach(), 3)
    assert_close(ours.logits(ctx), q @ ctx.k.transpose(-1, -2) + bias)


def test_tupe_scores_positions_by_projections_of_their_own():
    tupe, ctx = built(TUPE.Config()), context()
    vectors = torch.nn.functional.layer_norm(tupe.table[:N], (C,), tupe.norm.weight, tupe.norm.bias)
    q, k = (f(vectors).view(N, H, D).transpose(0, 1) for f in (tupe.queries, tupe.keys))
    expected = (ctx.q @ ctx.k.transpose(-1, -2) + q @ k.transpose(-1, -2)) / (2 * D) ** 0.5
    assert_close(tupe.logits(ctx), expected)
    with pytest.raises(UnsupportedError, match="TUPE has a table of 20 rows"):
        tupe.logits(Context(ctx.q, ctx.k, ctx.q_pos + 15, ctx.k_pos))


def test_tupe_alone_is_shared_by_all_layers():
    scopes = {name: ENCODINGS.config(name)().build().scope for name in ("tupe", "shaw", "deberta", "fire")}
    assert scopes.pop("tupe") is Scope.MODEL
    assert set(scopes.values()) == {Scope.LAYER}


@pytest.mark.parametrize(
    ("config", "field", "value", "message"),
    [
        *(
            (ENCODINGS.config(k), "n_heads", 0, "n_heads must be at least 1")
            for k in ("kerple_log", "kerple_power")
        ),
        *((ENCODINGS.config(kind), "n_heads", 0, "n_heads must be at least 1") for kind in HEADED),
        *((ENCODINGS.config(kind), "std", -1.0, "std must be at least 0") for kind in DRAWN),
        (DeBERTa.Config, "max_distance", 0, "max_distance must be at least 1"),
        (FIRE.Config, "width", 0, "width must be at least 1"),
        (FIRE.Config, "compression", 0.0, "compression must be positive"),
        (FIRE.Config, "threshold", 0.0, "threshold must be positive"),
        (Sandwich.Config, "width", 7, "width must be even and positive"),
        (Sandwich.Config, "base", 0.0, "base must be positive"),
        (Shaw.Config, "head_dim", 0, "head_dim must be at least 1"),
        (Shaw.Config, "max_distance", 0, "max_distance must be at least 1"),
        (TransformerXL.Config, "d_model", 7, "d_model must be even and positive"),
        (TransformerXL.Config, "head_dim", 0, "head_dim must be at least 1"),
        (TransformerXL.Config, "base", 0.0, "base must be positive"),
    ],
)
def test_impossible_settings_are_refused(config, field, value, message):
    with pytest.raises(ConfigError, match=message):
        config(**{field: value})
