"""What layers of a checkpoint work with on real content is what its own forward pass works with."""

import pytest
import torch
from tests.checkpoints.audit.families import CHANGED, FAMILIES

from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters import head_sites
from spectrope.checkpoints.audit.applied import applied_encodings
from spectrope.checkpoints.language import whole_sequences
from spectrope.checkpoints.probes.constant_content import attending_modules
from spectrope.checkpoints.probes.heads import MeasuredRotation, Unseen
from spectrope.checkpoints.spectrum import checkpoint_spectrum, layer_heads
from spectrope.core.errors import ConfigError, UnsupportedError
from spectrope.core.progress import Progress
from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import QUANTITIES
from spectrope.spectral import lag_effects

IDS = torch.randint(5, 60, (3, 12), generator=torch.Generator().manual_seed(2))


def captured(model, batch=None, ids=IDS):
    modules = attending_modules(model)
    own = [name for name, elsewhere in modules.items() if not elsewhere]
    subject = CheckpointSubject(model, head_sites(model, modules))
    places = [place for place, site in enumerate(subject.sites) if site.role != "cross"]
    applied = applied_encodings(model, own, 64)
    return list(layer_heads(subject, whole_sequences(model, ids), places, applied, batch))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "family",
    ["llama-yarn", "gptj", "bloom", "mpt", "deepseek_v3", "bert", "smollm3", "gpt_neox", "capped"],
)
@pytest.mark.parametrize("batch", [None, 2])
def test_softmax_of_the_logits_is_the_pattern_of_every_layer(family, batch):
    """The pattern of later layers is right only if earlier ones attended."""
    model = (FAMILIES | CHANGED)[family]()
    layers = captured(model, batch)
    model.config._attn_implementation = "eager"
    with torch.no_grad():
        patterns = model(IDS, output_attentions=True).attentions
    assert [layer.layer for layer in layers] == list(range(len(patterns)))
    for layer, pattern in zip(layers, patterns, strict=True):
        torch.testing.assert_close(pattern_of(layer), pattern, atol=1e-5, rtol=1e-4)
    assert layers[0].causal == (family != "bert")


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_both_stacks_attend_as_in_the_model(family):
    model = FAMILIES[family]()
    layers = captured(model, batch=2)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        found = model(**whole_sequences(model, IDS).inputs(1), output_attentions=True)
    patterns = (*found.encoder_attentions, *found.decoder_attentions)
    for layer, pattern in zip(layers, patterns, strict=True):
        torch.testing.assert_close(pattern_of(layer), pattern, atol=1e-5, rtol=1e-4)
    assert [layer.causal for layer in layers] == [False, False, True, True]


def pattern_of(layer):
    n = layer.logits.shape[-1]
    allowed = torch.ones(n, n, dtype=torch.bool)
    allowed = allowed.tril() if layer.causal else allowed
    return layer.logits.masked_fill(~allowed, -torch.inf).softmax(-1)


@pytest.mark.parametrize("family", ["llama-yarn", "cohere", "deepseek_v3", "gpt_neox", "gptj", "llama4"])
def test_rotation_is_undone(family):
    """At the first position there is none, so what is turned back equals the kernel's up to the factor."""
    model = FAMILIES[family]()
    (first, *_) = captured(model)
    encoding, x = first.encoding, first.ctx.q
    assert isinstance(encoding, MeasuredRotation)
    again = encoding.rotate(x, first.ctx.q_pos, "query")
    torch.testing.assert_close(encoding.undone(again, first.ctx.q_pos, "query"), x, atol=1e-5, rtol=1e-5)
    product = first.rotated[0] @ first.rotated[1].mT
    scale = (product * first.logits).sum() / product.square().sum()
    torch.testing.assert_close(scale * product, first.logits, atol=1e-4, rtol=1e-3)


