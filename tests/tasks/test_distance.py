"""Task 1: its law against enumeration and its margins, its posterior, its anchors, its rules."""

import re
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.exact import as_batch, distance_joint, goodness_of_fit, uniformity
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.tasks.distance import Distance

Config = Distance.Config
LEVEL = 1e-3  # significance of each goodness-of-fit test; the data are seeded, so none is flaky
MINI = {"vocabulary": 128, "max_side": 6, "max_gap": 18, "max_length": 32}
TINY = [
    Config(
        vocabulary=4, max_side=2, max_gap=2, max_length=6, fillers="any"
    ),  # the cut may take all of the right
    Config(vocabulary=4, max_side=2, max_gap=2, max_length=7, fillers="any", triggers="fresh"),
    Config(vocabulary=5, max_side=1, max_gap=3, max_length=9, fillers="any"),  # nothing is cut
    Config(vocabulary=6, max_side=2, max_gap=3, max_length=8),
    Config(vocabulary=6, max_side=2, max_gap=3, max_length=8, triggers="fresh"),
]


@pytest.mark.parametrize("config", TINY, ids=str)
class TestAgainstEnumeration:
    def test_sequences_and_labels_follow_the_joint_law(self, config):
        task = config.build()
        assert goodness_of_fit(task.sample(20_000, 3), distance_joint(task, 3)) > LEVEL

    def test_posterior_of_every_possible_sequence(self, config):
        task = config.build()
        joint = distance_joint(task, 3)
        laws = torch.tensor(np.array(list(joint.values())))
        posterior = task.posterior(as_batch(joint, config.max_length), 3)
        assert_close(posterior, laws / laws.sum(1, keepdim=True), rtol=0, atol=1e-13)

    def test_bayes_accuracy(self, config):
        task, n = config.build(), 20_000
        exact = sum(law.max() for law in distance_joint(task, 3).values())
        error = (
            max(exact * (1 - exact) / n, 0) ** 0.5
        )  # at least the standard error of a mean of values in [0, 1]
        assert abs(task.bayes_accuracy(n, 3) - exact) <= 4 * error + 1e-12


def test_every_impossible_sequence_is_refused():
    config = TINY[0]
    task = config.build()
    possible, words = distance_joint(task, 0), range(1, config.vocabulary)
    every = {x for length in range(1, config.max_length + 1) for x in product(words, repeat=length)}
    impossible = sorted(every - set(possible))
    assert len(impossible) > 500
    for sequence in impossible:
        with pytest.raises(ConfigError, match="sequence 0 of the batch cannot come from this task"):
            task.solve(as_batch([sequence], config.max_length), 0)


def test_the_oracle_names_the_sequence_that_it_cannot_place():
    task = Config(**MINI, triggers="fresh").build()
    batch = task.sample(8, 1)
    batch.inputs[5] = task.sample(1, 2).inputs[0]
    message = "Distance: sequence 5 of the batch cannot come from this task under seed 1; solve with the conf"
    with pytest.raises(ConfigError, match=message):
        task.solve(batch, 1)


def test_a_clean_oracle_refuses_a_sequence_with_two_pairs():
    with pytest.raises(ConfigError, match="sequence 0 of the batch cannot come from this task"):
        Config(**MINI).build().solve(as_batch([(5, 1, 6, 2, 7, 2, 8)], 32), 0)


