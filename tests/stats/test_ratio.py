import numpy as np
import pytest

from spectrope.core.errors import ConfigError
from spectrope.stats.ratio import RatioMoments, ratio_exceedance_p, ratio_lower_bound


def sample(rng, n, share=0.5):
    """A part and its whole per example, with means in the given ratio."""
    own = rng.random(n) < 0.4
    rest = rng.binomial(4, 0.1 * (1 / share - 1), n)
    return own.astype(int), own + rest


def test_moments_are_those_of_the_means():
    own, whole = sample(np.random.default_rng(0), 500)
    m = RatioMoments.of(own, whole)
    assert m.var_a == pytest.approx(own.var(ddof=1) / 500)
    assert m.cov == pytest.approx(np.cov(own, whole)[0, 1] / 500)
    assert (m.a, m.b) == (own.mean(), whole.mean())


@pytest.mark.parametrize("n", [30, 200, 3000])
def test_the_bound_inverts_the_test(n):
    rng = np.random.default_rng(1)
    for _ in range(100):
        m = RatioMoments.of(*sample(rng, n))
        for ratio in (0.3, 0.45, 0.5, 0.6):
            assert (ratio_exceedance_p(m, ratio) <= 0.05) == (ratio_lower_bound(m) >= ratio)
        assert ratio_exceedance_p(m, ratio_lower_bound(m)) == pytest.approx(0.05)


def test_the_bound_covers():
    rng = np.random.default_rng(2)
    low = [ratio_lower_bound(RatioMoments.of(*sample(rng, 400))) for _ in range(4000)]
    assert 0.94 < np.mean(np.array(low) <= 0.5) < 0.96


def test_nothing_in_the_numerator_bounds_at_zero():
    whole = np.array([1, 2, 1, 0, 3])
    assert ratio_lower_bound(RatioMoments.of(np.zeros(5), whole)) == 0
    assert ratio_lower_bound(RatioMoments.of(-whole, whole)) == 0
    assert ratio_exceedance_p(RatioMoments.of(np.zeros(5), whole), 0.0) == 0.5


def test_observations_that_all_agree_leave_no_doubt():
    own = np.ones(10)
    m = RatioMoments.of(own, 2 * own)
    assert ratio_lower_bound(m) == pytest.approx(0.5)
    assert ratio_exceedance_p(m, 0.4) == 0
    assert ratio_exceedance_p(m, 0.6) == 1


def test_a_bound_is_on_one_side():
    with pytest.raises(ConfigError, match=r"level must be from 0\.5 up to below 1; got 0\.3"):
        ratio_lower_bound(RatioMoments(1.0, 1.0, 0.01, 0.01, 0.0, 10), level=0.3)


@pytest.mark.parametrize("b", [0.0, -1.0])
def test_a_ratio_needs_a_positive_denominator(b):
    moments = RatioMoments(-1.0, b, 0.01, 0.01, 0.0, 20)
    for ask in (lambda: ratio_exceedance_p(moments, 0.5), lambda: ratio_lower_bound(moments)):
        with pytest.raises(ConfigError, match="denominator's mean must be positive"):
            ask()
