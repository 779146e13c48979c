"""Latent attention: against DeepSeek's as transformers has it, by its formula, and inside a decoder."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from transformers import DeepseekV3Config
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

from spectrope.attention.heads import ATTENTIONS, HeadSizes, Stream
from spectrope.attention.latent import EPSILON, Latent
from spectrope.attention.multi_head import MultiHead
from spectrope.core.config import config_hash, from_dict, to_dict
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.core.noise import Noise
from spectrope.encodings.alibi import ALiBi
from spectrope.encodings.base import ENCODINGS, Context, Encoding, Form
from spectrope.encodings.blend import Blend
from spectrope.encodings.nope import NoPE
from spectrope.encodings.rope import RoPE
from spectrope.encodings.t5 import T5
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch

CPU = torch.device("cpu")
SIZES = HeadSizes(d_model=24, n_heads=3, head_dim=8, causal=True)
MLA = Latent.Config(latent=10, query_latent=14, rotary_dim=6)
DECODER = DecoderConfig(
    vocabulary=20,
    n_labels=7,
    max_length=12,
    d_model=16,
    n_layers=2,
    n_heads=4,
    head_dim=4,
    d_ff=24,
    attention=Latent.Config(latent=6, query_latent=5, rotary_dim=4),
    encoding=RoPE.Config(),
)
FACTORING = [n for n in ENCODINGS if ENCODINGS.config(n)().build().form is not Form.GENERAL]


def latent(config: Latent.Config = MLA, dtype: torch.dtype = torch.float64) -> Latent:
    torch.manual_seed(0)
    heads = Latent(config, SIZES).to(dtype)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, dtype=dtype))
    return heads


def hidden(n: int = 2, t: int = 9, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(n, t, SIZES.d_model, generator=torch.Generator().manual_seed(1), dtype=dtype)


def stream(x: torch.Tensor, memory: torch.Tensor | None = None) -> Stream:
    n, t, _ = x.shape
    return Stream(memory, torch.arange(t)[None], torch.ones(n, t, dtype=torch.bool), None, None)


def encoded(config: Latent.Config = MLA, inner: Encoding | None = None) -> Encoding:
    inner = RoPE.Config(head_dim=config.rotary_dim).build() if inner is None else inner
    return config.encode([inner])[0]


def theirs(heads: Latent, config: Latent.Config) -> deepseek.DeepseekV3Attention:
    """DeepSeek's attention with the weights of ours; rows and columns are laid out head by head there."""
    h, k, r, z = SIZES.n_heads, SIZES.head_dim, config.rotary_dim, config.latent
    settings = DeepseekV3Config(
        hidden_size=SIZES.d_model,
        num_attention_heads=h,
        num_key_value_heads=h,
        q_lora_rank=config.query_latent,
        kv_lora_rank=z,
        qk_nope_head_dim=k,
        qk_rope_head_dim=r,
        v_head_dim=k,
        attention_bias=False,
    )
    settings._attn_implementation = "sdpa"  # the eager one takes its softmax in float32
    attention = deepseek.DeepseekV3Attention(settings, 0).to(heads.rotary_key.weight.dtype)

    def by_head(weight: torch.Tensor, first: int, second: int) -> torch.Tensor:
        parts = weight[: h * first].unflatten(0, (h, first)), weight[h * first :].unflatten(0, (h, second))
        return torch.cat(parts, 1).flatten(0, 1)

    down = heads.key_value_down[0].weight
    query = by_head(heads.query_up.weight, k, r)
    weights = {
        "kv_a_proj_with_mqa.weight": torch.cat([down, heads.rotary_key.weight]),
        "kv_a_layernorm.weight": heads.key_value_down[1].weight,
        "kv_b_proj.weight": by_head(heads.key_value_up.weight, k, k),
        "o_proj.weight": torch.eye(h * k, SIZES.d_model).to(down),
    }
    if config.query_latent is None:
        weights["q_proj.weight"] = query
    else:
        weights["q_a_proj.weight"] = heads.query_down[0].weight
        weights["q_a_layernorm.weight"] = heads.query_down[1].weight
        weights["q_b_proj.weight"] = query
    attention.load_state_dict(weights)
    return attention


def in_float64(attention: deepseek.DeepseekV3Attention) -> deepseek.DeepseekV3Attention:
    """Their norm computes in float32 whatever its input; torch's keeps float64."""
    for name in ("q_a_layernorm", "kv_a_layernorm"):
        if getattr(attention, name) is not None:
            weight = getattr(attention, name).weight
            norm = nn.RMSNorm(len(weight), eps=EPSILON).double()
            norm.load_state_dict({"weight": weight})
            setattr(attention, name, norm)
    return attention


def run_theirs(attention: deepseek.DeepseekV3Attention, x: torch.Tensor, rotary_dim: int) -> torch.Tensor:
    t = x.shape[1]
    frequencies = 10000.0 ** -(torch.arange(0, rotary_dim, 2, dtype=torch.float64) / rotary_dim)
    angles = torch.outer(torch.arange(t, dtype=torch.float64), frequencies).repeat(1, 2)[None]
    mask = torch.full((t, t), -torch.inf, dtype=x.dtype).triu(1)[None, None]
    out, _ = attention(x, (angles.cos().to(x.dtype), angles.sin().to(x.dtype)), mask)
    return out


