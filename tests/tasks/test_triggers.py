"""Which words trigger: the same for every seed, or one uniform draw per data set."""

import itertools
from collections import Counter

import pytest
import scipy.stats

from spectrope.tasks.counting import Counting
from spectrope.tasks.distance import Distance

TASKS = [
    Distance.Config(vocabulary=5, max_side=2, max_gap=2, max_length=8, triggers="fresh"),
    Counting.Config(vocabulary=5, length=8, n_triggers=2, max_count=8, triggers="fresh"),
]


@pytest.mark.parametrize("config", TASKS, ids=str)
class TestFreshTriggers:
    def test_all_ordered_choices_are_equally_likely(self, config):
        task = config.build()
        counts = Counter(tuple(task.trigger_words(seed).tolist()) for seed in range(2400))
        assert set(counts) == set(itertools.permutations(range(1, 5), 2))
        assert scipy.stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_training_and_held_out_examples_share_them(self, config):
        task = config.build()
        for seed in range(20):
            for part in task.split(30, 30, seed):
                assert task.solve(part, seed).equal(part.labels)


@pytest.mark.parametrize("config", [Distance.Config(), Counting.Config()], ids=str)
def test_fixed_triggers_ignore_the_seed(config):
    task = config.build()
    assert {tuple(task.trigger_words(seed)) for seed in range(20)} == {tuple(range(1, task.n_triggers + 1))}
