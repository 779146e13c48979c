"""Jobs that differ in their seed alone, trained as one batched model and then measured one by one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from spectrope.core.device import Precision
from spectrope.core.errors import Interrupted, StoreError
from spectrope.core.interrupt import Stop
from spectrope.lab.events import Event, Listener
from spectrope.lab.job import Job, complete, described
from spectrope.lab.runs import find_run, run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.loop import Progress, Trainer
from spectrope.lab.training.replicas import ReplicaTrainer
from spectrope.lab.training.state import CHECKPOINT
from spectrope.store import Run

Group = dict[int, Job]  # Jobs that train together, by their number in the plan.


def grouped(jobs: Sequence[Job], root: Path, size: int) -> list[Group]:
    """A plan in groups of up to `size` jobs that differ in their seed alone, in its order.

    A run that has been begun alone goes on alone, as do those of the grokking laboratory; so does one that
    cannot be read, which fails by itself.
    """
    groups: list[Group] = []
    growing: dict[Job, Group] = {}
    for number, job in enumerate(jobs):
        kind = _seedless(job, root) if size > 1 else None
        group = {} if kind is None else growing.get(kind, {})
        if not group:
            groups.append(group)
        group[number] = job
        if kind is not None:
            growing[kind] = group if len(group) < size else {}
    return groups


def _seedless(job: Job, root: Path) -> Job | None:
    """What jobs that may train together share, or None for a job that has to go alone."""
    if not isinstance(job.experiment, Experiment):
        return None
    try:
        run = find_run(job.experiment, root)
        if run is not None and (run.finished or run.has_tensors(CHECKPOINT)):
            return None
    except StoreError:
        return None
    return replace(job, experiment=replace(job.experiment, seed=0), tables=())


def train_together(
    experiments: Sequence[Experiment],
    root: Path,
    device: torch.device,
    listeners: Sequence[Listener],
    stop: Stop,
    precision: Precision = "auto",
) -> None:
    """Train experiments that differ in their seed alone, and finish their runs.

    Raises:
        Interrupted: If asked to stop, once the checkpoint is written.
    """
    trainers = [Trainer(one, run_for(one, root), device, precision=precision) for one in experiments]
    group = ReplicaTrainer(trainers)

    def watch(progress: Progress) -> None:
        for listen in listeners:
            listen(Event("train", progress.step, progress.steps, progress.accuracy))

    group.fit(watch, stop)
    manifests = [described(one, one.state.model) | {"replicas": len(trainers)} for one in trainers]
    for trainer, manifest in zip(trainers, manifests, strict=True):  # At once: what is left goes on alone.
        trainer.run.finish(manifest)
    trainers[0].run.remove(group.checkpoint)


def complete_together(
    jobs: Sequence[Job], root: Path, device: torch.device, listeners: Sequence[Listener], stop: Stop
) -> list[Run]:
    """Train and measure a group of jobs, skipping what their run folders already hold.

    Raises:
        Interrupted: If asked to stop, before the first job or once all that is done is saved.
    """
    if stop():
        raise Interrupted("stopped between two runs.")
    together = [job.experiment for job in jobs if isinstance(job.experiment, Experiment)]
    if len(together) > 1 and not all(run_for(one, root).finished for one in together):
        train_together(together, root, device, listeners, stop, jobs[0].precision)
    return [complete(job, root, device, listen, stop) for job, listen in zip(jobs, listeners, strict=True)]
