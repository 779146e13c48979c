"""Task 2: its law against enumeration and its margins, its posterior, its rules."""

import re

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.exact import as_batch, counting_joint, goodness_of_fit, uniformity
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.tasks.counting import Counting

Config = Counting.Config
LEVEL = 1e-3  # significance of each goodness-of-fit test; the data are seeded, so none is flaky
TINY = [
    Config(vocabulary=4, length=4, n_triggers=2, max_count=3, fillers="any"),
    Config(vocabulary=5, length=4, n_triggers=1, max_count=4, fillers="any", triggers="fresh"),
    Config(vocabulary=3, length=5, n_triggers=2, max_count=5, fillers="any"),  # every word is a trigger
    Config(vocabulary=5, length=4, n_triggers=2, max_count=3),
    Config(vocabulary=5, length=4, n_triggers=2, max_count=2, triggers="fresh"),
]


@pytest.mark.parametrize("config", TINY, ids=str)
class TestAgainstEnumeration:
    def test_sequences_and_labels_follow_the_joint_law(self, config):
        task = config.build()
        assert goodness_of_fit(task.sample(20_000, 3), counting_joint(task, 3)) > LEVEL

    def test_posterior_of_every_possible_sequence(self, config):
        task = config.build()
        joint = counting_joint(task, 3)
        laws = torch.tensor(np.array(list(joint.values())))
        posterior = task.posterior(as_batch(joint, config.length), 3)
        assert_close(posterior, laws / laws.sum(1, keepdim=True), rtol=0, atol=1e-13)

    def test_bayes_accuracy(self, config):
        task = config.build()
        exact = sum(law.max() for law in counting_joint(task, 3).values())
        assert task.bayes_accuracy() == pytest.approx(exact, abs=1e-13)


def test_clean_fillers_leave_no_doubt():
    assert Config().build().bayes_accuracy() == 1


def test_the_oracle_refuses_more_triggers_than_can_be():
    task = Config(vocabulary=9, length=6, n_triggers=3, max_count=4).build()
    with pytest.raises(ConfigError, match="Counting: sequence 1 of the batch cannot come from this task"):
        task.solve(as_batch([(1, 2, 3, 1, 5, 5), (1, 2, 3, 1, 2, 5)], 6), 0)


@pytest.fixture(scope="module")
def data():
    """Words, whether they are triggers, and labels of 50,000 examples at the paper's settings."""
    batch = Config().build().sample(50_000, 0)
    words = batch.inputs.numpy()
    return words, words <= 20, batch.labels.numpy()


class TestMargins:
    """At the paper's settings, each test at significance 0.001."""

    def test_label_is_the_number_of_triggers(self, data):
        _, is_trigger, labels = data
        assert (is_trigger.sum(1) == labels).all()

    def test_count_is_uniform(self, data):
        assert uniformity(data[2], 101) > LEVEL

    def test_every_place_is_as_likely(self, data):
        _, is_trigger, labels = data
        taken = is_trigger[labels == 30]
        # given the count, sum of (counts - mean)^2 is chi-squared in units of c (t - c) / (t (t - 1)) per row
        n, c, t = len(taken), 30, 120
        statistic = ((taken.sum(0) - n * c / t) ** 2).sum() / (n * c * (t - c) / (t * (t - 1)))
        assert scipy.stats.chi2.sf(statistic, t - 1) > LEVEL

    def test_words_are_uniform_among_triggers_and_among_fillers(self, data):
        words, is_trigger, _ = data
        assert uniformity(words[is_trigger] - 1, 20) > LEVEL
        assert uniformity(words[~is_trigger] - 21, 553) > LEVEL


@st.composite
def configs(draw):
    length = draw(st.integers(1, 20))
    n_triggers, spare = draw(st.integers(1, 12)), draw(st.integers(0, 12))
    fillers = draw(st.sampled_from(["clean", "any"]))
    return Config(
        vocabulary=n_triggers + (2 if fillers == "clean" else 1) + spare,
        triggers=draw(st.sampled_from(["fixed", "fresh"])),
        fillers=fillers,
        length=length,
        n_triggers=n_triggers,
        max_count=draw(st.integers(1, length)),
    )


@given(config=configs(), seed=st.integers(0, 2**32 - 1))
def test_every_configuration_shows_at_least_as_many_triggers_as_its_label(config, seed):
    task = config.build()
    batch = task.sample(40, seed)
    seen = torch.isin(batch.inputs, torch.from_numpy(task.trigger_words(seed))).sum(1)
    posterior = task.posterior(batch, seed)
    assert_close(posterior.sum(1), torch.ones(40, dtype=torch.float64))
    assert (posterior.gather(1, batch.labels[:, None]) > 0).all()
    assert (seen >= batch.labels).all()
    if config.fillers == "clean":
        assert seen.equal(batch.labels)
        assert task.solve(batch, seed).equal(batch.labels)


class TestRules:
    @pytest.mark.parametrize("field", ["length", "n_triggers", "max_count"])
    def test_sizes_are_positive(self, field):
        with pytest.raises(ConfigError, match=rf"Counting.Config.{field} must be at least 1; got 0\."):
            Config(**{field: 0})

    def test_the_count_fits_the_sequence(self):
        message = "max_count must be at most length, 120; got 121. Lower max_count or raise length."
        with pytest.raises(ConfigError, match=re.escape(message)):
            Config(max_count=121)
        assert Config(max_count=120).build().n_classes == 121

    @pytest.mark.parametrize(("fillers", "least"), [("clean", 22), ("any", 21)])
    def test_the_vocabulary_holds_triggers_and_fillers(self, fillers, least):
        message = rf"vocabulary must be at least {least}; got {least - 1}\. Lower n_triggers or raise vocab"
        with pytest.raises(ConfigError, match=message):
            Config(vocabulary=least - 1, fillers=fillers)
        assert Config(vocabulary=least, fillers=fillers).build().sample(50, 0).inputs.max() == least - 1
