"""Planned power, against simulation and against statsmodels' and R's published values."""

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from spectrope.core.errors import ConfigError
from spectrope.stats.paired import net_loss_p
from spectrope.stats.power import (
    detectable_difference,
    detectable_equality,
    detectable_loss,
    detectable_proportion,
)
from spectrope.stats.seeds import seed_proportion, t_interval


def test_a_bound_that_unchanged_pairs_reject_needs_no_loss():
    assert detectable_loss(20, -0.9) == (False, 0.0)


@pytest.mark.parametrize("n", [34, 40])
def test_unchanged_pairs_reject_no_bound_from_above(n):
    suffices, share = detectable_loss(n, 0.2)
    assert suffices
    assert share == pytest.approx(0.44, abs=0.06)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: detectable_difference(6, level=95.0),
        lambda: detectable_proportion(10, level=95.0),
        lambda: detectable_loss(10, 0.2, level=95.0),
        lambda: detectable_proportion(10, power=2.0),
        lambda: detectable_loss(10, 0.2, power=2.0),
    ],
)
def test_levels_and_powers_are_shares(ask):
    with pytest.raises(ConfigError, match=r"level must|power must"):
        ask()


def test_the_difference_is_that_of_power_tables():
    # R: power.t.test(n=20, type="one.sample", power=.8), strict=FALSE gives delta = 0.6604
    assert detectable_difference(20) == pytest.approx(0.660, abs=2e-3)


@pytest.mark.parametrize("n", [3, 6, 12])
def test_that_excess_is_shown_as_often_as_promised(n):
    rng = np.random.default_rng(n)
    values = rng.normal(detectable_difference(n), 1.0, (1000, n))
    shown = np.mean([t_interval(row).low > 0 for row in values])
    assert shown == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize("n", [6, 9, 12])
def test_that_share_is_told_as_often_as_promised(n):
    share = detectable_proportion(n)
    assert share is not None
    counts = np.random.default_rng(n).binomial(n, share, 2000)
    verdicts = {k: seed_proportion([True] * k + [False] * (n - k)).verdict for k in range(n + 1)}
    assert np.mean([verdicts[int(k)] == "holds" for k in counts]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("n", [3, 6, 12])
def test_equality_is_shown_as_often_as_promised(n):
    margin = detectable_equality(n)
    values = np.random.default_rng(n).normal(0.0, 1.0, (1000, n))
    shown = np.mean([max(-t.low, t.high) < margin for t in map(t_interval, values)])
    assert shown == pytest.approx(0.8, abs=0.04)


def test_a_share_beyond_another_than_half_takes_fewer_runs():
    # Four of twelve: P(X >= 4 | 0.1) = 0.0256 is not enough, P(X >= 5 | 0.1) = 0.0043 is.
    share = detectable_proportion(12, beyond=0.1)
    assert share is not None
    assert binom.sf(4, 12, share) == pytest.approx(0.8)
    assert share < 0.5 < detectable_proportion(12)


def test_five_of_five_tell_nothing():
    assert detectable_proportion(5) is None
    assert detectable_proportion(6) == pytest.approx(0.8 ** (1 / 6))


def test_a_loss_is_detected_as_often_as_promised():
    unchanged, share = detectable_loss(18, 0.2)
    assert unchanged == (net_loss_p(0, 0, 18, 0.2)[0] <= 0.025)
    detected = [k for k in range(19) if net_loss_p(k, 0, 18, 0.2)[1] <= 0.025]
    assert sum(multinomial.pmf([k, 18 - k], 18, [share, 1 - share]) for k in detected) == pytest.approx(0.8)


def test_six_pairs_decide_nothing_about_losses_and_twelve_only_that_there_are_some():
    assert detectable_loss(6, 0.2) == (False, None)
    unchanged, share = detectable_loss(12, 0.2)
    assert not unchanged
    assert share is not None


def test_too_few_are_refused():
    with pytest.raises(ConfigError, match="needs at least 2 seeds; got 1"):
        detectable_difference(1)
    with pytest.raises(ConfigError, match="needs at least 2 seeds; got 1"):
        detectable_equality(1)
    with pytest.raises(ConfigError, match="needs at least 1 seed; got 0"):
        detectable_proportion(0)


def test_fewer_seeds_than_a_verdict_needs_detect_nothing_at_any_level():
    assert detectable_proportion(5, level=0.9) is None
    assert seed_proportion([True] * 5, level=0.9).verdict == "inconclusive"


@pytest.mark.parametrize("detectable", [detectable_difference, detectable_equality])
@pytest.mark.parametrize("power", [0.01, 1.0])
def test_a_power_that_no_effect_has_is_refused(detectable, power):
    with pytest.raises(ConfigError, match=r"power must be above 1 - level = 0\.05 and below 1; got"):
        detectable(6, power=power)


def test_a_loss_needs_pairs():
    with pytest.raises(ConfigError, match="0 pairs cannot hold 0 lost and 0 gained"):
        detectable_loss(0, 0.1)
