"""Reversal, Dyck languages and mixed questions: what is special about them, and what their controls leave."""

import itertools

import numpy as np
import pytest
import torch

from spectrope.core import ConfigError
from spectrope.tasks import Dyck, Mixed, Reversal
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


def read_aloud(tokens, answers):
    """The answer to the last word's question, word by word: 0 and 1 ask, 2 and 3 are triggers."""
    *words, question = [token - 1 for token in tokens]
    if question == 1:
        return words.index(3) - words.index(2) - 1
    (named,) = [word - 4 for word in words if 4 <= word < 4 + answers]
    return named


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixed_question_is_about_the_distance_as_often_as_the_knob_says(share):
    task = Mixed(position_share=share, n_answers=5, n_fillers=7, max_words=9)
    batch = task.sample(2000, 0)
    rows = zip(batch.inputs.tolist(), batch.lengths.tolist(), batch.labels.tolist(), strict=True)
    assert all(read_aloud(tokens[:length], 5) == label for tokens, length, label in rows)
    last = batch.inputs.gather(1, batch.lengths[:, None] - 1)
    assert abs((last == 2).double().mean().item() - share) < 0.035
    assert (batch.labels.bincount() / 2000 - 1 / 5).abs().max() < 0.04  # Whichever is asked.


def test_sequences_of_different_shares_differ_in_their_questions_alone():
    one, other = (Mixed(position_share=share).sample(100, 3) for share in (0.0, 1.0))
    changed = one.inputs != other.inputs
    assert torch.equal(changed.sum(1), torch.ones(100).long())
    assert torch.equal(changed.long().argmax(1), one.lengths - 1)


def test_without_order_the_best_accuracy_is_that_of_the_questions_about_content():
    assert Mixed(position_share=0.25, n_answers=10, cue="content").bayes_accuracy() == 0.75 + 0.025
    assert Mixed(position_share=0.25, n_answers=10, cue="position").bayes_accuracy() == 0.1
    batch = Mixed(position_share=1.0, cue="content").sample(4000, 0)
    words = batch.inputs - 1
    first, second = ((words == trigger).long().argmax(1) for trigger in (2, 3))
    correlation = torch.corrcoef(torch.stack([second - first, batch.labels]).double())[0, 1]
    assert abs(correlation) < 0.06  # The distance left in the shuffled sequence is another one.


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"position_share": 1.5}, "position_share must be between"),
        ({"max_words": 33}, "max_words must be at"),
    ],
)
def test_impossible_sizes_are_refused(fields, rule):
    with pytest.raises(ConfigError, match=rule):
        Mixed(**fields)
