"""Experiments of either laboratory, written and read as one kind of thing."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from spectrope.core.config import from_dict, to_dict
from spectrope.grokking.config import GrokExperiment
from spectrope.training.config import Experiment

GROKKING = "grokking"  # Marks a configuration of the grokking laboratory; the other one's have no mark.
MARK = "laboratory"

AnyExperiment: TypeAlias = Experiment | GrokExperiment


def written(experiment: AnyExperiment) -> dict[str, Any]:
    """An experiment as JSON-ready values that say of which laboratory it is."""
    fields = to_dict(experiment)
    return {MARK: GROKKING, **fields} if isinstance(experiment, GrokExperiment) else fields


def read_experiment(fields: Mapping[str, Any]) -> AnyExperiment:
    """Read an experiment back.

    Raises:
        ConfigError: If it is none of today's.
    """
    if fields.get(MARK) != GROKKING:
        return from_dict(Experiment, fields)
    return from_dict(GrokExperiment, {name: value for name, value in fields.items() if name != MARK})