@pytest.mark.parametrize("query_latent", [14, None])
@torch.no_grad()
def test_equals_deepseeks_attention_on_copied_weights(query_latent):
    config = replace(MLA, query_latent=query_latent)
    heads, x = latent(config), hidden()
    ours = heads(x, stream(x), encoded(config), "reference").transpose(1, 2).flatten(2)
    expected = run_theirs(in_float64(theirs(heads, config)), x, config.rotary_dim)
    assert_close(ours, expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_its_norms_are_deepseeks():
    heads, x = (
        latent(dtype=torch.float32),
        1e-3 * hidden(dtype=torch.float32),
    )  # small, so that epsilon counts
    ours = heads(x, stream(x), encoded(), "reference").transpose(1, 2).flatten(2)
    assert_close(ours, run_theirs(theirs(heads, MLA), x, MLA.rotary_dim), rtol=1e-5, atol=1e-6)


def test_logits_are_contents_and_rotary_parts_over_the_root_of_both_widths():
    heads, x, i, j = latent(), hidden(1), 7, 2
    ctx, _ = heads.context(x, stream(x))
    z, c = heads.query_down(x[0, i]), heads.key_value_down(x[0, j])
    q, k = heads.query_up(z), heads.key_value_up(c)
    for head in range(3):
        content = q[8 * head :][:8] @ k[8 * head :][:8]
        turned = q[24 + 6 * head :][:6].view(3, 2), heads.rotary_key(x[0, j]).view(3, 2)
        a, b = (torch.view_as_complex(part.contiguous()) for part in turned)
        angles = (i - j) * 10000.0 ** -(torch.arange(3, dtype=torch.float64) / 3)
        rotary = (a * b.conj() * torch.polar(torch.ones(3).double(), angles)).real.sum()
        assert_close(encoded().logits(ctx)[0, head, i, j], (content + rotary) / 14**0.5)


def test_rotary_keys_are_one_for_all_heads_and_queries_only_on_request():
    x = hidden()
    for rotary_queries, shared in (("per_head", False), ("shared", True)):
        ctx, _ = latent(replace(MLA, rotary_queries=rotary_queries)).context(x, stream(x))
        assert torch.equal(ctx.k[:, 0, :, 8:], ctx.k[:, 2, :, 8:])
        assert torch.equal(ctx.q[:, 0, :, 8:], ctx.q[:, 2, :, 8:]) == shared
        assert not torch.allclose(ctx.q[:, 0, :, :8], ctx.q[:, 2, :, :8])


def test_gradients_are_those_of_finite_differences():
    heads, x = latent(), hidden(1, 4).requires_grad_()
    parameters = list(heads.parameters())

    def outputs(x, *_):
        return heads(x, stream(x), encoded(), "explicit")

    torch.autograd.gradcheck(outputs, (x, *parameters), fast_mode=True)


def test_implementations_agree():
    heads, x = latent(), hidden()
    expected = heads(x, stream(x), encoded(), "reference")
    for impl in ("explicit", "fused", "fastest"):
        assert_close(heads(x, stream(x), encoded(), impl), expected)


def test_keys_and_values_may_come_from_elsewhere():
    heads, x, memory = latent(), hidden(), hidden().flip(0)
    apart, _ = heads.context(x, stream(x, memory))
    assert torch.equal(apart.q, heads.context(x, stream(x))[0].q)
    assert torch.equal(apart.k, heads.context(memory, stream(memory))[0].k)


def test_a_bias_of_content_weighs_as_much_as_the_products():
    """Blend adds alpha times the rotated product, here of the rotary parts alone, to the plain one of all."""
    heads, x = latent(), hidden()
    blend = Blend.Config(head_dim=6, n_heads=3, alpha=0.7).build().double()
    ctx, _ = heads.context(x, stream(x))
    plain, turned = (
        encoded(inner=e).logits(ctx) for e in (NoPE.Config().build(), RoPE(RoPE.Config(head_dim=6)))
    )
    contents = ctx.q[..., :8] @ ctx.k[..., :8].mT * ctx.scale
    assert_close(encoded(inner=blend).logits(ctx), plain + 0.7 * (turned - contents))


def test_a_bias_of_the_lag_is_added_as_it_is():
    heads, x = latent(), hidden()
    alibi = ALiBi.Config(n_heads=3).build()
    ctx, _ = heads.context(x, stream(x))
    plain = encoded(inner=NoPE.Config().build()).logits(ctx)
    wrapped = encoded(inner=alibi)
    assert_close(wrapped.logits(ctx) - plain, alibi.bias(ctx).double().expand_as(plain))
    assert torch.equal(wrapped.lag_bias(torch.arange(5)), alibi.lag_bias(torch.arange(5)))


@pytest.mark.parametrize("name", ["path", "shaw"])
def test_encodings_that_compute_logits_as_a_whole_are_refused(name):
    with pytest.raises(UnsupportedError, match=r"'mla' needs an encoding that rotates, or adds .* GENERAL"):
        replace(DECODER, encoding=ENCODINGS.config(name)())


def test_a_check_of_the_encoding_draws_nothing():
    state = torch.get_rng_state()
    replace(DECODER, encoding=T5.Config())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"latent": 0}, "latent must be at least 1; got 0"),
        ({"rotary_dim": 0}, "rotary_dim must be at least 1; got 0"),
        ({"query_latent": 0}, "query_latent must be at least 1, or None; got 0"),
    ],
)
def test_impossible_widths_get_one_line(fields, message):
    with pytest.raises(ConfigError, match=message):
        Latent.Config(**fields)


