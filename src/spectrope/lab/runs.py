"""Experiments and their run folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from spectrope.core import ConfigError, StoreError, choose_dtype, config_hash, initial_weights
from spectrope.lab.experiments import AnyExperiment, read_experiment, written
from spectrope.lab.manifest import has_diverged
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.state import WEIGHTS
from spectrope.models import Decoder
from spectrope.store import RESULTS_VERSION, Run, load_run, open_run

DATA_VERSION = 1  # Increased when a task draws different examples from the same seed.


def run_for(experiment: AnyExperiment, root: Path) -> Run:
    """The run folder of an experiment, created if necessary."""
    return open_run(root, written(experiment), DATA_VERSION)


def find_run(experiment: AnyExperiment, root: Path) -> Run | None:
    """The run folder of an experiment, if it exists.

    Raises:
        StoreError: If it cannot be read.
    """
    path = root / config_hash(written(experiment), DATA_VERSION, RESULTS_VERSION)
    return load_run(path) if path.exists() else None


def experiment_of(run: Run) -> Experiment:
    """The experiment that a run folder was made for.

    Raises:
        ConfigError: If it belongs to another laboratory, or its encoding is unavailable.
    """
    return read_decoder(run.config, f"run {run.id}")


def read_decoder(fields: Mapping[str, Any], owner: str) -> Experiment:
    """Read the experiment of a decoder back.

    Args:
        fields: The serialised experiment.
        owner: Name of its owner, for error messages.

    Raises:
        ConfigError: If it belongs to another laboratory, or its encoding is unavailable.
    """
    experiment = read_experiment(fields)
    if (decoder := Experiment.of(experiment)) is None:
        raise ConfigError(f"{owner} is of laboratory {experiment.laboratory!r} and has no decoder.")
    return decoder


def dtype_for(run: Run, device: torch.device) -> torch.dtype:
    """Precision for measuring a finished run: float32 if it was trained so, else as its experiment says."""
    if run.manifest["precision"] == "float32":
        return torch.float32
    return choose_dtype(experiment_of(run).precision, device)


def build_model(experiment: Experiment, device: torch.device) -> Decoder:
    """The untrained network of an experiment; its weights depend only on the seed."""
    with initial_weights(experiment.seed):
        model = Decoder(experiment.model, experiment.training.impl)
    return model.to(device)


def load_model(run: Run, device: torch.device) -> Decoder:
    """The trained network of a finished run.

    Raises:
        StoreError: If the run is unfinished, or its weights cannot be read or do not match the network.
    """
    _ = run.manifest  # only finished runs have one
    if not run.has_tensors(WEIGHTS):
        raise StoreError(f"run {run.id} has lost its weights; move its folder away and train it again.")
    model = build_model(experiment_of(run), device)
    tensors, _ = run.read_tensors(WEIGHTS)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip().rstrip(".")
        raise StoreError(
            f"run {run.id} is damaged: its weights do not fit its configuration ({reason}); "
            "move its folder away and train it again."
        ) from None
    if experiment_of(run).training.drop_positions is not None:
        model.drop_positions()
    if not (has_diverged(run.manifest) or all(one.isfinite().all() for one in tensors.values())):
        raise StoreError(
            f"run {run.id} is damaged: its weights are not finite, though its training has not diverged; "
            "move its folder away and train it again."
        )
    return model.eval()
