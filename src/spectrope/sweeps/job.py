"""One experiment from its configuration to a finished run folder: train, describe, ablate."""

import resource
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import torch

from spectrope.ablation.sweep import sweep
from spectrope.core.config import from_dict, to_dict
from spectrope.core.device import choose_dtype, machine
from spectrope.evaluation.score import score
from spectrope.models.decoder import Decoder
from spectrope.store import Run, open_run
from spectrope.training.config import Experiment
from spectrope.training.interrupt import Stop, never
from spectrope.training.loop import Progress, Trainer, build_model
from spectrope.training.state import CHECKPOINT, WEIGHTS

DATA_VERSION = 1  # Raised when a task draws other examples from the same seed.
ABLATION_EXAMPLES = 2000


@dataclass(frozen=True)
class Event:
    """What happened in a job, for whoever shows progress.

    Args:
        stage: "train", "ablate" or "done".
        done: Steps or heads done.
        total: Steps or heads in all.
        accuracy: Latest held-out accuracy, as a fraction, or None.
    """

    stage: str
    done: int
    total: int
    accuracy: float | None = None


Listener = Callable[[Event], None]


def run_for(experiment: Experiment, root: Path) -> Run:
    """The run folder of an experiment, made if need be."""
    return open_run(root, to_dict(experiment), DATA_VERSION)


def experiment_of(run: Run) -> Experiment:
    """The experiment that a run folder was made for."""
    return from_dict(Experiment, run.config)


def load_model(run: Run, device: torch.device) -> Decoder:
    """The trained network of a finished run.

    Raises:
        StoreError: If the run is unfinished or its weights cannot be read.
    """
    _ = run.manifest  # only finished runs have one
    model = build_model(experiment_of(run), device)
    tensors, _ = run.read_tensors(WEIGHTS)
    model.load_state_dict(tensors)
    return model.eval()


def silent(event: Event) -> None:
    """The listener that shows nothing."""


def train(
    experiment: Experiment,
    root: Path,
    device: torch.device,
    listen: Listener = silent,
    stop: Stop = never,
) -> Run:
    """Train an experiment, or go on with it, or return its finished run.

    Raises:
        Interrupted: If asked to stop, once the checkpoint is written.
    """
    run = run_for(experiment, root)
    if not run.finished:
        trainer = Trainer(experiment, run, device)

        def watch(progress: Progress) -> None:
            listen(Event("train", progress.step, progress.steps, progress.accuracy))

        model = trainer.fit(watch, stop)
        run.finish(_manifest(trainer, model))
    run.remove(CHECKPOINT)
    return run


def ablate(run: Run, device: torch.device, listen: Listener = silent, n: int = ABLATION_EXAMPLES) -> Run:
    """Measure the drop of every head on held-out examples and keep it with the run."""
    experiment = experiment_of(run)
    _, held_out = experiment.task.build().split(experiment.n_train, experiment.n_test, experiment.seed)
    dtype = choose_dtype(experiment.training.precision, device)
    found = sweep(
        load_model(run, device),
        held_out[:n],
        dtype=dtype,
        watch=lambda done, total: listen(Event("ablate", done, total)),
    )
    run.write_frame("ablation", pl.DataFrame(found.drops()))
    return run


def complete(
    experiment: Experiment,
    root: Path,
    device: torch.device,
    listen: Listener = silent,
    stop: Stop = never,
) -> Run:
    """Train and ablate, skipping what the run folder already holds."""
    run = train(experiment, root, device, listen, stop)
    if not run.has_frame("ablation"):
        ablate(run, device, listen)
    listen(Event("done", 1, 1, run.manifest["test_accuracy"]))
    return run


def _manifest(trainer: Trainer, model: Decoder) -> dict[str, Any]:
    train_score = score(model, trainer.train_data[: len(trainer.test_data)], dtype=trainer.dtype)
    test_score = score(model, trainer.test_data, dtype=trainer.dtype)
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(trainer.state.seconds, 3),
        "commit": _commit(),
        "device": str(trainer.device),
        "precision": str(trainer.dtype).removeprefix("torch."),
        "machine": machine(),
        "bayes_accuracy": trainer.experiment.task.build().bayes_accuracy(),
        "train_accuracy": train_score.accuracy,
        "test_accuracy": test_score.accuracy,
        "test_loss": test_score.loss,
        "n_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _commit() -> str:
    """The commit of this package's own repository, or its version where it is installed without one."""
    here = Path(__file__)

    def git(*words: str) -> str:
        command = ("git", "-C", str(here.parent), *words)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", here.name)
        return git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return f"version {version('spectrope')}"
