"""Certified attention in models of transformers: outputs within the certificate, exact heads named."""

import sys

import pytest
import torch
import transformers
from tests.checkpoints.adapters.trained import BUILDS, compared, trained
from torch.testing import assert_close

from spectrope.checkpoints.adapters import attention as adapter
from spectrope.checkpoints.adapters.attention import register_attention
from spectrope.core.errors import UnsupportedError
from spectrope.fast.costs import DEFAULT, CostModel
from spectrope.fast.planning import plan

SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, intermediate_size=48, **options)
    return transformers.LlamaForCausalLM(config).eval()


def neox():
    torch.manual_seed(0)
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SIZES, intermediate_size=48)).eval()


def gemma2(softcap=1.0):
    torch.manual_seed(0)
    config = transformers.Gemma2Config(
        **SIZES,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        initializer_range=0.5,
        attn_logit_softcapping=softcap,
    )
    return transformers.Gemma2ForCausalLM(config).eval()


def gpt_oss():
    torch.manual_seed(0)
    config = transformers.GptOssConfig(
        **SIZES,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=16,
        num_local_experts=2,
        num_experts_per_tok=1,
    )
    model = transformers.GptOssForCausalLM(config).eval()
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, mean=2.0)
    return model


def logits(model, name, **inputs):
    model.config._attn_implementation = name
    ids = torch.randint(5, 50, (2, 70), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(ids, **inputs).logits


@pytest.fixture
def always_fast(monkeypatch):
    """Plans that take every certified head, however short the sequence."""
    monkeypatch.setattr(adapter, "plan", lambda *args, **named: plan(*args, **named).with_all_fast())


@pytest.mark.parametrize("build", [llama, neox])
@pytest.mark.usefixtures("always_fast")
def test_layers_run_within_their_certificates(build):
    plans = []
    name = register_attention(1e-3, lambda module, made: plans.append((module.layer_idx, made)))
    model = build()
    out, truth = logits(model, name), logits(model, "eager")
    assert [layer for layer, _ in plans] == [0, 1]
    assert all(h.choice == "polynomial" for _, made in plans for h in made.heads)
    assert all(0 < made.error_bound <= 1e-3 for _, made in plans)
    error = (out - truth).abs().max()
    assert 0 < error < 1e-3 * truth.abs().max()


def test_costs_decide_what_is_exact():
    dear = CostModel(flop=1e-3, byte=0.0, exponential=1e9, call=0.0, source="costly exponentials")
    for costs, choice in ((DEFAULT, "exact"), (dear, "polynomial")):
        plans = []
        name = register_attention(1e-3, lambda module, made, plans=plans: plans.append(made), costs=costs)
        logits(llama(), name)
        assert len(plans) == 2
        assert {(head.choice, made.costs) for made in plans for head in made.heads} == {(choice, costs)}


@pytest.mark.usefixtures("always_fast")
def test_a_layer_whose_logits_reach_too_far_is_exact_and_named():
    plans = []
    name = register_attention(on_plan=lambda module, made: plans.append((module.layer_idx, made)))
    model = llama()
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight *= 1e4
    out = logits(model, name)
    assert {h.choice for h in plans[0][1].heads} == {"polynomial"}
    assert all("no degree up to" in h.reason for h in plans[1][1].heads)
    assert_close(out, logits(model, "eager"), atol=2e-2, rtol=0)


@pytest.mark.parametrize("build", [llama, neox])
def test_padded_batches_run_exact(build):
    plans = []
    name = register_attention(on_plan=lambda module, made: plans.append(made))
    real = torch.ones(2, 70, dtype=torch.long)
    real[1, :9] = 0
    model = build()
    out, truth = (logits(model, impl, attention_mask=real) for impl in (name, "eager"))
    assert all("a mask of keys alone" in h.reason for made in plans for h in made.heads)
    assert_close(out[0], truth[0], atol=1e-5, rtol=1e-4)
    assert_close(out[1, 9:], truth[1, 9:], atol=1e-5, rtol=1e-4)


@pytest.mark.usefixtures("always_fast")
def test_generation_from_a_cache_goes_on_as_the_exact_kernel_does():
    model, name = llama(), register_attention(1e-3)
    ids = torch.arange(5, 15)[None]
    texts = []
    for impl in (name, "eager"):
        model.config._attn_implementation = impl
        texts.append(model.generate(ids, max_new_tokens=5, do_sample=False, pad_token_id=0))
    assert_close(*texts)


def test_dropout_is_refused():
    model, name = llama(attention_dropout=0.1).train(), register_attention()
    with pytest.raises(UnsupportedError, match="'spectrope' has no dropout"):
        logits(model, name)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnsupportedError, match="needs transformers, which is not installed"):
        register_attention()