# In a decoder


def batch(n: int = 6, width: int = 12) -> Batch:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, width - 2, (n,), generator=generator)
    inputs = torch.randint(1, 20, (n, width), generator=generator)
    inputs[torch.arange(width) >= lengths[:, None]] = 0
    return Batch(inputs, torch.randint(0, 7, (n,), generator=generator), lengths)


def decoder(config: DecoderConfig = DECODER) -> Decoder:
    return Decoder(config).double()


@pytest.mark.parametrize("name", FACTORING)
def test_every_factoring_encoding_trains_beside_it(name):
    model = decoder(replace(DECODER, encoding=ENCODINGS.config(name)()))
    model(batch(), Noise(0.1, 0, CPU)).square().sum().backward()
    assert not [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]


@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "learned", "cope", "tupe"])
@pytest.mark.parametrize("causal", [True, False])
def test_padding_is_inert_and_a_causal_layer_sees_the_past_alone(name, causal):
    model, data = decoder(replace(DECODER, encoding=ENCODINGS.config(name)(), causal=causal)), batch()
    assert_close(model(data), model(data.trimmed()))
    full = replace(data, lengths=torch.full_like(data.lengths, 12))
    changed = full.inputs.clone()
    changed[:, -1] = 7
    outs = [model.apply_block(0, *model.begin(replace(full, inputs=i))) for i in (full.inputs, changed)]
    assert torch.allclose(outs[0][:, :-1], outs[1][:, :-1]) == causal


def test_what_layers_share_stays_shared():
    shared = decoder(replace(DECODER, encoding=T5.Config()))
    layered = decoder(replace(DECODER, encoding=ENCODINGS.config("relative")()))
    assert shared.encoding_of(0) is shared.encoding_of(1)
    assert layered.encoding_of(0) is not layered.encoding_of(1)


def test_configurations_round_trip_and_differ():
    others = [
        replace(DECODER, attention=replace(DECODER.attention, **change))
        for change in (
            {},
            {"latent": 7},
            {"query_latent": None},
            {"rotary_dim": 6},
            {"rotary_queries": "shared"},
            {"latent_norm": False},
        )
    ] + [replace(DECODER, feed_forward="gelu"), replace(DECODER, attention=MultiHead.Config())]
    for config in others:
        assert from_dict(DecoderConfig, to_dict(config)) == config
    assert len({config_hash(config) for config in others}) == len(others)
    assert from_dict(DecoderConfig, {"attention": "mla"}).attention == Latent.Config()


def test_the_encoding_takes_the_rotary_width():
    assert DECODER.encoding == RoPE.Config(head_dim=4)
    assert replace(DECODER, attention=replace(DECODER.attention, rotary_dim=6)).encoding.head_dim == 6


def test_configurations_from_before_it_keep_their_text_and_hash():
    config = DecoderConfig()
    assert not config.added_later & to_dict(config).keys()
    assert config_hash(config) == "cfc53e606203"


def test_the_other_feed_forward_is_gelu():
    model = decoder(replace(DECODER, feed_forward="gelu"))
    block, x = model.blocks[0], torch.randn(2, 5, 16, dtype=torch.float64)
    hidden_units = nn.functional.gelu(block.up(block.ff_norm(x)))
    assert_close(block.feed_forward(x, None), x + block.down(hidden_units))
    noise = Noise(0.5, 4, CPU)
    change = block.down(noise.drop(hidden_units))
    assert_close(block.feed_forward(x, Noise(0.5, 4, CPU)), x + noise.drop(change))


def test_without_norms_latents_are_their_projections():
    heads, x = latent(replace(MLA, latent_norm=False)), hidden()
    assert_close(heads.key_value_down(x), x @ heads.key_value_down[0].weight.T)
    assert_close(heads.query_down(x), x @ heads.query_down[0].weight.T)
    assert len(heads.key_value_down) == 1


def test_half_the_width_of_the_stream_is_the_papers_latent():
    assert Latent.Config.for_width(256) == Latent.Config(latent=128, query_latent=128)
    assert MultiHead.Config.for_width(256) == MultiHead.Config()
    assert sorted(ATTENTIONS) == ["bounded", "mla", "multi_head", "shifted_windows"]


def test_a_context_of_some_heads_keeps_the_scale_of_both_parts():
    heads, x = latent(), hidden()
    ctx, _ = heads.context(x, stream(x))
    assert isinstance(ctx, Context)
    assert ctx.of_heads(slice(1, 3)).scale == 14**-0.5
