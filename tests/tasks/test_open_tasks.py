"""Reversal and Dyck languages: what is special about them, and what their controls leave."""

import itertools

import numpy as np
import pytest
import torch

from spectrope.tasks import Dyck, Reversal
from spectrope.tasks.dyck import is_balanced

CUES = ("both", "content", "position")


def balanced(word, max_depth):
    """Whether a word of brackets is balanced, by removing innermost pairs of text."""
    text = "".join("()[]"[bracket] for bracket in word)
    depth = max(itertools.accumulate(1 if one in "([" else -1 for one in text))
    while (shorter := text.replace("()", "").replace("[]", "")) != text:
        text = shorter
    return not text and depth <= max_depth


def test_words_are_recognised_as_by_removing_pairs():
    words = np.array(list(itertools.product(range(4), repeat=6)))
    for max_depth in (1, 2, 3):
        found = is_balanced(words, np.full(len(words), 6), max_depth)
        assert found.tolist() == [balanced(word, max_depth) for word in words]
        assert found.sum() == {1: 8, 2: 32, 3: 40}[max_depth]


def test_all_words_of_a_length_are_equally_likely():
    batch = Dyck(kinds=1, max_pairs=4, max_depth=3).sample(20_000, 0)
    words = batch.inputs[(batch.labels == 1) & (batch.lengths == 8)]
    counts = words.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 13  # 14 Dyck words of 4 pairs, one of which is 4 deep.
    assert (counts / counts.sum() - 1 / 13).abs().max() < 0.015


@pytest.mark.parametrize("kinds", [1, 2])
def test_brackets_are_as_frequent_in_both_classes(kinds):
    batch = Dyck(kinds=kinds, max_pairs=12, max_depth=3).sample(4000, 1)
    opening = ((batch.inputs > 0) & (batch.inputs % 2 == 1)).sum(1)
    assert torch.equal(2 * opening, batch.lengths)
    assert abs(batch.labels.double().mean().item() - 0.5) < 0.03


def test_a_reversed_sequence_is_read_word_by_word():
    task = Reversal(n_words=5, max_words=6)
    batch = task.sample(300, 0)
    for tokens, length, label in zip(
        batch.inputs.tolist(), batch.lengths.tolist(), batch.labels, strict=True
    ):
        *words, query = tokens[:length]
        assert words[::-1][query - 6] - 1 == label


@pytest.mark.parametrize("make", [Reversal, Dyck])
def test_controls_keep_the_labels_and_lower_the_ceiling(make):
    batches = {cue: make(cue=cue).sample(200, 0) for cue in CUES}
    ceilings = [make(cue=cue).bayes_accuracy(500) for cue in CUES]
    assert ceilings[0] == 1
    assert max(ceilings[1:]) <= 0.5
    for cue in CUES[1:]:
        assert torch.equal(batches[cue].labels, batches["both"].labels)
        assert torch.equal(batches[cue].lengths, batches["both"].lengths)
    one, other = batches["content"].inputs.sort(1).values, batches["both"].inputs.sort(1).values
    assert torch.equal(one, other)
    assert not torch.equal(batches["position"].inputs, batches["both"].inputs)
