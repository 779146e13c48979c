"""The mixed logistic model: against quadrature by SciPy, closed forms, and under simulation."""

import numpy as np
import pytest
from scipy import integrate, special, stats

from spectrope.core import ConfigError
from spectrope.stats import MixedLogistic

SEEDS = np.array([0, 0, 1, 1, 2, 2, 2])
EVENTS = np.array([True, False, True, True, False, False, True])
LEVELS = np.array([0, 1, 0, 1, 0, 1, 1])
POINTS = np.array([[0.3, 0.2, -0.7, 0.9], [-0.2, -0.4, 1.1, 0.4]])  # Overall, level 0, difference, spread.


def by_quadrature(overall, reference, difference, spread):
    """The logarithm of marginal likelihood times priors, integrated seed by seed."""
    by_level = stats.norm(0, 2.5 / np.sqrt(2))
    total = by_level.logpdf(reference) + by_level.logpdf(reference + difference)
    total += stats.norm.logpdf(overall, 0, 10) + stats.norm.logpdf(spread)
    for seed in np.unique(SEEDS):
        mine = seed == SEEDS

        def density(z, mine=mine):
            chances = special.expit(overall + reference + difference * LEVELS[mine] + spread * z)
            return np.prod(np.where(EVENTS[mine], chances, 1 - chances)) * stats.norm.pdf(z)

        total += np.log(integrate.quad(density, -12, 12, epsabs=1e-13)[0])
    return total


def test_the_penalised_marginal_likelihood_agrees_with_adaptive_quadrature():
    model, (first, second) = MixedLogistic(EVENTS, LEVELS, SEEDS), POINTS
    expected = by_quadrature(*second) - by_quadrature(*first)
    assert model._cost(first)[0] - model._cost(second)[0] == pytest.approx(expected, abs=1e-6)


def test_the_gradient_is_that_of_the_cost():
    model, at, step = MixedLogistic(EVENTS, LEVELS, SEEDS), POINTS[0], 1e-6
    ends = [(model._cost(at + step * unit)[0], model._cost(at - step * unit)[0]) for unit in np.eye(4)]
    np.testing.assert_allclose(model._cost(at)[1], [(a - b) / (2 * step) for a, b in ends], rtol=1e-6)


def test_many_runs_of_one_seed_give_the_log_odds_ratio_of_their_table():
    events = np.repeat([True, False, True, False], [300, 700, 500, 500])
    (effect,) = MixedLogistic(events, np.repeat([0, 1], 1000), np.zeros(2000, int)).differences()
    assert effect.estimate == pytest.approx(np.log(0.5 / 0.5) - np.log(0.3 / 0.7), abs=0.005)
    half = 1.96 * np.sqrt(1 / 300 + 1 / 700 + 1 / 500 + 1 / 500)  # Woolf's interval.
    assert (effect.high - effect.low) / 2 == pytest.approx(half, rel=0.02)


def test_a_level_without_events_has_a_finite_estimate_and_the_right_sign():
    events = np.repeat([True, False], [12, 12])
    (effect,) = MixedLogistic(events, np.repeat([0, 1], 12), np.tile(np.arange(12), 2)).differences()
    assert effect.low < effect.estimate < effect.high < 0
    assert np.isfinite([effect.low, effect.estimate]).all()


def test_levels_with_the_same_runs_do_not_differ():
    events, levels = np.tile([False] * 9 + [True] * 3, 2), np.repeat([0, 1], 12)
    for shown in (events, np.zeros(24, bool)):
        (effect,) = MixedLogistic(shown, levels, np.tile(np.arange(12), 2)).differences()
        assert effect.estimate == pytest.approx(0, abs=1e-4)
        assert effect.low == pytest.approx(-effect.high, abs=3e-3)


def test_seeds_that_differ_are_told_from_seeds_that_do_not():
    seeds, levels = np.repeat(np.arange(20), 4), np.tile([0, 1], 40)
    apart = MixedLogistic(np.repeat(np.arange(20) % 2 == 0, 4), levels, seeds)
    alike = MixedLogistic(np.tile([True, True, False, False], 20), levels, seeds)
    assert apart.spread > 2 > 0.5 > alike.spread


def test_intervals_cover_the_true_effect_as_often_as_they_say():
    rng, covered, studies = np.random.default_rng(0), 0, 25
    seeds, levels = np.tile(np.arange(12), 2), np.repeat([0, 1], 12)
    for _ in range(studies):
        logits = -0.5 + 1.2 * levels + rng.normal(size=12)[seeds]
        (effect,) = MixedLogistic(rng.random(24) < special.expit(logits), levels, seeds).differences()
        covered += effect.low <= 1.2 <= effect.high
    assert stats.binom.cdf(covered, studies, 0.95) > 0.01


def test_no_run_is_refused():
    with pytest.raises(ConfigError, match="a logistic model needs at least one run; got none"):
        MixedLogistic(EVENTS[:0], LEVELS[:0], SEEDS[:0])


@pytest.mark.parametrize("level", [95, 1.0, 0.0])
def test_a_level_is_a_share(level):
    events, levels, seeds = np.array([True, False] * 8), np.arange(16) % 2, np.arange(16) // 2
    with pytest.raises(ConfigError, match="level must"):
        MixedLogistic(events, levels, seeds).differences(level=float(level))
