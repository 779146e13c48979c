"""One experiment from its configuration to a finished run folder: train, describe, measure."""

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from spectrope.core.commit import commit
from spectrope.core.device import Precision, dtype_name, machine
from spectrope.core.errors import UnsupportedError
from spectrope.core.interrupt import Stop, never
from spectrope.grokking.run import grok
from spectrope.grokking.steps import GrokProgress
from spectrope.lab.evaluation.score import score
from spectrope.lab.events import Event, Listener, silent
from spectrope.lab.experiments import AnyExperiment, read_experiment, written
from spectrope.lab.measures import MEASURES
from spectrope.lab.runs import run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.loop import Progress, Trainer, build_model
from spectrope.lab.training.probe import Probe
from spectrope.lab.training.state import CHECKPOINT
from spectrope.models.decoder import Decoder
from spectrope.store import Run


@dataclass(frozen=True)
class Job:
    """An experiment, and what is measured once it is trained.

    Args:
        experiment: What to train.
        tables: Names in `MEASURES`, or measures in files (`file.py:Class`), which are run.
        precision: Of matrix products, where the experiment does not say.

    Raises:
        UnknownNameError: If there is no such measure.
        UnsupportedError: If anything is to be measured on a run of the grokking laboratory.
    """

    experiment: AnyExperiment
    tables: tuple[str, ...] = ("ablation",)
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(map(MEASURES.resolve, self.tables)))
        if self.tables and not isinstance(self.experiment, Experiment):
            raise UnsupportedError(
                f"{self.tables[0]!r} is measured on sequences; a run of the grokking laboratory "
                "measures itself while it trains."
            )

    def to_dict(self) -> dict[str, Any]:
        """This job as JSON-ready values, for another process."""
        fields = {"tables": list(self.tables), "precision": self.precision}
        return {"experiment": written(self.experiment), **fields}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Job":
        """Read a job back."""
        return cls(read_experiment(fields["experiment"]), tuple(fields["tables"]), fields["precision"])

    def is_done(self, run: Run) -> bool:
        """Whether a run holds all that this job makes."""
        return run.finished and all(MEASURES[name]().is_taken(run) for name in self.tables)


def train(
    experiment: Experiment,
    root: Path,
    device: torch.device,
    listen: Listener = silent,
    stop: Stop = never,
    probe: Probe | None = None,
    precision: Precision = "auto",
) -> Run:
    """Train an experiment, or go on with it, or return its finished run.

    Args:
        experiment: What to train.
        root: Folder of the run folders.
        device: Where to compute.
        listen: Told of steps done.
        stop: Asked after every step whether to stop there.
        probe: What to measure on the way; no part of the experiment, whose run is the same with it.
        precision: Of matrix products, where the experiment does not say.

    Raises:
        Interrupted: If asked to stop, once the checkpoint is written.
        UnsupportedError: If a probe is asked of a run that is finished without it, or of a model that it
            cannot measure.
    """
    if probe is not None:
        require_probe(experiment, probe)
    run = run_for(experiment, root)
    if run.finished and probe is not None and not run.has_frame(probe.table):
        raise UnsupportedError(
            f"run {run.id} is finished and was trained without this probe, which measures on the way; "
            "move its folder away, or train under another --runs."
        )
    if not run.finished:
        trainer = Trainer(experiment, run, device, probe, precision)

        def watch(progress: Progress) -> None:
            listen(Event("train", progress.step, progress.steps, progress.accuracy))

        model = trainer.fit(watch, stop)
        run.finish(described(trainer, model))
    run.remove(CHECKPOINT)
    return run


def require_probe(experiment: Experiment, probe: Probe) -> None:
    """Refuse what a probe cannot measure, before there is a run folder: try it on the untrained model.

    Raises:
        UnsupportedError: If the probe refuses.
    """
    few = experiment.task.build().sample(2, experiment.seed)
    probe.measure(build_model(experiment, torch.device("cpu")), probe.choose(few))


def complete(
    job: Job,
    root: Path,
    device: torch.device,
    listen: Listener = silent,
    stop: Stop = never,
) -> Run:
    """Train and measure, skipping what the run folder already holds.

    Raises:
        Interrupted: If asked to stop, once all that is done is saved.
    """
    if isinstance(job.experiment, Experiment):
        run = train(job.experiment, root, device, listen, stop, precision=job.precision)
    else:
        run = grok(job.experiment, root, device, partial(_tell, listen), stop)
    for name in job.tables:
        measure = MEASURES[name]()
        if not measure.is_taken(run):
            measure.take(run, device, listen)
    listen(Event("done", 1, 1, run.manifest["test_accuracy"]))
    return run


def _tell(listen: Listener, progress: GrokProgress) -> None:
    accuracy = progress.last.values["test_accuracy"] if progress.last else None
    listen(Event("train", progress.step, progress.steps, accuracy))


def described(trainer: Trainer, model: Decoder) -> dict[str, Any]:
    """The manifest of a run that is trained to the end."""
    train_score = score(model, trainer.train_data[: len(trainer.test_data)], dtype=trainer.state.dtype)
    test_score = score(model, trainer.test_data, dtype=trainer.state.dtype)
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(trainer.state.seconds, 3),
        "commit": commit(),
        "device": str(trainer.device),
        "precision": dtype_name(trainer.state.dtype),
        "machine": machine(),
        "bayes_accuracy": trainer.experiment.task.build().bayes_accuracy(),
        "train_accuracy": train_score.accuracy,
        "test_accuracy": test_score.accuracy,
        "test_loss": test_score.loss,
        "n_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
