"""Open the checkpoint that a lock names, and measure it as the lock was measured."""

import os
from pathlib import Path

from torch import nn

from spectrope.checkpoints.lock.check import check
from spectrope.checkpoints.lock.checked import CheckedLock
from spectrope.checkpoints.lock.measure import lock
from spectrope.checkpoints.lock.records import SERVING_MODES, Lock
from spectrope.core import ConfigError, Watch


def name_from(source: str, file: Path) -> str:
    """How a lock names a checkpoint: a folder from the folder of the lock's file, anything else as it is."""
    if not Path(source).is_dir():
        return source
    return Path(os.path.relpath(Path(source).resolve(), file.resolve().parent)).as_posix()


def source_of(held: Lock, file: Path) -> str:
    """The checkpoint that a lock names: a folder, seen from that of the lock's file, if there is one, else an
    id.

    Raises:
        ConfigError: If it names a folder that is missing, or that only the working directory has.
    """
    beside = file.resolve().parent / held.model
    if beside.is_dir():
        return str(beside)
    if held.model.startswith((".", "/")) or Path(held.model).exists():
        raise ConfigError(
            f"{file} names the checkpoint {beside}, which is missing; "
            f"`spectrope check {file} --model FOLDER` compares another one."
        )
    return held.model


def checked(held: Lock, model: nn.Module, watch: Watch | None = None) -> CheckedLock:
    """Measure a model as a lock was measured, and compare both.

    Args:
        held: The lock.
        model: The model, or the part of it that the lock is of.
        watch: Called with the numbers of layers measured and in all.
    """
    now = lock(
        model,
        length=held.length,
        serving_modes=bool(held.paths) or SERVING_MODES in held.kinds,
        contents=held.contents,
        part=held.part if _holds(model, held.part) else None,
        layers_taken=held.layers_taken,
        watch=watch,
    )
    return check(held, now)


def _holds(model: nn.Module, part: str) -> bool:
    """Whether a part is still to be taken from a model, which is not the part itself."""
    wholes = model, getattr(model, "base_model", model)
    inside = any(part in dict(one.named_modules()) for one in wholes)
    return bool(part) and inside and getattr(model, "part_name", "") != part
