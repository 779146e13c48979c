"""Logistic regression of events in training runs, with a random intercept per seed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import optimize, special, stats

from spectrope.core import ConfigError
from spectrope.stats.interval import Interval, require_level

NODES = 15  # Of the Gauss-Hermite rule.
PRIOR = 2.5  # Standard deviation of the normal prior of a difference between two levels, in log odds.
FLAT = 10.0  # That of the overall level.
SPREAD = 1.0  # Scale of the half-normal prior of the standard deviation between seeds, in log odds.
STEP, FARTHEST = 2.0, 64.0  # Log odds: by how much, and how far, the search for an end of an interval goes.
ENOUGH = 1e-3  # Log odds: precision of an end.


@dataclass(frozen=True)
class MixedLogistic:
    r"""Odds of an event by level of a factor, with runs of the same seed correlated.

    The model of a run at level l of seed s is :math:`\operatorname{logit} P = \mu + \gamma_l + \sigma z_s`,
    with :math:`z_s \sim N(0, 1)`, which is integrated out by Gauss-Hermite quadrature. The priors
    :math:`\gamma_l \sim N(0, 2.5^2/2)`, :math:`\mu \sim N(0, 10^2)` and half-normal :math:`\sigma` of scale 1
    keep differences finite if a level has no events or only events, and favour no level.
    Estimates maximise the marginal likelihood times the priors; intervals are those of its profile, by the
    :math:`\chi^2_1` approximation.

    Args:
        events: Whether each run shows the event.
        levels: Level of each run; 0 is the reference level.
        seeds: Seed of each run.

    Raises:
        ConfigError: If there is no run.

    References:
        A weakly informative default prior distribution for logistic and other regression models (Gelman et
        al., 2008), Sec. 2, with normal priors in place of Cauchy's.
    """

    events: Bool[np.ndarray, " n"]
    levels: Int[np.ndarray, " n"]
    seeds: Int[np.ndarray, " n"]

    def __post_init__(self) -> None:
        if not len(self.events):
            raise ConfigError("a logistic model needs at least one run; got none.")

    def differences(self, level: float = 0.95) -> list[Interval]:
        r"""Log odds of each level from 1 on minus those of level 0, :math:`\gamma_l - \gamma_0`."""
        require_level(level)
        return [self._interval(1 + one, level) for one in range(1, self._n)]

    @property
    def spread(self) -> float:
        """Estimate of the standard deviation between seeds, in log odds."""
        return abs(float(self._best.x[-1]))

    @property
    def _n(self) -> int:
        return int(self.levels.max()) + 1

    @cached_property
    def _design(self) -> Float[np.ndarray, "n p"]:
        """Columns of the overall level, of level 0, and of the differences from it."""
        above = self.levels[:, None] == np.arange(1, self._n)
        return np.column_stack([np.ones((len(self.events), 2)), above])

    @cached_property
    def _whitening(self) -> Float[np.ndarray, "m m"]:
        """From the parameters to what the priors take as independent and of unit variance."""
        scales = [FLAT, *[PRIOR / sqrt(2)] * self._n, SPREAD]
        whitening = np.eye(len(scales))
        whitening[2:-1, 1] = 1.0
        return whitening / np.array(scales)[:, None]

    @cached_property
    def _groups(self) -> Bool[np.ndarray, "s n"]:
        """Membership of runs in seeds."""
        return np.unique(self.seeds)[:, None] == self.seeds

    @cached_property
    def _best(self) -> optimize.OptimizeResult:
        start = np.zeros(self._n + 2)
        start[-1] = SPREAD / 2
        return optimize.minimize(self._cost, start, jac=True, method="BFGS")

    def _cost(self, parameters: Float[np.ndarray, " m"]) -> tuple[float, Float[np.ndarray, " m"]]:
        """Negative logarithm of marginal likelihood times priors, up to a constant, and its gradient."""
        nodes, weights = special.roots_hermitenorm(NODES)
        logits = self._design @ parameters[:-1, None] + parameters[-1] * nodes
        by_run = -np.logaddexp(0, np.where(self.events[:, None], -logits, logits))
        by_seed = self._groups @ by_run + np.log(weights / weights.sum())
        marginal = np.asarray(special.logsumexp(by_seed, axis=1))
        posterior = self._groups.T @ np.exp(by_seed - marginal[:, None])
        residual = posterior * (self.events[:, None] - np.asarray(special.expit(logits)))
        slope = np.append(self._design.T @ residual.sum(1), (residual * nodes).sum())
        white = self._whitening @ parameters
        return float(white @ white / 2 - marginal.sum()), self._whitening.T @ white - slope

    def _profile(self, k: int, value: float) -> float:
        """The least cost at which parameter k has this value."""
        free = np.arange(len(self._best.x)) != k

        def cost(rest: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
            parameters = np.full(len(free), value)
            parameters[free] = rest
            total, gradient = self._cost(parameters)
            return total, gradient[free]

        return float(optimize.minimize(cost, self._best.x[free], jac=True, method="BFGS").fun)

    def _interval(self, k: int, level: float) -> Interval:
        estimate, allowed = float(self._best.x[k]), self._best.fun + float(stats.chi2.ppf(level, 1)) / 2

        def excess(value: float) -> float:
            return self._profile(k, value) - allowed

        low, high = (_crossing(excess, estimate, side * STEP) for side in (-1, 1))
        return Interval(estimate=estimate, low=low, high=high, level=level, method="profile, mixed logistic")


def _crossing(excess: Callable[[float], float], start: float, step: float) -> float:
    """Where a function that is negative at the start and grows away from it becomes positive."""
    inside, outside = start, start + step
    while excess(outside) < 0 and abs(outside - start) < FARTHEST:
        inside, outside = outside, outside + step
    while abs(outside - inside) > ENOUGH:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if excess(middle) < 0 else (inside, middle)
    return outside
