"""Certified attention in models of transformers: outputs within the certificate, exact heads named."""

import sys

import pytest
import torch
import transformers
from tests.models.trained import BUILDS, compared, trained
from torch.testing import assert_close

from spectrope.attention.plan import plan
from spectrope.core.errors import UnsupportedError
from spectrope.models.adapters import attention as adapter
from spectrope.models.adapters.attention import register_attention

SIZES = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def llama(**options):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SIZES, num_key_value_heads=2, intermediate_size=48, **options)
    return transformers.LlamaForCausalLM(config).eval()


def neox():
    torch.manual_seed(0)
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SIZES, intermediate_size=48)).eval()


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
