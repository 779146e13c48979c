"""Resumable training loop, and the state that it saves.

A run keeps two checkpoints. Each new checkpoint replaces the older one, so the last valid one is never
overwritten. A damaged checkpoint is moved aside, and training resumes from the other, or from the start.
"""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, nn

from spectrope.core import Interrupted, SpectropeWarning, Stop, StoreError, dtype_name
from spectrope.store import Run

CHECKPOINT = "checkpoint"
CHECKPOINTS = (CHECKPOINT, "checkpoint-2")
WEIGHTS = "weights"
MOMENTS = {  # What each optimiser keeps of a parameter.
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.AdamW: {"step", "exp_avg", "exp_avg_sq"},
    torch.optim.SGD: {"momentum_buffer"},
}
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class EpochScores:
    """Scores of one split after one epoch: loss in nats, accuracy as a fraction."""

    epoch: int
    step: int
    split: str
    loss: float
    accuracy: float


@dataclass(frozen=True)
class CheckpointProgress:
    """Progress of training stored in a checkpoint, in addition to its tensors; see `TrainingState`.

    Checkpoints of earlier versions have neither `cpu_seconds` nor `dtype`.
    """

    __pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    step: int
    seconds: float
    rows: list[dict[str, Any]]
    cpu_seconds: float | None = None
    dtype: Literal["float32", "bfloat16", "float16", "float64"] | None = None

    def __post_init__(self) -> None:
        if min(self.step, self.seconds, self.cpu_seconds or 0) < 0:
            raise ValueError("a count or a time is negative")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has been read and found to fit a model and its optimiser.

    Args:
        progress: What it says of training.
        rows: Scores up to then.
        tensors: Tensors of the model, the optimiser and additional state, by name.
    """

    progress: CheckpointProgress
    rows: list[Any]
    tensors: Mapping[str, Tensor]


@dataclass
class TrainingState(Generic[M]):
    """State of a run between two steps.

    Args:
        model: The network.
        optimiser: AdamW over the network's trainable parameters.
        step: Steps taken.
        seconds: Training time over all sessions.
        cpu_seconds: Processor time of this process during training, in seconds.
        rows: Scores so far, each a dataclass.
        row: Class of the rows.
        kept: Additional tensors to save, by name.
        dtype: Precision of matrix products, which a resumed run keeps on any machine.
        newest: Name of the newest checkpoint, which the next one does not replace.
    """

    model: M
    optimiser: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: list[Any] = field(default_factory=list)
    row: type[Any] = EpochScores
    kept: dict[str, Tensor] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    newest: str = CHECKPOINTS[-1]

    def save(self, run: Run) -> None:
        """Write the checkpoint, whole or not at all, in the place of the older one."""
        progress = {
            "step": self.step,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "rows": [asdict(row) for row in self.rows],
            "dtype": dtype_name(self.dtype),
        }
        (older,) = set(CHECKPOINTS) - {self.newest}
        run.write_tensors(older, self._tensors(), {"progress": json.dumps(progress)})
        self.newest = older

    def restore(self, run: Run) -> None:
        """Restore the newest checkpoint of `run` that is whole, if it has any; move damaged ones aside.

        Raises:
            StoreError: If a checkpoint cannot be read, or a damaged one cannot be moved.
        """
        sound: dict[str, Checkpoint] = {}
        damaged: list[tuple[Path, str]] = []
        for name in filter(run.has_tensors, CHECKPOINTS):
            try:
                sound[name] = self._read(run, name)
            except (StoreError, ValueError) as error:
                if isinstance(error.__cause__, OSError):  # It cannot be read now, which is no damage.
                    raise
                damaged.append((run.set_tensors_aside(name), _reason(error)))
        if sound:
            self.newest = max(sound, key=lambda name: sound[name].progress.step)
            self._load(sound[self.newest])
        for path, reason in damaged:
            warnings.warn(
                f"run {run.id}: a damaged checkpoint is now {path}; training goes on from step {self.step}. "
                f"({reason})",
                SpectropeWarning,
                stacklevel=2,
            )

    def _read(self, run: Run, name: str) -> Checkpoint:
        """A checkpoint, once it is known to fit.

        Raises:
            StoreError: If its file is damaged.
            ValueError: If what it holds is not what this version writes for this run.
        """
        tensors, metadata = run.read_tensors(name)
        try:
            progress = TypeAdapter(CheckpointProgress).validate_json(metadata.get("progress", ""))
            rows = [TypeAdapter(self.row).validate_python(row) for row in progress.rows]
        except RecursionError:
            raise ValueError("its progress is nested too deeply") from None
        if rows and rows[-1].step > progress.step:
            raise ValueError("its scores belong to later steps than its own")
        _require_same(
            "tensors of the model", _shapes(self.model.state_dict()), _shapes(_under("model", tensors))
        )
        self._require_moments(_under("adam", tensors))
        return Checkpoint(progress, rows, tensors)

    def _require_moments(self, moments: Mapping[str, Tensor]) -> None:
        """Refuse moments that are not those of parameters; one without a gradient has none.

        Raises:
            ValueError: If there are others.
        """
        (group,) = self.optimiser.param_groups
        moved = {key.partition(".")[0] for key in moments}
        expected = {
            f"{index}.{name}": torch.Size() if name == "step" else parameter.shape
            for index, parameter in enumerate(group["params"])
            for name in MOMENTS[type(self.optimiser)]
            if str(index) in moved
        }
        shapes = {key: one.shape for key, one in moments.items()}
        _require_same("moments of the optimiser", expected, shapes)

    def _load(self, checkpoint: Checkpoint) -> None:
        progress, tensors = checkpoint.progress, checkpoint.tensors
        self.step, self.seconds, self.rows = progress.step, progress.seconds, checkpoint.rows
        self.cpu_seconds = self.seconds if progress.cpu_seconds is None else progress.cpu_seconds
        self.dtype = self.dtype if progress.dtype is None else getattr(torch, progress.dtype)
        self.model.load_state_dict(_under("model", tensors))
        self.kept = _under("kept", tensors)
        moments = _under("adam", tensors)
        if moments:
            self._load_moments(moments)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, moments in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": value for name, value in moments.items()}
        return tensors | {f"kept.{name}": value for name, value in self.kept.items()}

    def _load_moments(self, moments: dict[str, Tensor]) -> None:
        state: dict[int, dict[str, Any]] = {}
        for key, value in moments.items():
            index, name = key.split(".")
            state.setdefault(int(index), {})[name] = value
        groups = self.optimiser.state_dict()["param_groups"]
        self.optimiser.load_state_dict({"state": state, "param_groups": groups})


def _reason(error: Exception) -> str:
    """One line of an error; of a validation, the first field that is wrong."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"its progress: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}


