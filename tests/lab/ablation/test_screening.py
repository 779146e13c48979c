import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.lab.ablation.models import decoder, examples
from tests.lab.ablation.test_heads import answering, loud_tokens

from spectrope.lab.ablation.gather import data_means, derangement, donor_outputs
from spectrope.lab.ablation.passes import Piece, intact_sites
from spectrope.lab.ablation.screening import screen
from spectrope.lab.ablation.sweep import sweep

RELEASED = {"causal": False, "memory": "embeddings", "padding": "visible"}


def slope(model, data, layer, head, replacement, step=1e-5):
    """Central difference of the mean cross-entropy as one head's output moves towards its replacement."""
    losses = []
    for amount in (step, -step):

        def move(module, inputs, out, amount=amount):
            moved = out.clone()
            moved[:, head] += amount * (replacement[:, head] - out[:, head])
            return moved

        hook = model.blocks[layer].heads.register_forward_hook(move)
        with torch.inference_mode():
            losses.append(F.cross_entropy(model(data), data.labels).item())
        hook.remove()
    return (losses[0] - losses[1]) / (2 * step)


@pytest.mark.sampled
@pytest.mark.parametrize("fields", [{}, RELEASED])
@pytest.mark.parametrize("fill", ["zero", "mean", "resample", "position-only", "content-only"])
def test_estimates_are_directional_derivatives(fill, fields):
    model, data = decoder("rope", **fields), examples(12)
    assert data.lengths.max() == 12  # so that nothing is trimmed
    with torch.inference_mode():
        given = {
            "means": data_means(model, data),
            "donors": donor_outputs(model, data[derangement(12, 0)], 12),
        }
        replacements = [site.filled(fill).double() for site in intact_sites(Piece.of(model, data, **given))]
    expected = [
        [slope(model, data, layer, head, r) for head in range(4)] for layer, r in enumerate(replacements)
    ]
    found = screen(model, data, fill=fill)
    np.testing.assert_allclose(found.loss_increase_estimate, expected, rtol=1e-4, atol=1e-7)
    assert (found.fill, found.n) == (fill, 12)


def test_batches_add_up_and_labels_that_do_not_count_are_left_out():
    model, data = decoder(classes="vocabulary"), examples(30)
    counted = data[data.labels != 0]
    whole, parts = screen(model, data), screen(model, counted, batch_size=4)
    np.testing.assert_allclose(whole.loss_increase_estimate, parts.loss_increase_estimate, rtol=1e-9)
    assert whole.n == parts.n == len(counted)


def test_screening_leaves_no_gradients():
    model = decoder()
    screen(model, examples(5))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_screening_finds_the_head_that_carries_everything():
    model, data = answering([1]), loud_tokens(100)
    estimates = screen(model, data).loss_increase_estimate
    drops = np.array([row.drop for row in sweep(model, data).drops()]).reshape(3, 4)
    assert estimates.argmax() == drops.argmax() == 1
