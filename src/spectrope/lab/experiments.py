"""Kinds of experiment: what engines ask of each, and how experiments are written and read back."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

import torch

from spectrope.core.config import Configured, from_dict, to_dict
from spectrope.core.device import Precision
from spectrope.core.errors import ConfigError
from spectrope.core.interrupt import Stop, never
from spectrope.core.progress import Watch, unwatched
from spectrope.core.registry import Registry
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.training.probe import Probe
from spectrope.store import Run

MARK = "laboratory"  # Field of a written experiment that names its laboratory; the decoder's has none.
DECODER = "decoder"
OWN = "own_encodings"  # Field with the digests of files that encodings come from, where any does.


class AnyExperiment(Configured):
    """Base of the configurations that define one run each."""

    laboratory: ClassVar[str]  # Name of the laboratory that carries it out.
    seed: int

    @property
    def label(self) -> str:
        """A short name for progress bars and messages."""
        raise NotImplementedError


E = TypeVar("E", bound=AnyExperiment)


@runtime_checkable
class Training(Protocol):
    """One run while it is being trained, from its last checkpoint if it has one."""

    def fit(self, watch: Watch = unwatched, stop: Stop = never) -> object:
        """Train to the end and write what the run is made for; raises `Interrupted` if asked to stop."""
        ...

    def manifest(self) -> dict[str, Any]:
        """What the manifest says of the trained model, beside when and where it was trained."""
        ...

    @property
    def seconds(self) -> float:
        """Time spent training, over all sittings."""
        ...


@dataclass(frozen=True)
class Timing:
    """What a few steps took.

    Args:
        training: Expected seconds of the whole training.
        step: Seconds per step of the optimiser.
    """

    training: float
    step: float


class Laboratory(ABC, Generic[E]):
    """How experiments of one kind are checked, trained and timed; engines know no more of them."""

    kind: ClassVar[str]
    Experiment: ClassVar[type[AnyExperiment]]
    measured: ClassVar[bool] = False  # Whether `MEASURES` can be taken of its finished runs.

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        """Register the class under `name`; without one it is a base for others."""
        super().__init_subclass__(**kwargs)
        if name is not None:
            LABORATORIES.register(name, cls)

    def check(self, experiment: E, probe: Probe | None) -> None:
        """Refuse, before there is a run folder, what cannot be trained or measured on the way.

        Raises:
            ConfigError: If the experiment leaves nothing to train or to test on.
            UnsupportedError: If the probe cannot measure its model.
        """

    @abstractmethod
    def trainer(
        self, experiment: E, run: Run, device: torch.device, precision: Precision, probe: Probe | None
    ) -> Training:
        """The training of an experiment, at the run's last checkpoint if it has one.

        Args:
            experiment: What to train.
            run: Its run folder.
            device: Where to compute.
            precision: Of matrix products, where the experiment does not say.
            probe: What to measure on the way, if anything; weights stay the same.
        """

    @abstractmethod
    def time(self, experiment: E, device: torch.device, precision: Precision) -> Timing:
        """What training will take, from a few steps on this device in a folder that is then removed."""


LABORATORIES: Registry[type[Laboratory[Any]]] = Registry("laboratory", "spectrope.lab.training")


def laboratory_of(experiment: AnyExperiment) -> Laboratory[Any]:
    """The laboratory that carries an experiment out."""
    return LABORATORIES[experiment.laboratory]()


def written(experiment: AnyExperiment) -> dict[str, Any]:
    """An experiment as JSON-ready values that name its laboratory and the files of its encodings."""
    fields = to_dict(experiment)
    own = ENCODINGS.digests(fields)
    mark = {} if experiment.laboratory == DECODER else {MARK: experiment.laboratory}
    return mark | fields | ({OWN: own} if own else {})


def read_experiment(fields: Mapping[str, Any]) -> AnyExperiment:
    """Read an experiment back.

    Raises:
        ConfigError: If it is none of today's, or of an encoding from a file that has not been run or has been
            edited since.
    """
    own = fields.get(OWN, {})
    if not isinstance(own, Mapping):
        raise ConfigError(f"{OWN} must hold a version for each encoding; got {own!r}.")
    ENCODINGS.require_digests(own)
    laboratory = LABORATORIES[str(fields.get(MARK, DECODER))]
    return from_dict(
        laboratory.Experiment, {name: value for name, value in fields.items() if name not in (MARK, OWN)}
    )
