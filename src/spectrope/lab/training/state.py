"""Resumable training loop, and its saved state."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from spectrope.core import Interrupted, Stop, dtype_name
from spectrope.store import Run

CHECKPOINT = "checkpoint"
WEIGHTS = "weights"
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class EpochScores:
    """Scores of one split after one epoch: loss in nats, accuracy as a fraction."""

    epoch: int
    step: int
    split: str
    loss: float
    accuracy: float


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
    """

    model: M
    optimiser: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: list[Any] = field(default_factory=list)
    row: Callable[..., Any] = EpochScores
    kept: dict[str, Tensor] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32

    def save(self, run: Run) -> None:
        """Write the checkpoint, whole or not at all."""
        progress = {
            "step": self.step,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "rows": [asdict(row) for row in self.rows],
            "dtype": dtype_name(self.dtype),
        }
        run.write_tensors(CHECKPOINT, self._tensors(), {"progress": json.dumps(progress)})

    def restore(self, run: Run) -> None:
        """Restore the checkpoint of `run`, if it has one."""
        if not run.has_tensors(CHECKPOINT):
            return
        tensors, metadata = run.read_tensors(CHECKPOINT)
        progress = json.loads(metadata["progress"])
        self.step, self.seconds = progress["step"], progress["seconds"]
        self.cpu_seconds = progress.get("cpu_seconds", self.seconds)  # Old ones do not say.
        self.rows = [self.row(**row) for row in progress["rows"]]
        self.dtype = getattr(torch, progress.get("dtype", dtype_name(self.dtype)))  # Old ones do not say.
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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
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
        step: Takes one, evaluations that are due included.
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
