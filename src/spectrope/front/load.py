"""Trained models, of runs and of checkpoints."""

from pathlib import Path

from torch import nn

from spectrope import lab
from spectrope.core import Device, choose_device
from spectrope.front.targets import opened
from spectrope.store import Run


def load_model(source: Run | str | Path, *, root: str | Path = "runs", device: Device = "auto") -> nn.Module:
    """The trained network of a finished run, or the model of a checkpoint, in evaluation mode.

    Args:
        source: A run, or the folder or name of a run or a checkpoint; of a checkpoint, safetensors from disk
            or the local cache alone are read. `spectrope.checkpoints.open_model` has more ways.
        root: Folder that holds the run folders, where a run is named by the beginning of its id.
        device: Where it is to compute.

    Raises:
        ConfigError: If there is no such run or checkpoint.
        StoreError: If the run is unfinished, or its weights cannot be read or are those of another network.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.load_model(run).config.n_layers
        3
    """
    place = choose_device(device)
    known, _ = opened(source, root, place, None)
    return lab.load_model(known, place) if isinstance(known, Run) else known
