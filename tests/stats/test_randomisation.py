"""Randomisation tests: the p-value counts, and what is undefined."""

import math

import numpy as np
import pytest

from spectrope.core.errors import ConfigError
from spectrope.stats.randomisation import randomisation_test


def test_the_p_value_counts_moves_that_reach_the_statistic():
    found = randomisation_test(0.5, np.array([0.1, 0.5 * (1 - 1e-15), 0.7, 0.2]))
    assert found.p_value == 3 / 5
    assert found.draws == 4
    assert found.statistic == 0.5


def test_moves_without_a_statistic_count_against_the_alternative():
    found = randomisation_test(0.5, np.array([0.1, math.nan, 0.3]))
    assert found.p_value == 2 / 4
    assert found.null_mean == pytest.approx(0.2)
    assert 0.1 < found.null_quantile < 0.3


def test_its_size_never_exceeds_the_level():
    rng = np.random.default_rng(0)
    p = [randomisation_test(*(lambda x: (x[0], x[1:]))(rng.random(20))).p_value for _ in range(2000)]
    assert np.mean(np.array(p) <= 0.05) == pytest.approx(0.05, abs=0.015)


def test_no_draws_are_refused():
    with pytest.raises(ConfigError, match="draws must be at least 1; got 0"):
        randomisation_test(1.0, np.ones(0))


def test_ties_with_a_negative_statistic_count_as_reached():
    assert randomisation_test(-1.0, np.full(99, -1.0)).p_value == 1.0
    assert randomisation_test(-1.0, np.full(99, -2.0)).p_value == 0.01
