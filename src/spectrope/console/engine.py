"""Options for the engine that carries out runs: this machine or a Ray cluster."""

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
    """Whether to use a Ray cluster, which one, and the GPUs per run."""

    device: DeviceOption = "auto"
    engine: Annotated[
        EngineName, tyro.conf.arg(help="Compute on this machine, or on a Ray cluster."), RARE
    ] = "local"
    address: Annotated[
        str | None,
        tyro.conf.arg(help="Address of the Ray cluster, such as auto (default: start one on this machine)."),
        RARE,
    ] = None
    gpus: Annotated[
        float, tyro.conf.arg(help="GPUs per run on Ray: with 0.25, four runs share one; 0: CPU only."), RARE
    ] = 0.0
    start_seconds: Annotated[
        float, tyro.conf.arg(help="How long Ray may take to start on this machine."), RARE
    ] = Ray.start_seconds

    @property
    def computes_on(self) -> Device:
        """The device of a run; on Ray, it follows from `--gpus`."""
        return "cpu" if self.engine == "ray" and not self.gpus else self.device

    def ray(self, workers: int = 1) -> Ray | None:
        """The cluster that the options ask for; None is this machine.

        Raises:
            ConfigError: If an option belongs to the other engine.
        """
        require(self.gpus >= 0, self, "gpus", "at least 0")
        if self.engine == "ray":
            if self.device != "auto":
                raise ConfigError("--device is for --engine local; with --engine ray, use --gpus (0: CPU).")
            return Ray(self.address, workers, gpus=self.gpus, start_seconds=self.start_seconds)
        given = {
            "--gpus": self.gpus != 0,
            "--address": self.address is not None,
            "--start-seconds": self.start_seconds != Ray.start_seconds,
        }
        for option in (name for name, is_given in given.items() if is_given):
            raise ConfigError(f"{option} is for --engine ray; with --engine local, use --device.")
        return None


@dataclass(frozen=True, kw_only=True)
class EngineOptions(RayOptions):
    """Engine and parallelism of several runs."""

    workers: WorkersOption = None

    @property
    def n_workers(self) -> int:
        """Requested number of parallel runs.

        Raises:
            ConfigError: If there are none.
        """
        require(self.workers is None or self.workers >= 1, self, "workers", "at least 1")
        return _processors() if self.workers is None else self.workers

    def arguments(self) -> dict[str, Any]:
        """The options as arguments of `spectrope.lab.execute`.

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


def _processors() -> int:
    """Processors that this process may use, where the system tells them from all."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
