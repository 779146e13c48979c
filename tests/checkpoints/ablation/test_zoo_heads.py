"""Heads of the library's families: a sweep measures the model itself, and changes the columns of one head."""

import sys

import pytest
import torch
import torch.nn.functional as F
from tests.checkpoints.ablation.test_ablation import plain
from tests.checkpoints.ablation.test_ablation import sequences as sequences_for
from tests.checkpoints.audit.families import FAMILIES
from tests.checkpoints.audit.zoo import Variant, build, families

from spectrope.checkpoints.ablation.screening import first_order_effects
from spectrope.checkpoints.ablation.sources import FillSources, rotary_means
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_scores, checkpoint_sweep
from spectrope.checkpoints.adapters import decoder_start, head_sites, sees_ahead
from spectrope.checkpoints.probes.constant_content import attending_modules
from spectrope.checkpoints.repeated.groups import scores_together
from spectrope.checkpoints.sequences import continuing, predicting
from spectrope.core.errors import UnsupportedError
from spectrope.lab.ablation.interventions import HeadAblation

ITS_OWN = "model.layers.{}.self_attn.o_proj"
# The projection of families in which something else reads hidden states behind the kernel, or acts on heads.
GATED = {
    "laguna": ITS_OWN,
    "lfm3": ITS_OWN,
    "bailing_hybrid": ITS_OWN,
    "dots3_note_text": ITS_OWN,
    "beam": ITS_OWN,
    "neomme": "model.layers.{}.self_attn.output_projection.o_proj",
    "qwen3_next": ITS_OWN,
    "qwen3_5_text": ITS_OWN,
    "afmoe": ITS_OWN,
    "axk2": ITS_OWN,
    "bitnet": ITS_OWN,
}
PLAIN = (
    "llama",
    "gpt_oss",
    "gpt_neox",
    "gemma2",
    "falcon",
    "openai-gpt",
    "bloom",
    "bert",
    "longformer",
    "t5",
    "led",
)
ROTATING = ("llama", "gpt_oss", "gpt_neox", "cohere", "glm4", "minimax_m2", "granite")
REFUSED = {
    "albert": "attention attends 2 times in a pass, so no head of it can be changed",
    "diffllama": "attends 2 times in a pass",
    "xlnet": "do not enter transformer.layer.0.ff.layer_1 side by side",
    "squeezebert": "no linear map after the heads of transformer.encoder.layers.0.attention was found",
    "ibert": "no linear map after the heads of ibert.encoder.layer.0.attention.self was found",
    "funnel": "FunnelForMaskedLM pools its sequence, so its heads cannot be changed",
    "xlm": "cannot be run from module to module: the loss of the intact model is .* in one pass",
    "flaubert": "FlaubertWithLMHeadModel cannot be run from module to module",
}


def built(family: str) -> torch.nn.Module:
    """With weights large enough for heads to matter."""
    model = build(Variant(family, families()[family])).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(3)
    return model


def sequences(model, n=3, length=16):
    ids = torch.randint(5, 60, (n, length), generator=torch.Generator().manual_seed(3))
    wanted, lengths = torch.ones_like(ids, dtype=torch.bool), torch.full((n,), length)
    if (start := decoder_start(model)) is not None:
        return continuing(ids, wanted, lengths, start)
    return predicting(ids, wanted, lengths, mask=4 if sees_ahead(model) else None)


def one_of_each_site(subject, fill="zero"):
    return [HeadAblation(place, 1, fill) for place in range(len(subject.sites))]


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("family", [*GATED, *PLAIN, "convbert"])
def test_the_intact_model_of_a_sweep_is_that_of_a_plain_pass(family):
    model = built(family)
    subject, data = CheckpointSubject.of(model), sequences(model)
    found = checkpoint_scores(subject, data, [(), *((one,) for one in one_of_each_site(subject))])
    torch.testing.assert_close(found[0, :, 0].float(), plain(model, data)[:, 0].float(), rtol=1e-5, atol=1e-5)


@pytest.mark.sampled
@pytest.mark.parametrize("family", REFUSED)
def test_models_that_would_be_measured_as_others_are_refused(family):
    model = built(family)
    with pytest.raises(UnsupportedError, match=REFUSED[family]) as refused:
        checkpoint_sweep(CheckpointSubject.of(model), sequences(model))
    assert "\n" not in str(refused.value)


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("family", GATED)
def test_the_projection_is_the_map_that_takes_the_heads(family):
    sites = CheckpointSubject.of(built(family)).sites
    assert [site.projection for site in sites] == [GATED[family].format(site.layer) for site in sites]


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("family", [*sorted({*GATED} - {"bitnet"}), "llama", "gpt_oss", "convbert", "bert"])
def test_a_head_of_the_kernel_moves_its_columns_alone(family, monkeypatch):
    """Its output is doubled in the function of the library, and in ConvBERT its values."""
    model = built(family)
    subject, data = CheckpointSubject.of(model), sequences(model)
    site = subject.sites[0]
    intact = subject.captured(data)[0]
    for head in range(site.n_heads):
        with monkeypatch.context() as patch:
            double(patch, model, site, head)
            moved = (subject.captured(data)[0] - intact).abs().amax((0, 1)) > 1e-6
        own = torch.arange(len(moved)) // site.width == head
        assert bool(moved[own].any())
        assert not bool(moved[~own].any())