class TestAnchors:
    """Bayes accuracy of the ambiguous generator, by the project's own earlier enumeration."""

    @pytest.mark.parametrize(("sizes", "percent"), [({}, 97.4), (MINI, 97.1)])
    def test_released_settings(self, sizes, percent):
        assert Config(fillers="any", **sizes).build().bayes_accuracy() * 100 == pytest.approx(
            percent, abs=0.3
        )

    @pytest.mark.parametrize("sizes", [{}, MINI])
    def test_length_alone_tells_little(self, sizes):
        """The most frequent gap at each length, counted one by one."""
        config = Config(**sizes)
        side, most = range(1, config.max_side + 1), range(1, config.max_gap + 1)
        lengths = Counter(
            (min(left + gap + right + 2, config.max_length), gap)
            for left, gap, right in product(side, most, side)
        )
        best = Counter()
        for (length, _), n in lengths.items():
            best[length] = max(best[length], n)
        assert config.build().length_only_accuracy() == sum(best.values()) / sum(lengths.values())

    @pytest.mark.parametrize("sizes", [{}, MINI])
    def test_clean_fillers_leave_no_doubt(self, sizes):
        assert Config(**sizes).build().bayes_accuracy() == 1

    def test_the_posterior_is_calibrated_at_every_level_of_confidence(self):
        task = Config(fillers="any", **MINI).build()
        batch = task.sample(60_000, 4)
        confidence, guess = task.posterior(batch, 4).max(1)
        right = (guess == batch.labels).double()
        for low, high in ((0, 0.5), (0.5, 0.55), (0.55, 0.75)):
            level = (confidence >= low) & (confidence < high)
            spread = (confidence[level] * (1 - confidence[level])).sum().sqrt()
            assert level.sum() > 50
            assert abs((right - confidence)[level].sum()) < 4 * spread
        assert right[confidence == 1].all()


@pytest.fixture(scope="module")
def data():
    """Words, places of both triggers, labels and lengths of 60,000 examples at the paper's settings."""
    task = Config().build()
    batch = task.sample(60_000, 0)
    words = batch.inputs.numpy()
    first, second = ((words == word).argmax(1) for word in task.trigger_words(0))
    return words, first, second, batch.labels.numpy(), batch.lengths.numpy()


class TestMargins:
    """At the paper's settings, each test at significance 0.001."""

    def test_label_is_the_distance_in_index(self, data):
        _, first, second, labels, _ = data
        assert (second - first == labels).all()

    def test_gap_and_left_side_are_uniform(self, data):
        _, left, _, labels, _ = data
        assert uniformity(left - 1, 25) > LEVEL
        assert uniformity(labels - 2, 70) > LEVEL

    def test_right_side_is_uniform_where_the_cut_takes_nothing(self, data):
        _, _, second, _, lengths = data
        right, whole = lengths - second - 1, second < 95
        assert uniformity(right[whole] - 1, 25) > LEVEL
        assert right.min() >= 1
        assert lengths.max() == 120

    def test_the_three_lengths_are_independent(self, data):
        _, left, second, labels, lengths = data
        whole = left < 24  # so that the cut takes nothing
        sizes = left[whole], labels[whole], (lengths - second)[whole]
        for one, other in combinations(sizes, 2):
            table = np.histogram2d(one, other, bins=5)[0]
            assert scipy.stats.chi2_contingency(table).pvalue > LEVEL

    def test_fillers_are_uniform_in_every_segment(self, data):
        words, first, second, _, lengths = data
        every = np.arange(len(words))
        for place in (0, first - 1, first + 1, second - 1, second + 1, lengths - 1):
            assert uniformity(words[every, place] - 3, 571) > LEVEL

    def test_no_segment_repeats_a_word(self, data):
        words, first, second, _, lengths = data
        for row, a, b, end in list(zip(words.tolist(), first, second, lengths, strict=True))[:5000]:
            for segment in (row[:a], row[a + 1 : b], row[b + 1 : end]):
                assert len(set(segment)) == len(segment)


@pytest.mark.parametrize("vocabulary", [255, 256, 257, 65_536, 70_000])
def test_ids_of_every_width(vocabulary):
    task = Config(vocabulary=vocabulary, triggers="fresh").build()
    batch = task.sample(60, 0)
    assert 0.9 * vocabulary < batch.inputs.max() < vocabulary
    assert task.solve(batch, 0).equal(batch.labels)


