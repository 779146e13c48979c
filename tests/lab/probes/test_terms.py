"""Terms of heads whose answer is known, and the balanced design that they are measured on."""

import itertools
import re

import numpy as np
import pytest
import torch
from tests.lab.ablation.models import decoder, examples

from spectrope.encodings.base import ENCODINGS
from spectrope.encodings.sum import Sum
from spectrope.lab.probes.designs import balanced_sequences
from spectrope.lab.probes.heads import capture_heads
from spectrope.lab.probes.terms import commuting_shares, layer_terms

WORDS = torch.arange(1, 17)


def measured(name, batch, n, layer=0, **model):
    layers = []
    capture_heads(decoder(name, **model), batch, layers.append)
    return layer_terms(layers[layer], batch.inputs, n, draws=9)


def shares(found, term):
    return np.array([head.numbers[term].estimate[0] for head in found.heads])


def test_every_pair_of_tokens_is_at_every_pair_of_positions_once():
    batch = balanced_sequences(WORDS, 8, seed=3)
    assert batch.inputs.shape == (49, 7)
    assert (batch.lengths == 7).all()
    for one, other in itertools.combinations(range(7), 2):
        assert len(batch.inputs[:, [one, other]].unique(dim=0)) == 49
    assert not torch.equal(balanced_sequences(WORDS, 8, seed=4).inputs, batch.inputs)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["rope", "alibi", "nope", "sinusoidal", "t5", "xpos"])
def test_shares_and_covariances_of_all_terms_sum_to_one(name):
    found = measured(name, balanced_sequences(WORDS, 5, 0), 5, layer=1)
    for head in found.heads:
        numbers = np.array([one.estimate[:2] for one in head.numbers.values()])
        assert numbers.sum() == pytest.approx(1)
        assert ("bias" in head.numbers) == (name in ("alibi", "t5"))


def test_the_first_layer_without_positions_has_content_alone():
    found = measured("nope", examples(40)[examples(40).lengths >= 6], 6)
    assert shares(found, "content-content") == pytest.approx(1)
    assert shares(found, "position-position") == pytest.approx(0, abs=1e-12)
    assert all(head.tests["position-position"] is None for head in found.heads)
    assert all(np.isnan(head.numbers["position-position"].estimate[2]) for head in found.heads)
    deeper = measured("nope", examples(40)[examples(40).lengths >= 6], 6, layer=1)
    assert all((head.interaction.estimate > 0.01).all() for head in deeper.heads)


def test_an_input_term_is_told_as_position_and_only_a_commuting_form_makes_it_toeplitz():
    model, batch = decoder("sinusoidal"), balanced_sequences(WORDS, 11, 0)
    block = model.blocks[0]
    with torch.no_grad():
        block.attention_norm.weight.fill_(1)
        block.heads.qkv.bias.zero_()
    random = commuting_shares(model)[0]
    assert (random < 0.3).all()
    with torch.no_grad():  # Query and key of head 0 are the first three planes, which turns commute with.
        for place in (0, 24):
            block.heads.qkv.weight[place : place + 6] = torch.eye(6, 16)
    assert commuting_shares(model)[0][0] == pytest.approx(1)
    layers = []
    capture_heads(model, batch, layers.append)
    found = layer_terms(layers[0], batch.inputs, 11, draws=19)
    toeplitz = [head.numbers["position-position"].estimate[2] for head in found.heads]
    assert toeplitz[0] > 0.95
    assert max(toeplitz[1:]) < toeplitz[0]
    assert found.heads[0].tests["position-position"].p_value == pytest.approx(0.05)
    spread = [(head.position.high - head.position.low).max() for head in found.heads]
    assert spread[0] < min(spread[1:])


def test_halves_and_interleaved_waves_have_the_same_commuting_share():
    one, other = (
        decoder("nope", seed=0),
        decoder("sinusoidal", seed=0),
    )
    assert commuting_shares(one) == [None] * 3
    assert all((share > 0).all() for share in commuting_shares(other))
    halves = decoder("sinusoidal")
    order = torch.arange(16).view(2, 8).T.flatten()
    with torch.no_grad():
        for block, moved in zip(halves.blocks, other.blocks, strict=True):
            block.heads.qkv.weight[:, order] = moved.heads.qkv.weight
            block.attention_norm.weight[order] = moved.attention_norm.weight
    halves.encoding_of(0).config = ENCODINGS.config("sinusoidal")(d_model=16, layout="halves")
    np.testing.assert_allclose(commuting_shares(halves)[0], commuting_shares(other)[0])


def test_the_position_factor_of_independent_content_is_near_the_mean_rotation():
    found = measured("rope", balanced_sequences(WORDS, 13, 0), 13)
    head = found.heads[0]
    assert head.factor[0] == pytest.approx(1)
    assert head.uniform[0] == pytest.approx(1)
    assert head.factor.shape == head.uniform.shape == (13,)
    assert all(head.factor is None for head in measured("nope", examples(40)[:9], 2).heads)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("path", "does not compute logits as a product"),
        ("cope", "a bias that depends on content"),
        ("pope", "does not compute logits as a product"),
    ],
)
def test_layers_without_such_terms_say_why(name, reason):
    batch = balanced_sequences(WORDS, 5, 0)
    found = measured(name, batch, 5)
    assert not found.heads
    assert re.search(reason, found.reason)


def test_rope_with_absolute_positions_is_split_too():
    assert isinstance(decoder("sum").encoding_of(0), Sum)
    found = measured("sum", balanced_sequences(WORDS, 5, 0), 5)
    assert (shares(found, "position-position") > 1e-3).all()
