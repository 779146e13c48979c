"""One experiment from its configuration to a finished run folder: train, describe, ablate."""

import resource
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from spectrope.core.device import machine
from spectrope.evaluation.score import score
from spectrope.models.decoder import Decoder
from spectrope.store import Run
from spectrope.sweeps.ablate import ablate
from spectrope.sweeps.events import Event, Listener, silent
from spectrope.sweeps.runs import run_for
from spectrope.training.config import Experiment
from spectrope.training.interrupt import Stop, never
from spectrope.training.loop import Progress, Trainer
from spectrope.training.state import CHECKPOINT


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
        ablate(run, device, listen=listen)
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
