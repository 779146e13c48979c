"""One grokking experiment from its configuration to a finished run folder, and several of them in turn."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from spectrope.core.commit import commit
from spectrope.core.device import dtype_name, machine
from spectrope.core.errors import Interrupted, StoreError
from spectrope.core.interrupt import Stop, never
from spectrope.grokking.config import GrokExperiment, Grokked
from spectrope.grokking.measures.base import columns
from spectrope.grokking.record import SCORES, stable_steps
from spectrope.grokking.shapes import COLUMNS, ShapesTrainer
from spectrope.grokking.steps import GrokProgress, StepTrainer, Watcher
from spectrope.grokking.trainer import GrokTrainer
from spectrope.lab.experiments import GROKKING, MARK, StepExperiment, read_experiment
from spectrope.lab.runs import run_for
from spectrope.lab.training.state import CHECKPOINT
from spectrope.store import Run


def grok(
    experiment: StepExperiment,
    root: Path,
    device: torch.device,
    watch: Watcher = lambda progress: None,
    stop: Stop = never,
) -> Run:
    """Train an experiment, or go on with it, or return its finished run.

    The run holds the table `progress` (scores and measures by step) and the weights; on residues also the
    table `pairs` (every pair and the answer to it) and the tensors `moments` (embeddings and right answers at
    some steps).

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
    run = run_for(experiment, root)
    if not run.finished:
        trainer = trainer_of(experiment, run, device)
        trainer.fit(watch, stop)
        run.finish(_manifest(trainer, device))
    run.remove(CHECKPOINT)
    return run


def trainer_of(experiment: StepExperiment, run: Run, device: torch.device) -> StepTrainer:
    """The trainer of an experiment, at its last checkpoint if the run has one."""
    if isinstance(experiment, GrokExperiment):
        return GrokTrainer(experiment, run, device)
    return ShapesTrainer(experiment, run, device)


def grok_all(
    plan: Sequence[StepExperiment],
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
    if run.config.get(MARK) != GROKKING:
        raise StoreError(
            f"run {run.id} is none of the grokking laboratory; `spectrope grok` makes such runs."
        )
    experiment = read_experiment(run.config)
    assert isinstance(experiment, GrokExperiment)
    return experiment


def _manifest(trainer: StepTrainer, device: torch.device) -> dict[str, Any]:
    state, rule = trainer.state, trainer.budget.stop or Grokked()
    dtype = next(state.model.parameters()).dtype
    stable = stable_steps(state.rows, rule.accuracy)
    return {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(state.seconds, 3),
        "commit": commit(),
        "device": str(device),
        "precision": dtype_name(dtype),
        "machine": machine(),
        "steps": state.step,
        "grokked_at": None if stable is None else state.step - stable,
        "n_parameters": sum(p.numel() for p in state.model.parameters() if p.requires_grad),
        **state.rows[-1].values,
        "columns": COLUMNS if isinstance(trainer, ShapesTrainer) else {**SCORES, **columns()},
    }
