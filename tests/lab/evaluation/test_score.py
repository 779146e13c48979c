"""Scores are those of plain arithmetic, whatever the batches, the padding and the labels left out."""

import itertools
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from spectrope.lab.evaluation.score import BUDGET, IGNORED, by_length, correct, counted_labels, predict, score
from spectrope.models.decoder import Decoder, DecoderConfig
from spectrope.tasks.base import Batch

SMALL = DecoderConfig(
    vocabulary=9, n_labels=5, max_length=10, d_model=8, n_layers=1, n_heads=2, head_dim=4, d_ff=8
)


@pytest.fixture
def data() -> Batch:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 11, (23,), generator=generator)
    inputs = torch.randint(1, 9, (23, 10), generator=generator)
    inputs[torch.arange(10) >= lengths[:, None]] = 0
    return Batch(inputs, torch.randint(0, 5, (23,), generator=generator), lengths)


def decoder(config: DecoderConfig) -> Decoder:
    return Decoder(config)


@pytest.mark.parametrize("padding", ["masked", "visible"])
@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_predictions_keep_the_order_of_the_data(data, padding, batch_size):
    model = decoder(replace(SMALL, padding=padding))
    with torch.no_grad():
        expected = model(data)
    assert_close(predict(model, data, batch_size=batch_size), expected)


def test_a_score_is_plain_arithmetic(data):
    model = decoder(SMALL)
    logits = predict(model, data)
    found = score(model, data, batch_size=5)
    assert found.n == 23
    assert found.loss == pytest.approx(F.cross_entropy(logits, data.labels).item(), rel=1e-5)
    assert found.accuracy == pytest.approx(float((logits.argmax(-1) == data.labels).float().mean()))


def test_label_zero_is_left_out_where_the_model_says_so(data):
    model = decoder(replace(SMALL, classes="vocabulary"))
    kept = data[data.labels != 0]
    assert 0 < len(kept) < len(data)
    assert (counted_labels(model, data.labels) == IGNORED).sum() == len(data) - len(kept)
    whole, part = score(model, data), score(model, kept)
    assert whole.n == part.n == len(kept)
    assert whole.loss == pytest.approx(part.loss, rel=1e-5)
    assert whole.accuracy == part.accuracy
    assert len(correct(model, data, predict(model, data))) == len(kept)


def test_pieces_are_sorted_and_cut_only_where_allowed(data):
    pieces = list(by_length(data, 6, trim=True))
    lengths = torch.cat([piece.lengths for _, piece in pieces])
    assert torch.equal(lengths, lengths.sort().values)
    assert [piece.inputs.shape[1] for _, piece in pieces] == [int(p.lengths.max()) for _, p in pieces]
    assert torch.equal(torch.cat([index for index, _ in pieces]).sort().values, torch.arange(23))
    uncut = list(by_length(data, 6, trim=False))
    assert torch.equal(torch.cat([piece.inputs for _, piece in uncut]), data.inputs)


@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize("tokens", [1, 12, 20, 35, 1000])
def test_pieces_are_as_large_as_their_tokens_allow(data, trim, tokens):
    pieces = [piece for _, piece in by_length(data, 6, trim=trim, tokens=tokens)]
    assert torch.equal(torch.cat([piece.labels for piece in pieces]).sort().values, data.labels.sort().values)
    assert all(len(piece) == 1 or (len(piece) <= 6 and piece.inputs.numel() <= tokens) for piece in pieces)
    for piece, following in itertools.pairwise(pieces):
        first = int(following.lengths[0]) if trim else 10
        assert len(piece) == 6 or (len(piece) + 1) * first > tokens


def test_pieces_are_halved_as_long_as_that_saves_enough_padding(data):
    def padded(padding: int | None) -> list[int]:
        found = [piece for _, piece in by_length(data, 23, trim=True, padding=padding)]
        assert torch.equal(torch.cat([piece.lengths for piece in found]), data.lengths.sort().values)
        return [piece.inputs.numel() for piece in found]

    whole, twice, often = padded(None), padded(20), padded(0)
    assert len(whole) == 1 < len(twice) < len(often)
    assert sum(often) < sum(twice) <= whole[0] - 20
    assert padded(whole[0]) == whole
    assert int(data.lengths.sum()) <= sum(often)
    assert len(list(by_length(data, 23, trim=False, padding=0))) == 1


def test_predictions_do_not_depend_on_the_budget_of_tokens(data, monkeypatch):
    model = decoder(SMALL)
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].inputs.numel()))
    expected = predict(model, data)
    assert len(sizes) == 1
    monkeypatch.setitem(BUDGET, "cpu", 20 * SMALL.d_model)
    assert_close(predict(model, data), expected)
    assert max(sizes[1:]) <= 20
    assert len(sizes) > 5


def test_bfloat16_predictions_are_close(data):
    model = decoder(SMALL)
    exact, low = predict(model, data), predict(model, data, dtype=torch.bfloat16)
    assert low.dtype is torch.float32
    assert_close(low, exact, rtol=0.05, atol=0.05)
    assert not torch.equal(low, exact)