def test_a_bias_of_the_model_is_kept_and_its_layers_are_exact_and_named():
    plans = []
    name = register_attention(on_plan=lambda module, made: plans.append(made))
    torch.manual_seed(0)
    config = transformers.T5Config(vocab_size=50, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2)
    model = transformers.T5EncoderModel(config).eval()
    torch.nn.init.normal_(model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
    ids = torch.randint(5, 50, (2, 12), generator=torch.Generator().manual_seed(1))
    outputs = []
    for chosen in (name, "eager"):
        model.config._attn_implementation = chosen
        with torch.no_grad():
            outputs.append(model(ids).last_hidden_state)
    assert_close(*outputs)
    assert len(plans) == 2
    assert all("the model adds a bias" in head.reason for made in plans for head in made.heads)


@pytest.mark.parametrize(("build", "option"), [(gemma2, "softcap"), (gpt_oss, "s_aux")])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.usefixtures("always_fast")
def test_capped_logits_and_sinks_are_kept_and_their_layers_are_exact_and_named(build, option, padded):
    plans = []
    name, model = register_attention(on_plan=lambda module, made: plans.append(made)), build()
    real = torch.ones(2, 70, dtype=torch.long)
    real[1, 60:] = 1 - padded
    out, truth = (logits(model, impl, attention_mask=real) for impl in (name, "eager"))
    assert_close(out, truth, atol=1e-5, rtol=1e-4)
    assert len(plans) == 2
    assert all(f"the model gives {option}" in head.reason for made in plans for head in made.heads)


@pytest.mark.usefixtures("always_fast")
def test_a_model_whose_cap_is_off_is_planned():
    plans = []
    name, model = register_attention(1e-3, lambda module, made: plans.append(made)), gemma2(softcap=None)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= 1e-2
    assert_close(logits(model, name), logits(model, "eager"), atol=1e-2, rtol=1e-2)
    assert any(head.choice == "polynomial" for made in plans for head in made.heads)


@pytest.mark.sampled
@pytest.mark.parametrize(("n_q", "n_k"), [(2, 5), (5, 2), (4, 4), (1, 5), (40, 70)])
@pytest.mark.parametrize("fast", [True, False])
def test_without_a_mask_queries_see_the_keys_that_the_library_s_kernel_shows_them(
    n_q, n_k, fast, monkeypatch
):
    if fast:
        monkeypatch.setattr(adapter, "plan", lambda *args, **named: plan(*args, **named).with_all_fast())
    draw = torch.Generator().manual_seed(0)
    q = 0.1 * torch.randn(1, 4, n_q, 8, generator=draw)
    k, v = torch.randn(2, 1, 2, n_k, 8, generator=draw)
    module = llama().model.layers[0].self_attn
    kernels = transformers.AttentionInterface()
    ours, theirs = (kernels[name](module, q, k, v, None)[0] for name in (register_attention(1e-4), "sdpa"))
    assert_close(ours, theirs, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", BUILDS)
def test_trained_layers_keep_their_certificates_or_run_exact_and_are_named(name, monkeypatch):
    seen, fast, exact = compared(trained(name), 1e-2, monkeypatch)
    assert exact < 0.1  # Chance is ln 23, 3.1 nats.
    assert len(seen) == 8
    for head in seen:
        if head.bound is None:
            assert "no degree up to" in head.plan.reason
            assert head.error < 1e-4  # Rounding, of logits in the hundreds.
        else:
            assert 0 < head.error <= head.bound <= 1e-2
    assert any(head.bound is not None for head in seen) == (name == "Llama")
    assert abs(fast - exact) < 1e-4
