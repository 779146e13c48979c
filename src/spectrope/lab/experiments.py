"""Experiments of every laboratory, written and read as one kind of thing."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from spectrope.core.config import from_dict, to_dict
from spectrope.core.errors import ConfigError
from spectrope.encodings.base import ENCODINGS
from spectrope.grokking.config import GrokExperiment
from spectrope.grokking.shapes import ShapesExperiment
from spectrope.lab.training.config import Experiment
from spectrope.tasks.base import TASKS

MARK = "laboratory"  # Field that says of which one; those of sequences have no mark.
GROKKING = "grokking"
OWN = "own_encodings"  # Field with the versions of files that encodings come from, where any does.
OWN_TASKS = "own_tasks"  # The same of tasks.

StepExperiment: TypeAlias = GrokExperiment | ShapesExperiment
AnyExperiment: TypeAlias = Experiment | StepExperiment

LABORATORIES: Mapping[str, type[GrokExperiment] | type[ShapesExperiment]] = {
    GROKKING: GrokExperiment,
    "shapes": ShapesExperiment,
}


def written(experiment: AnyExperiment) -> dict[str, Any]:
    """An experiment as JSON-ready values that say of which laboratory it is, and whose encodings."""
    name = next((name for name, kind in LABORATORIES.items() if isinstance(experiment, kind)), None)
    fields = to_dict(experiment)
    own = ENCODINGS.digests(fields["model"].get("encoding")) if "model" in fields else {}
    tasks = TASKS.digests(fields["task"]) if isinstance(experiment, Experiment) else {}
    digests = {field: digests for field, digests in ((OWN, own), (OWN_TASKS, tasks)) if digests}
    return ({} if name is None else {MARK: name}) | fields | digests


def read_experiment(fields: Mapping[str, Any]) -> AnyExperiment:
    """Read an experiment back.

    Raises:
        ConfigError: If it is none of today's, or of an encoding or task from a file that has not been run
            or is another by now.
    """
    for field, registry in ((OWN, ENCODINGS), (OWN_TASKS, TASKS)):
        own = fields.get(field, {})
        if not isinstance(own, Mapping):
            raise ConfigError(f"{field} must hold a version for each {registry.what}; got {own!r}.")
        registry.require_digests(own)
    kind = LABORATORIES.get(str(fields.get(MARK, "")), Experiment)
    return from_dict(
        kind, {name: value for name, value in fields.items() if name not in (MARK, OWN, OWN_TASKS)}
    )