@st.composite
def configs(draw):
    side, gap = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    fillers = draw(st.sampled_from(["clean", "any"]))
    needed = max(side, gap, 2) if fillers == "any" else max(side, gap) + 2
    return Config(
        vocabulary=needed + 1 + draw(st.integers(0, 20)),
        triggers=draw(st.sampled_from(["fixed", "fresh"])),
        fillers=fillers,
        max_side=side,
        max_gap=gap,
        max_length=side + gap + 2 + draw(st.integers(0, side + 3)),
    )


def fits(words: list[int], left: int, label: int, pair: list[int], config: Distance.Config) -> bool:
    """Whether a sequence may have got its label with this many words on the left."""
    segments = words[:left], words[left + 1 : left + label], words[left + label + 1 :]
    least = 0 if len(words) == config.max_length else 1
    return (
        words[left : left + label + 1 : label] == pair
        and least <= len(segments[2]) <= config.max_side
        and all(len(set(segment)) == len(segment) for segment in segments)
    )


@given(config=configs(), seed=st.integers(0, 2**32 - 1))
def test_every_sequence_of_every_configuration_has_its_label_among_the_possible(config, seed):
    task = config.build()
    batch, pair = task.sample(40, seed), task.trigger_words(seed).tolist()
    posterior = task.posterior(batch, seed)
    assert_close(posterior.sum(1), torch.ones(40, dtype=torch.float64))
    for row, length, law in zip(batch.inputs.tolist(), batch.lengths, posterior, strict=True):
        lefts = range(1, config.max_side + 1)
        labels = range(2, task.n_classes)
        possible = [y for y in labels if any(fits(row[:length], left, y, pair, config) for left in lefts)]
        assert law.nonzero().ravel().tolist() == possible
    assert (posterior.gather(1, batch.labels[:, None]) > 0).all()
    if config.fillers == "clean":
        assert task.solve(batch, seed).equal(batch.labels)


def unchecked(**changes: object) -> None:
    """Validate a changed configuration without the run-time type checks that only tests install."""
    config = Config()
    for name, value in changes.items():
        object.__setattr__(config, name, value)
    config.__post_init__()


class TestRules:
    @pytest.mark.parametrize("field", ["max_side", "max_gap", "max_length"])
    def test_sizes_are_positive(self, field):
        with pytest.raises(ConfigError, match=rf"Distance.Config.{field} must be at least 1; got 0\."):
            Config(**{field: 0})

    def test_the_cut_spares_the_second_trigger(self):
        message = (
            "Distance.Config.max_length must be at least 97, which is max_side + max_gap + 2; got 96. "
            "Lower max_gap or max_side: the cut must spare the second trigger."
        )
        with pytest.raises(ConfigError, match=re.escape(message)):
            Config(max_length=96)
        Config(max_length=97)

    @pytest.mark.parametrize(("fillers", "least"), [("clean", 73), ("any", 71)])
    def test_the_vocabulary_fills_the_longest_segment(self, fillers, least):
        message = rf"vocabulary must be at least {least}; got {least - 1}\. Lower max_gap or max_side: a seg"
        with pytest.raises(ConfigError, match=message):
            Config(vocabulary=least - 1, fillers=fillers)
        batch = Config(vocabulary=least, fillers=fillers).build().sample(50, 0)
        assert batch.inputs.max() == least - 1

    def test_the_vocabulary_holds_both_triggers(self):
        with pytest.raises(ConfigError, match=r"vocabulary must be at least 3; got 2\."):
            Config(vocabulary=2, max_side=1, max_gap=1, fillers="any")

    def test_choices(self):
        with pytest.raises(ConfigError, match="triggers must be 'fixed' or 'fresh'; got 'new'"):
            unchecked(triggers="new")
        with pytest.raises(ConfigError, match="fillers must be 'clean' or 'any'; got 'all'"):
            unchecked(fillers="all")


def test_longer_sequences_are_not_shorter():
    with pytest.raises(ConfigError, match=r"factor must be at least 1; got 0\.5"):
        Distance().longer(0.5, 20, 0)
