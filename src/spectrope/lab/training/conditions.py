"""Conditions: functions from an experiment to an experiment, such as removing or keeping a confound."""

from collections.abc import Callable

from spectrope.core import Registry
from spectrope.lab.training.config import Experiment

Condition = Callable[[Experiment], Experiment]

CONDITIONS: Registry[Condition] = Registry("condition", "spectrope.lab.training.conditions")
CONTROLLED = "controlled"


def controlled(experiment: Experiment) -> Experiment:
    """The experiment as its scale describes it, without the confounds of the paper's text or public code."""
    return experiment


CONDITIONS.register(CONTROLLED, controlled)


def apply_condition(experiment: Experiment) -> Experiment:
    """The experiment as its own condition changes it.

    Raises:
        UnknownNameError: If no condition has the name `experiment.condition`.
    """
    return CONDITIONS[experiment.condition](experiment)
