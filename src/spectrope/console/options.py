"""Options that several commands share."""

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from spectrope.core import ConfigError, Device
from spectrope.lab import CONDITIONS, SCALES

RunsRoot = Annotated[Path, tyro.conf.arg(name="runs", help="Folder that holds the run folders.")]
DeviceOption = Annotated[Device, tyro.conf.arg(help="Where to compute; auto prefers CUDA.")]
ScaleOption = Annotated[str, tyro.conf.arg(help=f"Sizes and length of training: {', '.join(SCALES)}.")]
ConditionOption = Annotated[
    str, tyro.conf.arg(help=f"Whose confounds to keep: {', '.join(CONDITIONS)} (none).")
]
Epochs = Annotated[int | None, tyro.conf.arg(help="Passes over the training data; None keeps the scale's.")]
Examples = Annotated[
    int | None,
    tyro.conf.arg(help="Examples in all, 70 percent for training; None keeps the scale's."),
]
StopAfter = Annotated[
    int | None,
    tyro.conf.arg(help="Steps at 99 percent test accuracy after which training ends; None spends all steps."),
]


def refuse_given(command: Any, names: Sequence[str], told: str) -> None:
    """Refuse options that would have no effect, such as `--k goes with --distribution square or strip.`

    Args:
        command: The command, a dataclass; what differs from its default has been given.
        names: Fields that do not apply.
        told: What follows the option's name, and says to what it belongs.

    Raises:
        ConfigError: If one of them has been given.
    """
    defaults = {field.name: field.default for field in fields(command)}
    for name in names:
        if getattr(command, name) != defaults[name]:
            raise ConfigError(f"--{name.replace('_', '-')} {told}")


ROOT = Path("runs")
WORKERS = os.cpu_count() or 1
