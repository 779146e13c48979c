"""Logits of a checkpoint on real content: those of the model's own forward pass."""

import pytest
import torch
from tests.auditing.families import FAMILIES

from spectrope.core.errors import ConfigError
from spectrope.probes.checkpoint_heads import capture_checkpoint
from spectrope.probes.constant_content import attention_modules
from spectrope.spectral.lag_design import LagDesign
from spectrope.sweeps.checkpoint_spectrum import checkpoint_spectrum

IDS = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(2))


def captured(model):
    layers = []
    capture_checkpoint(model, attention_modules(model), IDS, layers.append)
    return layers


@pytest.mark.parametrize("family", ["llama-yarn", "gptj", "bloom", "mpt", "deepseek_v3", "bert", "smollm3"])
def test_softmax_of_the_logits_is_the_pattern_of_every_layer(family):
    """The pattern of later layers is right only if earlier ones attended."""
    model = FAMILIES[family]()
    layers = captured(model)
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        patterns = model(IDS, output_attentions=True).attentions
    assert [layer.layer for layer in layers] == list(range(len(patterns)))
    for layer, pattern in zip(layers, patterns, strict=True):
        allowed = torch.ones(12, 12, dtype=torch.bool)
        allowed = allowed.tril() if layer.causal else allowed
        found = layer.logits.masked_fill(~allowed, -torch.inf).softmax(-1)
        torch.testing.assert_close(found, pattern, atol=1e-5, rtol=1e-4)
    assert layers[0].causal == (family != "bert")


def test_hidden_states_are_those_that_enter_attention():
    model = FAMILIES["gpt2"]()
    seen = []
    handle = model.transformer.h[1].ln_1.register_forward_hook(lambda _, __, output: seen.append(output))
    with torch.no_grad():
        model(IDS)
    handle.remove()
    torch.testing.assert_close(captured(model)[1].ctx.x_q, seen[0], atol=1e-5, rtol=1e-4)


def test_tables_hold_what_the_toolkit_measures():
    model = FAMILIES["llama-default"]()
    told = []
    tables = checkpoint_spectrum(model, IDS, draws=19, watch=lambda *at: told.append(at))
    design = LagDesign(12, causal=True)
    expected = [design.gauge_fixed_shares(layer.logits.double()).mean(0) for layer in captured(model)]
    found = torch.from_numpy(tables["spectrum"]["toeplitz"].to_numpy().copy()).reshape(2, 4)
    torch.testing.assert_close(found, torch.stack(expected))
    assert tables["spectrum"]["p_value"].null_count() == 0
    assert tables["spectrum"]["contraction_spectral"].null_count() == 8
    assert told == [(1, 2), (2, 2)]


def test_where_only_masked_logits_are_seen_nothing_is_permuted():
    tables = checkpoint_spectrum(FAMILIES["bloom"](), IDS, draws=19)
    assert tables["spectrum"]["p_value"].null_count() == 8
    assert tables["spectrum"]["toeplitz"].null_count() == 0


def test_one_sequence_is_refused():
    with pytest.raises(ConfigError, match="two sequences of two tokens; got 1 of 12"):
        checkpoint_spectrum(FAMILIES["gpt2"](), IDS[:1])
