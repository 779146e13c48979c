"""Sequences for language models: what is asked for follows from what came before, and nothing else."""

import numpy as np
import pytest
import torch

from spectrope.checkpoints.sequences import UNSCORED, continuing, padded, predicting, repeated_tokens
from spectrope.core.errors import ConfigError

TOKENS = np.arange(10, 30)


def test_induction_repeats_the_first_half():
    ids, wanted = repeated_tokens(TOKENS, 5, 12, "induction")
    assert torch.equal(ids[:, :6], ids[:, 6:])
    assert (wanted == (torch.arange(12) > 6)).all()
    assert set(ids.unique().tolist()) <= set(TOKENS.tolist())
    assert torch.equal(ids, repeated_tokens(TOKENS, 5, 12, "induction")[0])
    assert not torch.equal(ids, repeated_tokens(TOKENS, 5, 12, "induction", seed=1)[0])


def test_distance_repeats_with_a_period_of_each_sequence():
    ids, wanted = repeated_tokens(TOKENS, 200, 16, "distance")
    periods = 15 - wanted.sum(1)
    assert (periods.min(), periods.max()) == (2, 8)
    for row, period in zip(ids, periods, strict=True):
        assert torch.equal(row[period:], row[:-period])


def test_a_causal_model_is_asked_one_place_earlier():
    ids, wanted = repeated_tokens(TOKENS, 3, 8, "induction")
    data = predicting(ids, wanted, torch.full((3,), 8))
    assert torch.equal(data.targets[:, 4:7], ids[:, 5:])
    assert data.scored.sum(1).tolist() == [3, 3, 3]
    assert torch.equal(data.ids, ids)


def test_a_model_that_sees_both_ways_is_asked_for_hidden_tokens():
    ids = torch.from_numpy(np.random.default_rng(0).choice(TOKENS, (50, 100)))
    wanted = torch.arange(100).expand(50, -1) >= 20
    data = predicting(ids, wanted, torch.full((50,), 100), mask=3)
    assert torch.equal(data.targets[data.scored], ids[data.scored])
    assert (data.ids[data.scored] == 3).all()
    assert torch.equal(data.ids[~data.scored], ids[~data.scored])
    assert not data.scored[:, :20].any()
    assert data.scored.sum(1).min() >= 1
    assert data.scored[:, 20:].double().mean().item() == pytest.approx(0.15, abs=0.03)


def test_a_decoder_continues_what_an_encoder_has_read():
    ids, lengths = padded([[5, 6, 7, 8, 9], [5, 6, 7]], padding=0)
    wanted = (torch.arange(5) < lengths[:, None]) & (torch.arange(5) != 3)
    data = continuing(ids, wanted, lengths, start=2)
    assert data.read.tolist() == [[5, 6, 7], [5, 6, 7]]
    assert data.ids.tolist() == [[2, 8], [2, 7]]
    assert data.targets.tolist() == [[UNSCORED, 9], [7, UNSCORED]]
    assert (data.lengths.tolist(), data.read_lengths.tolist()) == ([2, 1], [3, 2])
    assert (data.width, data.ragged) == (5, True)
    short = data[1:].trimmed()
    assert (short.read.tolist(), short.ids.tolist(), short.ragged) == ([[5, 6]], [[2]], False)
    assert data.places("encoder").tolist() == [[True] * 3, [True, True, False]]
    assert torch.equal(data.places("cross"), data.real)
    given = data.inputs(2)
    assert given["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]] * 2
    assert given["decoder_input_ids"].shape == (4, 2)


def test_padding_is_told_from_tokens():
    ids, lengths = padded([[5, 6], [7, 8, 9, 10]], padding=1)
    assert ids.tolist() == [[5, 6, 1, 1], [7, 8, 9, 10]]
    data = predicting(ids, torch.arange(4) < lengths[:, None], lengths)
    assert data.real.tolist() == [[True, True, False, False], [True] * 4]
    assert data.targets[0].tolist() == [6, UNSCORED, UNSCORED, UNSCORED]
    assert data[:1].trimmed().ids.tolist() == [[5, 6]]
    assert len(data[torch.tensor([1])]) == 1


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="every sequence must hold a token to predict"):
        continuing(torch.tensor([[5, 6]]), torch.tensor([[True, False]]), torch.tensor([2]), 0)
    with pytest.raises(ConfigError, match="at least 8; got 7"):
        repeated_tokens(TOKENS, 2, 7, "induction")
    with pytest.raises(ConfigError, match="must be one of induction, distance; got 'counting'"):
        repeated_tokens(TOKENS, 2, 8, "counting")
    with pytest.raises(ConfigError, match="every sequence must hold a token to predict"):
        predicting(torch.tensor([[5]]), torch.ones(1, 1, dtype=torch.bool), torch.tensor([1]))