def double(patch, model, site, head):
    """Double the output of one head of a kernel."""
    module = model.get_submodule(site.module)
    if type(module).__name__.startswith("ConvBert"):
        columns = slice(head * site.width, (head + 1) * site.width)
        weight = module.value.weight.data.clone()
        weight[columns] *= 2
        bias = module.value.bias.data.clone()
        bias[columns] *= 2
        patch.setattr(module.value.weight, "data", weight)
        patch.setattr(module.value.bias, "data", bias)
        return
    home = sys.modules[type(module).__module__]
    attend = home.eager_attention_forward

    def doubled(asking, *args, **given):
        heads, pattern = attend(asking, *args, **given)
        if asking is module:
            heads = heads.clone()
            heads[:, :, head] *= 2
        return heads, pattern

    patch.setattr(home, "eager_attention_forward", doubled)
    model.set_attn_implementation("eager")


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("family", [*ROTATING, "qwen3_next", "qwen3_5_text", "afmoe", "axk2", "bitnet"])
def test_keeping_all_bands_costs_nothing_or_is_refused(family):
    model = built(family)
    subject, data = CheckpointSubject.of(model), sequences(model)
    changes = one_of_each_site(subject, "keep-band@0of1")
    sources = FillSources(site_means=rotary_means(subject, data))
    if family in GATED:
        matched = "changes its heads between kernel and projection, as gates do, so fills"
        with pytest.raises(UnsupportedError, match=matched):
            checkpoint_scores(subject, data, [(one,) for one in changes])
        with pytest.raises(UnsupportedError, match=matched):
            first_order_effects(subject, data, changes, sources)
        with pytest.raises(UnsupportedError, match=matched):
            scores_together(subject, data, [(0, 1)], lambda heads: heads.intact())
        return
    scores = checkpoint_scores(subject, data, [(), *((one,) for one in changes)])
    assert float((scores[1:] - scores[0])[..., 0].abs().max()) < 1e-5
    assert first_order_effects(subject, data, changes, sources).max() < 1e-4


def test_first_order_effects_take_the_columns_of_heads_alone():
    """ConvBERT has a convolution in the other half."""
    model = built("convbert")
    subject, data = CheckpointSubject.of(model), sequences(model)
    changes = one_of_each_site(subject)
    assert subject.sites[0].n_heads * subject.sites[0].width < subject.captured(data)[0].shape[-1]
    effects = first_order_effects(subject, data, changes, FillSources())
    assert (effects > 0).all()


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_rounding_in_low_precision_is_no_other_model(family):
    model = built(family).bfloat16()
    data = sequences(model, n=6)
    assert len(checkpoint_sweep(model, data, tokens=40).ablated) == len(head_sites_of(model)) * 4


def head_sites_of(model):
    return head_sites(model, attending_modules(model))


def test_heads_that_put_out_nothing_have_columns_too():
    model = FAMILIES["llama-default"]()
    for layer in model.model.layers:
        layer.self_attn.v_proj.weight.data.zero_()
    assert {site.width for site in head_sites_of(model)} == {16}


def test_a_norm_that_moves_other_heads_is_refused():
    model = FAMILIES["llama-default"]()
    own = model.model.layers[0].self_attn.o_proj
    own.register_forward_pre_hook(lambda _, args: (F.layer_norm(args[0], args[0].shape[-1:]),), prepend=True)
    with pytest.raises(UnsupportedError, match=r"do not enter model.layers.0.self_attn.o_proj side by side"):
        head_sites_of(model)


def test_blocks_that_are_not_called_as_modules_are_refused():
    model = FAMILIES["gpt2"]()
    for block in model.transformer.h:
        direct = {"__call__": lambda self, *args, **given: self.forward(*args, **given)}
        block.__class__ = type("Direct", (type(block),), direct)
    with pytest.raises(UnsupportedError, match=r"transformer.h.0 is not called as a module"):
        checkpoint_sweep(model, sequences_for("gpt2"))


def test_mean_lags_leave_out_what_sinks_take():
    """Of GPT-OSS, written out from the model's own patterns."""
    model = built("gpt_oss")
    subject, data = CheckpointSubject.of(model), sequences(model)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        patterns = model(**data.inputs(1), output_attentions=True).attentions
    lag = torch.arange(16)[:, None] - torch.arange(16)
    for means, pattern in zip(rotary_means(subject, data), patterns, strict=True):
        mass = pattern.double().sum(-1)
        assert float(mass.min()) < 0.99
        expected = ((pattern * lag).double().sum(-1) / mass).mean((0, 2))
        torch.testing.assert_close(means.lags, expected, atol=1e-5, rtol=0)
