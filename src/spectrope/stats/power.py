"""Statistical power of a number of seeds, before any of them is run."""

import numpy as np
from scipy import integrate, optimize, stats

from spectrope.core import ConfigError
from spectrope.stats.interval import require_level
from spectrope.stats.paired import net_loss_p
from spectrope.stats.seeds import MIN_SEEDS


def detectable_difference(n: int, level: float = 0.95, power: float = 0.8) -> float:
    r"""Smallest detectable excess of a mean over a threshold, in standard deviations between seeds.

    This is the d at which Student's interval of n seeds lies above the threshold with probability `power`:
    :math:`P(T_{n-1}(d\sqrt n) > t_{n-1,(1+level)/2}) = power`, with T noncentral.

    Raises:
        ConfigError: If there are fewer than two seeds, or the power is not above `1 - level` and below 1.
    """
    critical = _critical(n, level, power)

    def lacking(d: float) -> float:
        return float(stats.nct.sf(critical, n - 1, d * np.sqrt(n))) - power

    return float(optimize.brentq(lacking, 0.0, 10 * critical))  # pyright: ignore[reportArgumentType]


def detectable_equality(n: int, level: float = 0.95, power: float = 0.8) -> float:
    r"""Smallest margin within which n seeds can establish a true mean of 0, in standard deviations.

    This is the m at which Student's interval lies within ±m with probability `power`, where s is the standard
    deviation of n seeds: :math:`E_s[2\Phi(\sqrt n\,m-t_{n-1,(1+level)/2}\,s)-1]_+=power`.

    Raises:
        ConfigError: If there are fewer than two seeds, or the power is not above `1 - level` and below 1.
    """
    critical, scale = _critical(n, level, power), (n - 1) ** -0.5

    def lacking(margin: float) -> float:
        reach = margin * np.sqrt(n)

        def inside(s: float) -> float:
            both_sides = 2 * stats.norm.cdf(reach - critical * s) - 1
            return float(both_sides * stats.chi.pdf(s, n - 1, scale=scale))

        return float(integrate.quad(inside, 0.0, reach / critical)[0]) - power

    return float(optimize.brentq(lacking, 1e-9, 10 * critical))  # pyright: ignore[reportArgumentType]


def detectable_proportion(
    n: int, level: float = 0.95, power: float = 0.8, beyond: float = 0.5
) -> float | None:
    """Smallest true proportion of runs with an effect at which n runs establish a majority.

    As in `seed_proportion`, a majority is established if the Clopper-Pearson interval of at least `MIN_SEEDS`
    runs lies above one half, or above `beyond`. None if even n of n runs would not suffice.

    Raises:
        ConfigError: If there is no seed, or the power is not above `1 - level` and below 1.
    """
    _require_power(level, power)
    if n < 1:
        raise ConfigError(f"the power of a proportion needs at least 1 seed; got {n}.")
    if n < MIN_SEEDS:
        return None
    alpha = (1 - level) / 2
    enough = next((k for k in range(n + 1) if stats.binom.sf(k - 1, n, beyond) <= alpha), None)
    if enough is None:
        return None
    return float(stats.beta.ppf(power, enough, n - enough + 1))


def detectable_loss(
    n: int, excess: float, level: float = 0.95, power: float = 0.8
) -> tuple[bool, float | None]:
    """Power of the test of "an event is lost in at most `excess` more runs than gain it" (`net_loss_p`).

    Returns:
        Whether n unchanged pairs suffice to confirm the statement, and the smallest share of runs that lose
        the event (with none gaining it) at which the statement is rejected with the given power; None if n
        pairs cannot reject it even if all of them lose the event, 0 if they reject it even if none does.

    Raises:
        ConfigError: If there is no pair, or the power is not above `1 - level` and below 1.
    """
    _require_power(level, power)
    alpha = (1 - level) / 2
    unchanged = net_loss_p(0, 0, n, excess)[0] <= alpha
    enough = next((k for k in range(n + 1) if net_loss_p(k, 0, n, excess)[1] <= alpha), None)
    if not enough:
        return unchanged, None if enough is None else 0.0
    return unchanged, float(stats.beta.ppf(power, enough, n - enough + 1))


def _critical(n: int, level: float, power: float) -> float:
    if n < 2:
        raise ConfigError(f"the power of a t interval needs at least 2 seeds; got {n}.")
    _require_power(level, power)
    return float(stats.t.ppf((1 + level) / 2, n - 1))


def _require_power(level: float, power: float) -> None:
    require_level(level)
    if not 1 - level < power < 1:
        raise ConfigError(f"power must be above 1 - level = {1 - level:.3g} and below 1; got {power:g}.")