def test_what_is_turned_back_is_what_the_projection_put_out():
    model, seen = FAMILIES["llama-yarn"](), []
    handle = model.model.layers[1].self_attn.q_proj.register_forward_hook(lambda *args: seen.append(args[2]))
    with torch.no_grad():
        model(IDS)
    handle.remove()
    q = seen[0].unflatten(-1, (4, 16)).transpose(1, 2)
    torch.testing.assert_close(captured(model)[1].ctx.q, q, atol=1e-4, rtol=1e-3)


def test_hidden_states_are_those_that_enter_attention():
    model = FAMILIES["gpt2"]()
    seen = []
    handle = model.transformer.h[1].ln_1.register_forward_hook(lambda _, __, output: seen.append(output))
    with torch.no_grad():
        model(IDS)
    handle.remove()
    torch.testing.assert_close(captured(model)[1].ctx.x_q, seen[0], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("batch", [None, 2])
def test_tables_hold_what_the_toolkit_measures(batch):
    model = FAMILIES["llama-default"]()
    told = []
    data = whole_sequences(model, IDS)
    tables = checkpoint_spectrum(model, data, draws=19, batch=batch, watch=told.append)
    layers = captured(model)
    expected = [lag_effects(layer.logits, causal=True).share.mean(0) for layer in layers]
    found = torch.from_numpy(tables["spectrum"]["toeplitz"].to_numpy().copy()).reshape(2, 4)
    torch.testing.assert_close(found, torch.stack(expected), atol=1e-6, rtol=1e-5)
    contraction = QUANTITIES["contraction_spectral"]().values(ObservedLayer(layers[1], 12)).mean(0)
    assert tables["spectrum"]["contraction_spectral"][4:].to_list() == pytest.approx(contraction.tolist())
    for name in ("p_value", "contraction_nuclear", "factorisation", "toeplitz_content"):
        assert tables["spectrum"][name].null_count() == 0
    assert tables["bands"].select("layer", "head", "band").rows()[-1] == (1, 3, 7)
    assert tables["bands"]["frequency_high"].max() == pytest.approx(1.0)
    assert told == [Progress("spectrum", 1, 2), Progress("spectrum", 2, 2)]


def test_layers_of_both_stacks_are_told_apart():
    model = FAMILIES["t5"]()
    tables = checkpoint_spectrum(model, whole_sequences(model, IDS), draws=9, layers=slice(1, None))
    rows = tables["spectrum"].select("role", "layer", "head", "positions").rows()
    assert rows == [(role, 1, h, 6) for role in ("encoder", "decoder") for h in range(4)]
    assert tables["shares"].select("role", "layer").unique(maintain_order=True).rows() == [
        ("encoder", 1),
        ("decoder", 1),
    ]
    assert tables["spectrum"]["toeplitz_content"].null_count() == 0


def test_where_only_masked_logits_with_a_bias_are_seen_nothing_is_permuted():
    model = FAMILIES["bloom"]()
    assert all(isinstance(layer.encoding, Unseen) for layer in captured(model))
    tables = checkpoint_spectrum(model, whole_sequences(model, IDS), draws=19)
    assert tables["spectrum"]["p_value"].null_count() == 8
    assert tables["spectrum"]["toeplitz"].null_count() == 0
    assert "bands" not in tables


def test_under_a_cap_logits_are_no_product_to_take_a_rotation_from():
    assert all(isinstance(layer.encoding, Unseen) for layer in captured(CHANGED["capped"]()))


def test_sinks_are_refused_in_one_line():
    model = CHANGED["sinks"]()
    with pytest.raises(UnsupportedError, match=r"^model\.layers\.0\.self_attn has attention sinks; [^\n]*$"):
        checkpoint_spectrum(model, whole_sequences(model, IDS))


def test_what_cannot_be_measured_is_refused():
    model = FAMILIES["gpt2"]()
    with pytest.raises(ConfigError, match="two sequences of two tokens; got 1 of 12"):
        checkpoint_spectrum(model, whole_sequences(model, IDS[:1]))
    with pytest.raises(ConfigError, match="layers must take at least one of 0 to 1; got none"):
        checkpoint_spectrum(model, whole_sequences(model, IDS), layers=slice(4, 5))
