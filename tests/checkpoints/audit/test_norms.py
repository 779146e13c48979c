"""Norms of queries and keys in another form than their class has, or on the other side."""

import inspect
import sys
import textwrap

import pytest
import torch
from tests.checkpoints.audit.families import LENGTH
from tests.checkpoints.audit.zoo import Variant, build, families
from torch.nn.utils import parametrize

from spectrope.checkpoints.audit import audit


def model_of(family):
    model = build(Variant(family, families()[family]))
    generator = torch.Generator().manual_seed(3)
    for name, weight in model.named_parameters():
        if "_norm" in name:
            weight.data.normal_(0.3, 0.4, generator=generator)
    return model


def each(change):
    """Change both norms of every layer."""

    def inject(model):
        for module in model.modules():
            if hasattr(module, "q_norm"):
                change(module.q_norm)
                change(module.k_norm)

    return inject


def running(form):
    """A norm that computes another form of its input and its weights."""

    def change(norm):
        norm.forward = lambda x: form(x, norm.weight)

    return each(change)


def exchanged(model, patch):
    """The code of the attention gives queries to the norm of keys and keys to that of queries."""
    attention = next(type(module) for module in model.modules() if hasattr(module, "q_norm"))
    source = textwrap.dedent(inspect.getsource(attention.forward))
    other = source.replace("self.q_norm(", "self.x_norm(").replace("self.k_norm(", "self.q_norm(")
    code = dict(vars(sys.modules[attention.__module__]))
    exec(other.replace("self.x_norm(", "self.k_norm("), code)
    patch.setattr(attention, "forward", code["forward"])


def over_rms(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def centred(x, w):
    x = x - x.mean(-1, keepdim=True)
    return over_rms(x) * w


def other_epsilon(norm):
    for field in ("eps", "variance_epsilon"):
        if hasattr(norm, field):
            setattr(norm, field, 0.03)


FORMS = {
    "weights plus 1": (
        running(lambda x, w: over_rms(x) * (1 + w)),
        "its input over its root mean square, times 1 + its weights",
        ("qwen3", "olmo2"),
    ),
    "weights without 1": (
        running(lambda x, w: over_rms(x) * w),
        "its input over its root mean square, times its weights",
        ("gemma3_text", "qwen3_next"),
    ),
    "mean removed": (
        running(centred),
        "its input less its mean, over its standard deviation, times its weights",
        ("qwen3", "olmo2", "gemma3_text"),
    ),
    "no weights": (
        running(lambda x, w: over_rms(x)),
        "normalised vectors without its weights",
        ("qwen3", "gemma3_text"),
    ),
    "epsilon": (each(other_epsilon), "the same with an epsilon of 0.03", ("qwen3", "gemma3_text", "olmo2")),
}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "family"), [(name, family) for name, (_, _, used) in FORMS.items() for family in used]
)
def test_another_form_of_a_norm_is_named(name, family):
    inject, said, _ = FORMS[name]
    model = model_of(family)
    assert audit(model, length=LENGTH).ok
    inject(model)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE114"}
    assert all(said in one.message for one in records)


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text"])
def test_norms_on_the_other_side_are_named(family, monkeypatch):
    model = model_of(family)
    exchanged(model, monkeypatch)
    records = audit(model, length=LENGTH).records
    assert {one.code for one in records} == {"SPE114"}
    assert {one.effective for one in records} == {"that of keys", "that of queries"}


def test_another_module_that_computes_the_same_is_no_finding():
    model = model_of("qwen3")
    for module in model.modules():
        if hasattr(module, "q_norm"):
            weight, epsilon = module.q_norm.weight, module.q_norm.variance_epsilon
            module.q_norm = torch.nn.RMSNorm(weight.shape[-1], epsilon)
            module.q_norm.weight = weight
    assert audit(model, length=LENGTH).ok


def test_one_module_on_both_sides_is_named():
    model = model_of("qwen3")
    for module in model.modules():
        if hasattr(module, "q_norm"):
            module.k_norm = module.q_norm
    records = [one for one in audit(model, length=LENGTH).records if one.layer == 0]
    assert [one.code for one in records] == ["SPE114"]
    assert records[0].effective == "q_norm"


def test_a_parametrized_norm_is_read():
    model = model_of("qwen3")
    for module in model.modules():
        if hasattr(module, "q_norm"):
            parametrize.register_parametrization(module.q_norm, "weight", torch.nn.Identity())
    assert audit(model, length=LENGTH).ok


@pytest.mark.parametrize(("part", "side"), [("q_a_layernorm", "queries"), ("kv_a_layernorm", "keys")])
@pytest.mark.parametrize("family", ["deepseek_v3", "minicpm3"])
def test_a_norm_of_latents_that_is_left_out_is_named(family, part, side):
    model = model_of(family)
    assert audit(model, length=LENGTH, serving_modes=False).ok
    for name, module in model.named_modules():
        if name.endswith(part):
            module.forward = lambda x: x
    layers = audit(model, length=LENGTH, serving_modes=False).layers
    assert {finding.what for layer in layers for finding in layer.findings} == {f"norm of {side}"}
