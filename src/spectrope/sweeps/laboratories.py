"""Experiments of every laboratory, written and read as one kind of thing."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from spectrope.core.config import from_dict, to_dict
from spectrope.grokking.config import GrokExperiment
from spectrope.grokking.shapes import ShapesExperiment
from spectrope.training.config import Experiment

MARK = "laboratory"  # Field that says of which one; those of sequences have no mark.
GROKKING = "grokking"

StepExperiment: TypeAlias = GrokExperiment | ShapesExperiment
AnyExperiment: TypeAlias = Experiment | StepExperiment

LABORATORIES: Mapping[str, type[GrokExperiment] | type[ShapesExperiment]] = {
    GROKKING: GrokExperiment,
    "shapes": ShapesExperiment,
}


def written(experiment: AnyExperiment) -> dict[str, Any]:
    """An experiment as JSON-ready values that say of which laboratory it is."""
    name = next((name for name, kind in LABORATORIES.items() if isinstance(experiment, kind)), None)
    return to_dict(experiment) if name is None else {MARK: name, **to_dict(experiment)}


def read_experiment(fields: Mapping[str, Any]) -> AnyExperiment:
    """Read an experiment back.

    Raises:
        ConfigError: If it is none of today's.
    """
    kind = LABORATORIES.get(fields.get(MARK, ""), Experiment)
    return from_dict(kind, {name: value for name, value in fields.items() if name != MARK})
