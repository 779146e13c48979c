"""One grokking experiment from its configuration to a finished run folder, and several of them in turn."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from spectrope.core.config import from_dict, to_dict
from spectrope.core.device import machine
from spectrope.core.errors import StoreError
from spectrope.grokking.config import GrokExperiment, Grokked
from spectrope.grokking.measures.base import columns
from spectrope.grokking.record import SCORES, stable_steps
from spectrope.grokking.trainer import GrokProgress, GrokTrainer, Watcher
from spectrope.store import Run, open_run
from spectrope.sweeps.job import commit
from spectrope.training.interrupt import Interrupted, Stop, never
from spectrope.training.state import CHECKPOINT

DATA_VERSION = 1  # Raised when the same seed splits the pairs otherwise.
LABORATORY = "grokking"  # Marks a configuration as one of this laboratory.


def grok(
    experiment: GrokExperiment,
    root: Path,
    device: torch.device,
    watch: Watcher = lambda progress: None,
    stop: Stop = never,
) -> Run:
    """Train an experiment, or go on with it, or return its finished run.

    The run holds the tables `progress` (scores and measures by step) and `pairs` (every pair and the answer
    to it), the tensors `moments` (embeddings and right answers at some steps) and the weights.

    Args:
        experiment: What to train.
        root: Folder of the run folders.
        device: Where to compute.
        watch: Told before every step where training stands.
        stop: Asked after every step whether to stop there.

    Raises:
        ConfigError: If the task leaves nothing to train or to test on.
        Interrupted: If asked to stop, once the checkpoint is written.
    """
    experiment.task.build().split(experiment.seed)  # refused before a folder is made
    run = open_run(root, {"laboratory": LABORATORY, **to_dict(experiment)}, DATA_VERSION)
    if not run.finished:
        trainer = GrokTrainer(experiment, run, device)
        trainer.fit(watch, stop)
        run.finish(_manifest(trainer, device))
    run.remove(CHECKPOINT)
    return run


def grok_all(
    plan: Sequence[GrokExperiment],
    root: Path,
    device: torch.device,
    watch: Callable[[int, GrokProgress], None] = lambda number, progress: None,
    stop: Stop = never,
) -> list[Run]:
    """The runs of several experiments, trained one after the other.

    Raises:
        Interrupted: If asked to stop, once all that is done is saved.
    """
    runs = []
    for number, experiment in enumerate(plan):
        if stop():
            raise Interrupted("stopped between two runs.")
        runs.append(grok(experiment, root, device, lambda p, n=number: watch(n, p), stop))
    return runs


def grok_experiment_of(run: Run) -> GrokExperiment:
    """The experiment that a run folder was made for.

    Raises:
        StoreError: If the run is none of this laboratory.
    """
    fields = dict(run.config)
    if fields.pop("laboratory", None) != LABORATORY:
        raise StoreError(
            f"run {run.id} is none of the grokking laboratory; `spectrope grok` makes such runs."
        )
    return from_dict(GrokExperiment, fields)


def _manifest(trainer: GrokTrainer, device: torch.device) -> dict[str, Any]:
    state, rule = trainer.state, trainer.config.stop or Grokked()
    stable = stable_steps(state.rows, rule.accuracy)
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(state.seconds, 3),
        "commit": commit(),
        "device": str(device),
        "precision": trainer.config.dtype,
        "machine": machine(),
        "steps": state.step,
        "grokked_at": None if stable is None else state.step - stable,
        "n_parameters": sum(p.numel() for p in state.model.parameters() if p.requires_grad),
        **state.rows[-1].values,
        "columns": {**SCORES, **columns()},
    }
