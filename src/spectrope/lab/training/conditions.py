"""Conditions: functions that change an experiment, such as by removing or keeping confounds."""

from collections.abc import Callable

from spectrope.core import Registry
from spectrope.lab.training.config import Experiment

Condition = Callable[[Experiment], Experiment]

CONDITIONS: Registry[Condition] = Registry("condition", "spectrope.lab.training.conditions")
CONTROLLED = "controlled"


def controlled(experiment: Experiment) -> Experiment:
    """The experiment of its scale, without the confounds of the paper's text or public code."""
    return experiment


CONDITIONS.register(CONTROLLED, controlled)


def apply_condition(experiment: Experiment) -> Experiment:
    """Apply the condition of an experiment.

    Raises:
        UnknownNameError: If no condition has the name `experiment.condition`.
    """
    return CONDITIONS[experiment.condition](experiment)
