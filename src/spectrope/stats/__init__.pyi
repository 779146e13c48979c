"""Intervals, tests and concentration indices: NumPy arrays in, frozen records out."""

__all__ = [
    "INDICES",
    "MIN_SEEDS",
    "MIN_TOTAL",
    "Aim",
    "Discordance",
    "Interval",
    "Intervals",
    "MixedLogistic",
    "Outcome",
    "RandomisationTest",
    "RatioMoments",
    "SeedProportion",
    "TargetPrecision",
    "Threshold",
    "confidence_sequence",
    "detectable_difference",
    "detectable_equality",
    "detectable_loss",
    "detectable_proportion",
    "difference_intervals",
    "ends",
    "exceedance_p",
    "gini",
    "holm",
    "index_ranges",
    "indices",
    "jackknife_intervals",
    "lower_bounds",
    "mean_intervals",
    "net_loss_interval",
    "net_loss_p",
    "randomisation_test",
    "rank_correlation",
    "ratio_exceedance_p",
    "ratio_lower_bound",
    "reflected_intervals",
    "resampled_means",
    "seed_proportion",
    "shares",
    "spearman",
    "t_interval",
]

from .bootstrap import reflected_intervals, resampled_means
from .concentration import INDICES, MIN_TOTAL, gini, index_ranges, indices, shares
from .examples import jackknife_intervals, mean_intervals
from .interval import Interval, Intervals, ends, holm
from .mixed import MixedLogistic
from .paired import (
    Discordance,
    difference_intervals,
    exceedance_p,
    lower_bounds,
    net_loss_interval,
    net_loss_p,
)
from .power import detectable_difference, detectable_equality, detectable_loss, detectable_proportion
from .randomisation import RandomisationTest, randomisation_test
from .rank import rank_correlation, spearman
from .ratio import RatioMoments, ratio_exceedance_p, ratio_lower_bound
from .seeds import MIN_SEEDS, Outcome, SeedProportion, seed_proportion, t_interval
from .sequential import Aim, TargetPrecision, Threshold, confidence_sequence
