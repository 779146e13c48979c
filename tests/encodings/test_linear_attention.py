"""Linear attention, against its recurrence."""

import pytest
import torch
import torch.nn.functional as F
from tests.encodings.sampled import B, D, H, N, built, context, draw, gradients_hold
from torch.testing import assert_close
from transformers import MiniMaxConfig
from transformers.models.minimax import modeling_minimax

from spectrope.attention import attention
from spectrope.core.errors import ConfigError
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.decay import FoX
from spectrope.encodings.linear_attention import LinearAttention
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE


def test_softmax_of_its_logits_is_linear_attention_as_a_recurrence():
    encoding, ctx, v = built(LinearAttention.Config()), context(), draw(B, H, N, 3, seed=5)
    out = attention(ctx, v, encoding, causal=True)
    q, k = 1 + F.elu(ctx.q), 1 + F.elu(ctx.k)
    decay = 1 - 2.0 ** -(5 + torch.arange(H).double())
    state, total = torch.zeros(B, H, D, 3).double(), torch.zeros(B, H, D).double()
    for t in range(N):
        state = decay[:, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None]
        total = decay[:, None] * total + k[:, :, t]
        expected = torch.einsum("bhd,bhde->bhe", q[:, :, t], state)
        assert_close(out[:, :, t], expected / (q[:, :, t] * total).sum(-1, keepdim=True))


def test_a_gated_decay_is_a_recurrence_with_a_gate_of_each_token():
    encoding = built(LinearAttention.Config(decay=FoX.Config()))
    ctx, v = context(), draw(B, H, N, 3, seed=5)
    out = attention(ctx, v, encoding, causal=True)
    gate = encoding.terms[0].gate
    decay = torch.sigmoid(ctx.x_k @ gate.weight.T + gate.bias)
    q, k = 1 + F.elu(ctx.q), 1 + F.elu(ctx.k)
    state, total = torch.zeros(B, H, D, 3).double(), torch.zeros(B, H, D).double()
    for t in range(N):
        state = decay[:, t, :, None, None] * state + k[:, :, t, :, None] * v[:, :, t, None]
        total = decay[:, t, :, None] * total + k[:, :, t]
    expected = torch.einsum("bhd,bhde->bhe", q[:, :, -1], state) / (q[:, :, -1] * total).sum(-1, keepdim=True)
    assert_close(out[:, :, -1], expected)


def test_a_rotation_is_refused():
    with pytest.raises(
        ConfigError, match="decay must be an encoding that adds to logits and rotates nothing"
    ):
        LinearAttention.Config(decay=RoPE.Config()).build()


def test_without_a_decay_weights_depend_on_content_alone():
    encoding, ctx = built(LinearAttention.Config(decay=NoPE.Config())), context()
    product = torch.einsum("bhid,bhjd->bhij", 1 + F.elu(ctx.q), 1 + F.elu(ctx.k))
    assert_close(encoding.logits(ctx).exp(), product)


def test_gradients_are_those_of_finite_differences():
    assert gradients_hold(LinearAttention.Config())


@pytest.mark.parametrize("layer", [0, 1])
def test_decays_of_minimax_are_alibi_of_which_later_layers_have_less(layer):
    """Layer l of n multiplies the slopes by 1 - l / (n - 1)."""
    sizes = {"hidden_size": H * D, "num_attention_heads": H, "head_dim": D, "num_hidden_layers": 3}
    theirs = modeling_minimax.MiniMaxLightningAttention(MiniMaxConfig(**sizes, block_size=N), layer)
    _, _, weights = theirs.decay_factors(theirs.get_slope_rate())
    bias = ALiBi(n_heads=H).bias(context())[0]
    expected = ((1 - layer / 2) * bias).exp().tril()
    assert_close(weights.reshape(H, N, N).double(), expected.double(), atol=1e-4, rtol=1e-4)