def _require_same(what: str, expected: Mapping[str, object], found: Mapping[str, object]) -> None:
    names = sorted(expected.keys() | found.keys())
    if wrong := [name for name in names if expected.get(name) != found.get(name)]:
        raise ValueError(f"its {what} are not those of this run, {wrong[0]} first")


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix(f"{prefix}."): t for key, t in tensors.items() if key.startswith(f"{prefix}.")}


SECONDS_BETWEEN_CHECKPOINTS = 30.0


def sit(
    state: TrainingState[Any],
    step: Callable[[], None],
    *,
    is_over: Callable[[], bool],
    before: Callable[[], None],
    save: Callable[[], None],
    stop: Stop,
    place: str,
) -> None:
    """Train until the end, or until a stop is requested.

    Args:
        state: State whose clock runs during a step.
        step: Performs one step, including evaluations that are due.
        is_over: Whether training has ended.
        before: Called before every step, off the clock.
        save: Writes the checkpoint.
        stop: Called after every step; training stops when it returns true.
        place: How many steps there are and where the checkpoint is, to follow "stopped at step 3 of".

    Raises:
        Interrupted: If asked to stop, once the checkpoint is written.
    """
    saved = time.monotonic()
    while not is_over():
        before()
        begun, computed = time.monotonic(), time.process_time()
        step()
        state.seconds += time.monotonic() - begun
        state.cpu_seconds += time.process_time() - computed
        stopping = stop() and not is_over()
        if stopping or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
            save()
            saved = time.monotonic()
        if stopping:
            raise Interrupted(f"stopped at step {state.step} of {place}.")
