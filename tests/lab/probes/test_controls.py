"""Shuffled text and missing encodings, as controls of Toeplitz shares."""

import numpy as np
import pytest
import torch
from tests.lab.ablation.models import decoder, examples

from spectrope.lab.probes.controls import shares_without_encoding, shuffled, toeplitz_shares


def test_shuffling_moves_tokens_within_their_example_alone():
    batch = examples(30)
    mixed = shuffled(batch, 3)
    padding = torch.arange(batch.inputs.shape[1]) >= batch.lengths[:, None]
    assert torch.equal(mixed.inputs.sort(1).values, batch.inputs.sort(1).values)
    assert torch.equal(mixed.inputs[padding], batch.inputs[padding])
    assert (mixed.inputs != batch.inputs).any(1).sum() > 20
    assert torch.equal(shuffled(batch, 3).inputs, mixed.inputs)
    assert not torch.equal(shuffled(batch, 4).inputs, mixed.inputs)
    assert mixed.labels is batch.labels


@pytest.mark.parametrize("name", ["rope", "sinusoidal", "learned", "sum"])
def test_without_its_encoding_a_model_is_the_one_that_has_none(name):
    rope, nope = decoder(name), decoder("nope")
    nope.load_state_dict({k: v for k, v in rope.state_dict().items() if "encodings" not in k})
    batch = examples(30)
    batch = batch[batch.lengths >= 8]
    for off, plain, own in zip(
        shares_without_encoding(rope, batch, 8),
        toeplitz_shares(nope, batch, 8),
        toeplitz_shares(rope, batch, 8),
        strict=True,
    ):
        np.testing.assert_allclose(off.estimate, plain.estimate, rtol=1e-4)
        assert (abs(off.estimate - own.estimate) > 1e-4).all()
    assert not rope.without_positions


def test_a_bias_of_lags_outlives_shuffling_and_ends_with_its_encoding():
    model, batch = decoder("alibi"), examples(30)
    batch = batch[batch.lengths >= 8]
    with torch.no_grad():
        for block in model.blocks:
            block.heads.qkv.weight.mul_(0.1)
    own, mixed, off = (
        np.stack([found.estimate for found in shares])
        for shares in (
            toeplitz_shares(model, batch, 8),
            toeplitz_shares(model, shuffled(batch, 0), 8),
            shares_without_encoding(model, batch, 8),
        )
    )
    assert own[:, 0].min() > 0.98
    assert mixed[:, 0].min() > 0.98
    assert off[:, 0].max() < 0.9
