"""What a head learns, against automatic differentiation by its weights."""

import itertools
from dataclasses import replace

import pytest
import torch
from tests.lab.training.test_loop import CPU, tiny

from spectrope.core.errors import UnsupportedError
from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.nope import NoPE
from spectrope.lab.probes.learning import learning
from spectrope.lab.runs import build_model
from spectrope.lab.training.scales import experiment
from spectrope.spectral.tangent import softmax_curvature, summarise

CONTENT_IN_BIAS = ("cope", "shaw", "blend")


def setting(name, **changes):
    """A model in float64 whose queries and keys have no bias, and examples of unequal lengths."""
    one = tiny()
    sizes = one.model.sizes
    config = replace(one.model, encoding=ENCODINGS.config(name)().fitted(**sizes), **changes)
    model = build_model(replace(one, model=config), CPU).double()
    with torch.no_grad():
        for block in model.blocks:
            block.heads.qkv.bias.zero_()
            block.heads.qkv.weight.mul_(3)
    data, _ = one.task.build().split(40, 10, 0)
    return model, data[data.lengths.argsort(descending=True)[:6]].trimmed()


def weight_gradients(model, batch):
    """The loss's gradient by W_Q and W_K of every layer, (layers, 2, heads, d, c), and both weights."""
    weights = [block.heads.qkv.weight for block in model.blocks]
    loss = torch.nn.functional.cross_entropy(model(batch), batch.labels)
    return [
        w.detach().unflatten(0, (3, model.config.n_heads, -1))[:2] for w in torch.autograd.grad(loss, weights)
    ], [w.detach().unflatten(0, (3, model.config.n_heads, -1))[:2] for w in weights]


WAYS = ({}, {"memory": "embeddings"}, {"causal": False})


@pytest.mark.parametrize(
    ("name", "changes"),
    [*itertools.product(("nope", "t5", "tupe"), WAYS), *((name, {}) for name in CONTENT_IN_BIAS)],
)
def test_without_rotation_the_constant_part_is_all_that_reaches_the_weights(name, changes):
    model, batch = setting(name, **changes)
    gradients, weights = weight_gradients(model, batch)
    for layer, heads in enumerate(learning(model, batch)):
        for place, head in enumerate(heads):
            constant = head.gradient.transformed[0]
            assert constant.imag.abs().max() == 0
            assert head.frequencies.tolist() == [0.0]
            assert head.gradient_energy == pytest.approx(head.gradient.constant_energy)
            (w_q, w_k), (g_q, g_k) = weights[layer][:, place], gradients[layer][:, place]
            if name in ("nope", "t5", "tupe"):
                torch.testing.assert_close(w_k @ constant.real.T, g_q)
                torch.testing.assert_close(w_q @ constant.real, g_k)
            energy = (w_q.T @ w_k).square().sum().item()
            assert head.weight_energy == pytest.approx(energy)
            assert (head.kernels is None) == (name in CONTENT_IN_BIAS)


@pytest.mark.parametrize("changes", WAYS)
def test_with_rotation_each_pair_gets_the_gradient_at_its_frequency(changes):
    model, batch = setting("rope", **changes)
    gradients, weights = weight_gradients(model, batch)
    frequencies = model.encoding_of(0).angles.frequencies.value.double()
    for layer, heads in enumerate(learning(model, batch)):
        for place, head in enumerate(heads):
            torch.testing.assert_close(head.frequencies, frequencies)
            w_k, g_q = (
                torch.view_as_complex(_pairs(w))
                for w in (weights[layer][1, place], gradients[layer][0, place])
            )
            expected = torch.einsum("tcd,td->tc", head.gradient.transformed, w_k)
            torch.testing.assert_close(g_q, expected)
            assert head.gradient_energy == pytest.approx(head.gradient.frequency_energy.sum().item())


def _pairs(w):
    """Rows of adjacent coordinates as (pairs, c, 2)."""
    return w.unflatten(0, (-1, 2)).movedim(1, -1).contiguous()


@pytest.mark.parametrize("name", ["rope", "alibi", "tupe"])
def test_tangent_kernels_are_those_of_automatic_differentiation(name):
    model, batch = setting(name)
    captured = []
    hook = model.blocks[1].heads.register_forward_pre_hook(lambda heads, args: captured.append(args))
    with torch.no_grad():
        model(batch)
    hook.remove()
    x, stream, encoding, _ = captured[0]
    heads, head = model.blocks[1].heads, 1
    found = list(learning(model, batch))[1][head]
    bias = encoding.bias(heads.context(x, stream)[0])
    still = NoPE(NoPE.Config()) if encoding.turns else encoding
    for measured, own in ((found.kernels, encoding), (found.plain_kernels, still)):
        ctx, _ = heads.context(x, stream)
        logits = own.logits(ctx) if own is encoding or bias is None else own.logits(ctx) + bias
        rows = [logits[e, head, int(batch.lengths[e]) - 1, : int(batch.lengths[e])] for e in range(2)]
        jacobian = torch.stack(
            [
                torch.autograd.grad(one, heads.qkv.weight, retain_graph=True)[0].flatten()
                for row in rows
                for one in row
            ]
        )
        theta = jacobian @ jacobian.T
        curvature = torch.block_diag(*(softmax_curvature(row.softmax(0)) for row in rows))
        assert measured.tangent.trace == pytest.approx(theta.trace().item())
        assert measured.tangent.largest == pytest.approx(summarise(theta).largest)
        newton = torch.linalg.eigvals(theta @ curvature).real.max().item()
        assert measured.newton.largest == pytest.approx(newton)
    assert (found.kernels == found.plain_kernels) == (name != "rope")


def test_nothing_is_claimed_of_logits_that_turn_unsteadily():
    model, batch = setting("xpos")
    for head in next(learning(model, batch)):
        assert head.frequencies is head.gradient_energy is head.kernels is head.plain_kernels is None
        assert 0 <= head.gradient.positional_share <= 1


def test_the_model_is_left_as_it_was():
    model, batch = setting("rope")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    random = torch.get_rng_state()
    list(learning(model, batch))
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not any(block.heads._forward_hooks for block in model.blocks)


def test_latent_attention_is_refused():
    one = experiment("distance", "mla", n_examples=40)
    model = build_model(one, CPU)
    data, _ = one.task.build().split(28, 12, 0)
    with pytest.raises(UnsupportedError, match="only supports multi-head attention; got Latent"):
        next(learning(model, data))
