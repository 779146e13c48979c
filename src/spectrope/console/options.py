"""Options that several commands share."""

import os
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from spectrope.console.rare import RARE
from spectrope.core import ConfigError, Device, Precision
from spectrope.encodings import read_value
from spectrope.lab import CONDITIONS, SCALES

RunsRoot = Annotated[Path, tyro.conf.arg(name="runs", help="Folder of the runs.")]
DeviceOption = Annotated[
    Device, tyro.conf.arg(metavar="DEVICE", help="auto (CUDA if there is any), cpu or cuda.")
]
ScaleOption = Annotated[str, tyro.conf.arg(help=f"Size of models and data: {', '.join(SCALES)}.")]
ConditionOption = Annotated[str, tyro.conf.arg(help=f"Confounds to keep: {', '.join(CONDITIONS)}.")]
Epochs = Annotated[int | None, tyro.conf.arg(help="Passes over the training data.")]
Examples = Annotated[
    int | None,
    tyro.conf.arg(help="Examples in all, 70 % of them for training."),
]
Seeds = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="N|N:M ...", help="Seeds, or ranges such as 0:6 for 0 to 5."),
]
Settings = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        name="set",
        metavar="FIELD=X ...",
        help="Change fields of the experiment: learning_rate=0.001.",
    ),
]
PrecisionOption = Annotated[
    Precision,
    tyro.conf.arg(metavar="TYPE", help="Of matrix products: auto (the fastest), float32, bfloat16."),
    RARE,
]
WorkersOption = Annotated[int, tyro.conf.arg(help="Processes on a CPU (default: one per core)."), RARE]
OutPage = Annotated[Path, tyro.conf.arg(help="Report: one self-contained HTML file.")]
StopAfter = Annotated[
    int | None,
    tyro.conf.arg(help="Steps at 99 % test accuracy after which training ends; None: never."),
    RARE,
]


def chosen_seeds(words: Sequence[str]) -> tuple[int, ...]:
    """The seeds that an option names, each once: `0 1 2`, or `0:3` for the same.

    Raises:
        ConfigError: If a word is neither a number nor a range.
    """
    seeds: dict[int, None] = {}
    for word in words:
        if re.fullmatch(r"\d+(:\d+)?", word) is None:
            raise ConfigError(f"--seeds takes numbers, or ranges such as 0:6 for 0 to 5; got {word!r}.")
        first, colon, last = word.partition(":")
        seeds |= dict.fromkeys(range(int(first), int(last) if colon else int(first) + 1))
    return tuple(seeds)


def changes_of(words: Sequence[str], precision: Precision = "auto") -> dict[str, Any]:
    """Fields and values that `--set field=value` and `--precision` name; values are JSON, or else text.

    Raises:
        ConfigError: If a word has no equals sign.
    """
    for word in words:
        if "=" not in word:
            raise ConfigError(f"--set takes field=value, such as learning_rate=0.001; got {word!r}.")
    changes = {field: read_value(value) for field, _, value in (word.partition("=") for word in words)}
    return changes if precision == "auto" else changes | {"precision": precision}


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
