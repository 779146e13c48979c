"""Intervals over examples."""

import numpy as np
import pytest
from scipy import stats

from spectrope.core.errors import ConfigError
from spectrope.stats.examples import jackknife_intervals, mean_intervals


def test_means_have_students_intervals():
    values = np.random.default_rng(0).normal(size=(12, 3))
    found = mean_intervals(values)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(found.low, expected.low)
    np.testing.assert_allclose(found.high, expected.high)
    np.testing.assert_allclose(found.estimate, values.mean(0))


def test_undefined_values_make_an_undefined_mean():
    values = np.ones((4, 2))
    values[2, 1] = np.nan
    found = mean_intervals(values)
    assert found.at(1) is None
    assert found.at(0).low == 1.0


def test_the_jackknife_of_a_mean_with_single_examples_is_students_interval():
    values = np.random.default_rng(1).normal(size=15)
    found = jackknife_intervals(lambda index: np.asarray(values[index].mean()), 15, groups=15)
    expected = mean_intervals(values)
    assert found.low == pytest.approx(expected.low)
    assert found.high == pytest.approx(expected.high)


def test_the_jackknife_covers_the_ratio_of_means():
    rng, hits = np.random.default_rng(2), 0
    for _ in range(200):
        values = rng.normal([2.0, 4.0], 1.0, size=(60, 2))
        found = jackknife_intervals(
            lambda index, v=values: np.asarray(v[index, 0].mean() / v[index, 1].mean()), 60
        )
        hits += found.low <= 0.5 <= found.high
    assert 180 <= hits <= 199


def test_too_few_examples_are_refused():
    with pytest.raises(ConfigError, match="an interval over examples needs at least 2 of them; got 1"):
        mean_intervals(np.ones((1, 2)))
    with pytest.raises(ConfigError, match="a jackknife needs at least 2 groups of examples; got 1"):
        jackknife_intervals(lambda index: np.zeros(1), 1)
