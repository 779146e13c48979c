import itertools
import math

import numpy as np
import pytest

from spectrope.core.errors import ConfigError
from spectrope.stats.sequential import Game, TargetPrecision, Threshold, confidence_sequence


def log_capital(x, m, aim, population=math.inf):
    return Game.of(x, aim, population).log_capital(m)


AIMS = [TargetPrecision(0.005), TargetPrecision(0.05), Threshold(0.05)]
DROPS = np.array([0, 0, 0.002, 0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9])


def population(rng, drops, size):
    """Paired differences in random order whose means are `drops`, with gains among the losses."""
    rows = np.zeros((len(drops), size), dtype=np.int8)
    for row, drop in zip(rows, drops, strict=True):
        gained = int(rng.integers(0, 1 + round(size * min(0.03, (1 - drop) / 4))))
        row[: round(drop * size) + gained] = 1
        row[round(drop * size) + gained :][:gained] = -1
    return rng.permuted(rows, axis=1)


def sweeps(rng, n, size):
    """n simulated sweeps of ten heads each, with their true drops."""
    x = np.concatenate([population(rng, DROPS, size) for _ in range(n)])
    return x.astype(float), x.mean(1)


@pytest.mark.sampled
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("size", [1000, math.inf])
def test_a_thousand_sweeps_are_covered_at_all_times_for_all_heads(aim, size):
    rng = np.random.default_rng(0)
    alpha = 0.05 / len(DROPS)  # union bound over the heads of a sweep
    covered = 0
    for _ in range(10):
        if math.isinf(size):
            true = np.tile(DROPS, 100)
            x = ((rng.random((1000, 600)) < true[:, None]) * 1.0).astype(float)
        else:
            x, true = sweeps(rng, 100, int(size))
        # The largest capital so far is compared, so this is the worst over all times.
        up, down = log_capital(x, true, aim, size), log_capital(-x, -true, aim, size)
        refuted = np.maximum(up, down) >= math.log(2 / alpha)
        covered += 100 - np.count_nonzero(refuted.reshape(100, -1).any(1))
    assert covered >= 950


@pytest.mark.parametrize("aim", AIMS)
def test_each_head_by_itself_is_covered(aim):
    x, true = sweeps(np.random.default_rng(1), 100, 800)
    up, down = log_capital(x, true, aim, 800), log_capital(-x, -true, aim, 800)
    refuted = (np.maximum(up, down) >= math.log(2 / 0.05)).reshape(100, -1)
    assert refuted.mean() <= 0.05
    assert refuted.mean(0).max() <= 0.12  # five standard errors above 5 % at any one drop


def test_a_bet_on_noise_has_mean_capital_at_most_one():
    rng = np.random.default_rng(2)
    x = rng.choice([-1.0, 0, 1], p=[0.1, 0.7, 0.2], size=(40_000, 30))
    # Up to t = 30 the running maximum is at most Ville's bound at every level.
    best = log_capital(x, np.full(len(x), 0.1), TargetPrecision(0.1))
    for level in (2.0, 5.0, 20.0):
        assert np.mean(best >= math.log(level)) <= 1 / level


@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("size", [400, math.inf])
def test_capital_decreases_in_the_mean(aim, size):
    x = population(np.random.default_rng(3), DROPS, 400)[:, :250].astype(float)
    grid = [log_capital(x, np.full(len(x), m), aim, size) for m in np.linspace(-1, 1, 81)]
    assert (np.array(grid[1:]) <= np.array(grid[:-1])).all()


@pytest.mark.parametrize("size", [400, math.inf])
def test_the_ends_are_where_capital_crosses(size):
    x = population(np.random.default_rng(4), DROPS, 400)[:, :300]
    found = confidence_sequence(x, TargetPrecision(0.02), population=size)
    enough, values = math.log(2 / 0.05), x.astype(float)
    inner, aim = found.low + 2e-5, TargetPrecision(0.02)
    assert (log_capital(values, found.low, aim, size)[found.low > -1] >= enough).all()
    assert (log_capital(values, inner, aim, size) < enough).all()
    assert (log_capital(-values, -found.high, aim, size)[found.high < 1] >= enough).all()
    assert (log_capital(-values, -found.high + 2e-5, aim, size) < enough).all()


def test_ends_mirror():
    x = population(np.random.default_rng(5), DROPS, 300)[:, :200]
    found, mirror = (confidence_sequence(s * x, Threshold(0.05), population=300) for s in (1, -1))
    np.testing.assert_array_equal(found.low, -mirror.high)
    np.testing.assert_array_equal(found.high, -mirror.low)


def test_intervals_shrink_as_examples_come_in_and_close_on_the_population():
    x = population(np.random.default_rng(6), DROPS, 500)
    found = [
        confidence_sequence(x[:, :t], TargetPrecision(0.01), population=500)
        for t in (0, 50, 200, 400, 499, 500)
    ]
    assert (found[0].low == -1).all()
    assert (found[0].high == 1).all()
    for early, late in itertools.pairwise(found):
        assert (late.low >= early.low - 2e-5).all()
        assert (late.high <= early.high + 2e-5).all()
    assert (found[-2].high - found[-2].low <= 2 / 500 + 3e-5).all()
    np.testing.assert_array_equal(found[-1].low, x.mean(1))
    np.testing.assert_array_equal(found[-1].high, x.mean(1))


def test_impossible_means_are_refuted_at_once():
    x = np.ones((1, 6))
    assert log_capital(x, np.array([0.19]), TargetPrecision(0.1), 10)[0] == math.inf  # at least (6 - 4) / 10
    assert log_capital(x, np.array([0.21]), TargetPrecision(0.1), 10)[0] < math.inf


def test_a_head_without_effect_takes_few_examples():
    silent = np.zeros((1, 1100), dtype=np.int8)
    close = confidence_sequence(silent, TargetPrecision(0.005), population=30_000)
    assert close.high[0] - close.low[0] <= 0.01  # (1 - 0.005)^n = 0.025 needs 736 at the very least
    coarse = confidence_sequence(silent[:, :120], Threshold(0.05), population=30_000)
    assert Threshold(0.05).reached(coarse.low, coarse.high)[0]


def test_aims_say_when_they_are_reached():
    low, high = np.array([-0.01, 0.06, -0.2, 0.04]), np.array([0.01, 0.2, -0.06, 0.07])
    assert Threshold(0.05).reached(low, high).tolist() == [True, True, True, False]
    assert TargetPrecision(0.016).reached(low, high).tolist() == [True, False, False, True]


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1])
def test_aims_outside_their_range_are_refused(value):
    with pytest.raises(ConfigError, match=r"TargetPrecision.half_width must be a fraction above 0 and"):
        TargetPrecision(value)
    with pytest.raises(ConfigError, match=r"Threshold.level must be a fraction above 0 and below 1"):
        Threshold(value)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros((1, 5)), {"population": 3}, "a population of 3 cannot have 5 values"),
        (np.zeros((1, 5)), {"alpha": 3.0}, "alpha must be between 0 and 1; got 3"),
        (np.full((1, 5), 3.0), {}, r"values must lie in \[-1, 1\]"),
        (np.full((1, 5), np.nan), {}, r"values must lie in \[-1, 1\]"),
    ],
)
def test_what_no_interval_is_valid_for_is_refused(values, options, message):
    with pytest.raises(ConfigError, match=message):
        confidence_sequence(values, Threshold(0.05), **options)
