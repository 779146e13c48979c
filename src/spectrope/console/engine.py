"""Options that choose where runs are carried out: in processes of this machine, or on a Ray cluster."""

import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from spectrope.console.options import DeviceOption
from spectrope.console.rare import RARE
from spectrope.core import ConfigError, Device, require
from spectrope.lab import Engine, Local, Ray

EngineName = Literal["local", "ray"]
WorkersOption = Annotated[
    int | None, tyro.conf.arg(help="Parallel runs on a CPU (default: one per core)."), RARE
]


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """Whether a Ray cluster computes, which one, and how many of its GPUs a run takes."""

    device: DeviceOption = "auto"
    engine: Annotated[
        EngineName, tyro.conf.arg(help="Compute on this machine, or on a Ray cluster."), RARE
    ] = "local"
    address: Annotated[
        str | None,
        tyro.conf.arg(help="Address of the Ray cluster, such as auto (default: start one)."),
        RARE,
    ] = None
    gpus: Annotated[
        float, tyro.conf.arg(help="GPUs per run on Ray: with 0.25, four runs share one; 0: CPU only."), RARE
    ] = 0.0

    @property
    def computes_on(self) -> Device:
        """The device of a run: on Ray, `--gpus` says it."""
        return "cpu" if self.engine == "ray" and not self.gpus else self.device

    def ray(self, workers: int = 1) -> Ray | None:
        """The cluster that the options ask for; None is this machine.

        Raises:
            ConfigError: If an option belongs to the other engine.
        """
        require(self.gpus >= 0, self, "gpus", "at least 0")
        if self.engine == "ray":
            if self.device != "auto":
                raise ConfigError(
                    "--device is for --engine local; on Ray --gpus says what a run takes, 0 being the CPU."
                )
            return Ray(address=self.address, workers=workers, gpus=self.gpus)
        if self.gpus or self.address is not None:
            option = "--gpus" if self.gpus else "--address"
            raise ConfigError(f"{option} is for --engine ray; this machine's processes take --device.")
        return None


@dataclass(frozen=True, kw_only=True)
class EngineOptions(RayOptions):
    """Where several runs are carried out, and how many at a time."""

    workers: WorkersOption = None

    @property
    def n_workers(self) -> int:
        """Runs at a time that are asked for.

        Raises:
            ConfigError: If there are none.
        """
        require(self.workers is None or self.workers >= 1, self, "workers", "at least 1")
        return os.cpu_count() or 1 if self.workers is None else self.workers

    def arguments(self) -> dict[str, Any]:
        """The same as arguments of `spectrope.lab.execute`.

        Raises:
            ConfigError: If an option belongs to the other engine.
        """
        workers = self.n_workers
        return {"device": self.device, "workers": workers, "engine": self.ray(workers)}

    def chosen_engine(self) -> Engine:
        """The engine that the options describe.

        Raises:
            ConfigError: If an option belongs to the other engine.
        """
        workers = self.n_workers
        return self.ray(workers) or Local(self.device, workers)
