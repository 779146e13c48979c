"""Differential attention, against a loop over its definition and against DiffLlama."""

import math

import pytest
import torch
from tests.encodings.sampled import B, D, H, N, built, context, draw, gradients_hold
from torch.testing import assert_close
from transformers import DiffLlamaConfig
from transformers.models.diffllama import modeling_diffllama

from spectrope.attention import attention
from spectrope.core.errors import ConfigError
from spectrope.encodings.base import Context
from spectrope.encodings.differential import Differential
from spectrope.encodings.rope import RoPE
from spectrope.encodings.shaw import Shaw


def test_pairs_of_heads_in_a_loop():
    encoding = built(Differential.Config(inner=RoPE.Config(), share=0.3))
    ctx, v = context(), draw(B, H, N, 3, seed=5)
    out = attention(ctx, v, encoding, causal=True)
    (q1, q2), (k1, k2) = encoding.vectors.detach()
    share = math.exp(q1 @ k1) - math.exp(q2 @ k2) + 0.3
    rope = RoPE(head_dim=D)
    mask = torch.full((N, N), -math.inf).triu(1)
    patterns = (rope.logits(ctx) + mask).softmax(-1)
    for g in range(H // 2):
        pattern = patterns[:, 2 * g] - share * patterns[:, 2 * g + 1]
        read = pattern @ torch.cat([v[:, 2 * g], v[:, 2 * g + 1]], -1)
        read = read / (read.square().mean(-1, keepdim=True) + 1e-5).sqrt() * 0.7
        assert_close(out[:, 2 * g], read[..., :3])
        assert_close(out[:, 2 * g + 1], read[..., 3:])


def test_a_layer_is_that_of_diffllama():
    """Head g of the first half is paired with head g of the second there, neighbours here."""
    sizes = {"hidden_size": H * D, "num_attention_heads": H, "num_hidden_layers": 4}
    config = DiffLlamaConfig(**sizes, rms_norm_eps=1e-5, attn_implementation="eager")
    torch.manual_seed(0)
    theirs = modeling_diffllama.DiffLlamaAttention(config, layer_idx=3).eval().double()
    theirs.o_proj.weight.data.copy_(torch.eye(H * D))
    x, pos = draw(1, N, H * D), torch.arange(N)[None]
    waves = modeling_diffllama.DiffLlamaRotaryEmbedding(config)(x, pos)
    expected, _ = theirs(x, waves, torch.full((1, 1, N, N), -math.inf).triu(1))
    rope = RoPE.Config(head_dim=D, pairs="halves")
    ours = Differential(n_heads=H, head_dim=D, share=theirs.lambda_init, inner=rope).double()
    first, second = (theirs.lambda_q1, theirs.lambda_k1), (theirs.lambda_q2, theirs.lambda_k2)
    with torch.no_grad():
        ours.vectors.copy_(torch.stack([torch.stack(pair) for pair in zip(first, second, strict=True)]))
    q, k, v = (
        project(x).unflatten(-1, (2, H // 2, D)).transpose(2, 3).flatten(2, 3).transpose(1, 2)
        for project in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    )
    out = attention(Context(q, k, pos, pos), v, ours, causal=True)
    assert_close(out.transpose(1, 2).flatten(2), expected, atol=1e-6, rtol=1e-5)


def test_layers_have_shares_of_their_own_and_share_what_the_inner_one_shares():
    first, second = Differential.Config(n_heads=H, head_dim=D).build_layers(2)
    assert first.terms[0] is second.terms[0]
    assert not torch.equal(first.vectors, second.vectors)


def test_what_cannot_be_paired_is_refused():
    with pytest.raises(ConfigError, match="n_heads must be even"):
        Differential.Config(n_heads=5)
    with pytest.raises(ConfigError, match="inner must be an encoding that leaves values alone"):
        Differential.Config(inner=Shaw.Config()).build()


def test_gradients_are_those_of_finite_differences():
    assert gradients_hold(Differential.Config())
