"""Kinds of experiment: the interface that engines need, and serialisation."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch

from spectrope.core import (
    ConfigError,
    Configured,
    Precision,
    Registered,
    Registry,
    Stop,
    Watch,
    from_dict,
    never,
    to_dict,
    unwatched,
)
from spectrope.encodings import ENCODINGS
from spectrope.lab.manifest import DECODER, MARK, OWN, OWN_TASKS
from spectrope.lab.training.probe import Probe
from spectrope.store import Run
from spectrope.tasks import TASKS

OWNERS: Mapping[str, Registry[Any]] = {OWN: ENCODINGS, OWN_TASKS: TASKS}


E = TypeVar("E", bound="AnyExperiment")


class AnyExperiment(Configured):
    """Base of the configurations of single runs."""

    laboratory: ClassVar[str]  # Name of the laboratory that carries it out.
    seed: int

    @classmethod
    def of(cls: type[E], experiment: "AnyExperiment") -> E | None:
        """The experiment if it is of this kind, else None."""
        return experiment if isinstance(experiment, cls) else None

    @property
    def label(self) -> str:
        """A short name for progress bars and messages."""
        raise NotImplementedError

    @property
    def precision(self) -> str:
        """Precision of matrix products: name of a dtype, or "auto" to let the job decide."""
        raise NotImplementedError


@runtime_checkable
class Training(Protocol):
    """One run while it is being trained, from its last checkpoint if it has one."""

    def fit(self, watch: Watch = unwatched, stop: Stop = never) -> object:
        """Train to the end and write the results; raise `Interrupted` if a stop is requested."""
        ...

    def manifest(self) -> dict[str, Any]:
        """Fields of the manifest about the trained model."""
        ...

    @property
    def seconds(self) -> float:
        """Training time over all sessions of a resumed run."""
        ...

    @property
    def cpu_seconds(self) -> float:
        """Processor time spent training over all sessions, in seconds."""
        ...


@dataclass(frozen=True)
class TrainingTime:
    """Expected training time, from a few steps.

    Args:
        training: Expected seconds of the whole training.
        step: Seconds per step of the optimiser.
    """

    training: float
    step: float


LABORATORIES: Registry[type["Laboratory[Any]"]] = Registry(
    "laboratory", "spectrope.lab.training.laboratory", group="spectrope.lab.training"
)


class Laboratory(Registered, ABC, Generic[E]):
    """How experiments of one kind are checked, trained and timed: the interface that engines use."""

    registry = LABORATORIES
    kind: ClassVar[str]
    Experiment: ClassVar[type[AnyExperiment]]
    measured: ClassVar[bool] = False  # Whether `MEASURES` can be taken of its finished runs.

    def check(self, experiment: E, probe: Probe | None) -> None:
        """Check that an experiment can be trained and probed, before its run folder is created.

        Raises:
            ConfigError: If the experiment leaves nothing to train or to test on.
            UnsupportedError: If the probe cannot measure its model.
        """

    @abstractmethod
    def trainer(
        self, experiment: E, run: Run, device: torch.device, precision: Precision, probe: Probe | None
    ) -> Training:
        """The training of an experiment, resumed from the run's last checkpoint if there is one.

        Args:
            experiment: The experiment.
            run: Its run folder.
            device: Device to compute on.
            precision: Precision of matrix products, unless the experiment sets it.
            probe: Probe that measures during training, without changing the weights.
        """

    @abstractmethod
    def time(self, experiment: E, device: torch.device, precision: Precision) -> TrainingTime:
        """Expected training time, from a few steps on this device in a temporary folder."""

    @abstractmethod
    def operations(self, experiment: E) -> float:
        """Floating-point operations of the products of the whole training, roughly, without running any."""

    def time_measure(self, experiment: E, name: str, device: torch.device, precision: Precision) -> float:
        """Expected seconds of a measure of the finished run; only for laboratories with measures."""
        raise NotImplementedError


def laboratory_of(experiment: AnyExperiment) -> Laboratory[Any]:
    """The laboratory of an experiment."""
    return LABORATORIES[experiment.laboratory]()


def written(experiment: AnyExperiment) -> dict[str, Any]:
    """An experiment as JSON-ready values, with its laboratory and the digests of user files."""
    fields = to_dict(experiment)
    mark = {} if experiment.laboratory == DECODER else {MARK: experiment.laboratory}
    # Each registry looks at its own field alone: an encoding and a task may have one name.
    parts = {OWN: fields.get("model", {}).get("encoding"), OWN_TASKS: fields.get("task")}
    digests = {field: registry.digests(parts[field]) for field, registry in OWNERS.items()}
    return mark | fields | {field: by_name for field, by_name in digests.items() if by_name}


def read_experiment(fields: Mapping[str, Any]) -> AnyExperiment:
    """Read an experiment back.

    Raises:
        ConfigError: If this version cannot read it, or it needs an encoding or task from a file that has not
            been executed or has changed since.
    """
    for field, registry in OWNERS.items():
        digests = fields.get(field, {})
        if not isinstance(digests, Mapping):
            raise ConfigError(f"{field} must hold a version for each {registry.what}; got {digests!r}.")
        registry.require_digests(digests)
    laboratory = LABORATORIES[str(fields.get(MARK, DECODER))]
    kept = {name: value for name, value in fields.items() if name != MARK and name not in OWNERS}
    return from_dict(laboratory.Experiment, kept)
