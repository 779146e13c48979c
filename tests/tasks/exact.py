"""Exact laws of tiny generators, by going through everything that can happen."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import combinations, permutations, product
from math import comb, perm

import numpy as np
import scipy.stats
import torch

from spectrope.tasks.base import Batch
from spectrope.tasks.counting import Counting
from spectrope.tasks.distance import Distance

Joint = Mapping[tuple[int, ...], np.ndarray]  # sequence without padding -> P(sequence, label) per label


def distance_joint(task: Distance, seed: int) -> Joint:
    """Every choice of the three lengths and of the three ordered draws, then the cut."""
    config, words = task.config, task.filler_words(seed).tolist()
    first, second = task.trigger_words(seed).tolist()
    joint: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(task.n_classes))
    sides = range(1, config.max_side + 1)
    shapes = list(product(sides, range(1, config.max_gap + 1), sides))
    for shape in shapes:
        ways = np.prod([perm(len(words), size) for size in shape])
        for left, gap, right in product(*(permutations(words, size) for size in shape)):
            sequence = (*left, first, *gap, second, *right)[: config.max_length]
            joint[sequence][len(gap) + 1] += 1 / (len(shapes) * ways)
    return joint


def counting_joint(task: Counting, seed: int) -> Joint:
    """Every count, choice of places, trigger word per place and filler word elsewhere."""
    length, n_classes = task.config.length, task.n_classes
    triggers, fillers = task.trigger_words(seed).tolist(), task.filler_words(seed).tolist()
    joint: dict[tuple[int, ...], np.ndarray] = defaultdict(lambda: np.zeros(n_classes))
    for count in range(n_classes):
        ways = comb(length, count) * len(triggers) ** count * len(fillers) ** (length - count)
        for places in combinations(range(length), count):
            pools = [triggers if place in places else fillers for place in range(length)]
            for sequence in product(*pools):
                joint[sequence][count] += 1 / (n_classes * ways)
    return joint


def as_batch(sequences: Iterable[tuple[int, ...]], width: int) -> Batch:
    """Sequences as a padded batch; the labels are unknown and set to 0."""
    rows = list(sequences)
    inputs = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return Batch(inputs, torch.zeros(len(rows), dtype=torch.int64), torch.tensor([len(row) for row in rows]))


def uniformity(values: np.ndarray, size: int) -> float:
    """p-value of the chi-squared test that values are uniform on 0, ..., size - 1."""
    counts = np.bincount(values, minlength=size)
    assert len(counts) == size
    return scipy.stats.chisquare(counts).pvalue


def goodness_of_fit(batch: Batch, joint: Joint) -> float:
    """p-value of the chi-squared test that sequences and labels follow the joint law.

    Cells that expect fewer than five are pooled; a pair that cannot occur gives 0.
    """
    expected = {(x, y): p * len(batch) for x, law in joint.items() for y, p in enumerate(law) if p > 0}
    observed = dict.fromkeys(expected, 0)
    examples = zip(batch.inputs.tolist(), batch.labels.tolist(), batch.lengths.tolist(), strict=True)
    for words, label, length in examples:
        cell = (tuple(words[:length]), label)
        if cell not in observed:
            return 0.0
        observed[cell] += 1
    common = [cell for cell, mean in expected.items() if mean >= 5]
    rare = [cell for cell, mean in expected.items() if mean < 5]
    groups = [[cell] for cell in common] + ([rare] if rare else [])
    sums = [[sum(counts[cell] for cell in group) for group in groups] for counts in (observed, expected)]
    return scipy.stats.chisquare(*sums).pvalue
