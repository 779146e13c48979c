"""Options that several commands share."""

import os
from pathlib import Path
from typing import Annotated

import tyro

from spectrope.core.device import Device
from spectrope.training.conditions import THROWN
from spectrope.training.scales import SCALES

RunsRoot = Annotated[Path, tyro.conf.arg(name="runs", help="Folder that holds the run folders.")]
DeviceOption = Annotated[Device, tyro.conf.arg(help="Where to compute; auto prefers CUDA.")]
Scale = Annotated[str, tyro.conf.arg(help=f"Sizes and length of training: {', '.join(SCALES)}.")]
Condition = Annotated[str, tyro.conf.arg(help=f"Whose confounds to keep: {', '.join(THROWN)} (none).")]
Epochs = Annotated[int | None, tyro.conf.arg(help="Passes over the training data; None keeps the scale's.")]
Examples = Annotated[
    int | None,
    tyro.conf.arg(help="Examples in all, 70 percent for training; None keeps the scale's."),
]
StopAfter = Annotated[
    int | None,
    tyro.conf.arg(help="Steps at 99 percent test accuracy after which training ends; None spends all steps."),
]

ROOT = Path("runs")
WORKERS = os.cpu_count() or 1
