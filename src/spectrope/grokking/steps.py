"""Common base of trainers that evaluate at intervals and stop once the test set is solved."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from spectrope.core import ConfigError, Progress, Stop, Watch, dtype_name, never, unwatched
from spectrope.grokking.config import Budget, Grokked
from spectrope.grokking.record import Evaluation, stable_steps, table
from spectrope.lab import WEIGHTS, TrainingState, sit
from spectrope.store import Run

PROGRESS = "progress"  # The table of all evaluations.


class StepTrainer(ABC):
    """Base of the trainers, which resume from the last checkpoint of `run` if it has one.

    Args:
        budget: Length of training and evaluation interval.
        run: Where checkpoints, evaluations and weights go.
        state: Model and optimiser.
    """

    columns: Mapping[str, str]  # What the numbers of an evaluation are, by column.

    def __init__(self, budget: Budget, run: Run, state: TrainingState[Any]) -> None:
        self.budget, self.run, self.state = budget, run, state
        state.restore(run)

    @abstractmethod
    def step(self) -> None:
        """One step of the optimiser."""

    @abstractmethod
    def look(self) -> dict[str, float | None]:
        """Scores and measures of now, by column."""

    def evaluate(self) -> None:
        """Add a look to the table."""
        self.state.rows.append(Evaluation(self.state.step, self.look()))

    def fit(self, watch: Watch = unwatched, stop: Stop = never) -> None:
        """Train to the end, then write everything that the run is made for.

        Args:
            watch: Shown the steps done and all evaluations, before every step and at the end.
            stop: Called after every step; training stops when it returns true.

        Raises:
            Interrupted: If asked to stop, once the checkpoint is written.
        """
        self._write_progress()
        self._evaluate_if_due()
        sit(
            self.state,
            self._next,
            is_over=self._is_over,
            before=lambda: watch(self._progress()),
            save=self._save,
            stop=stop,
            place=f"at most {self.budget.steps}, saved in {self.run.path}",
        )
        self.write()
        watch(self._progress())

    def write(self) -> None:
        """Write evaluations and weights."""
        self._write_progress()
        self.run.write_tensors(WEIGHTS, self.state.model.state_dict(), {})

    def _next(self) -> None:
        self.step()
        self._evaluate_if_due()

    def _save(self) -> None:
        self.state.save(self.run)
        self._write_progress()

    def _write_progress(self) -> None:
        """Write the evaluations so far; those of an interrupted session after its last checkpoint go."""
        if self.state.rows:
            self.run.write_frame(PROGRESS, table(self.state.rows))
        else:
            self.run.remove(PROGRESS)

    def _evaluate_if_due(self) -> None:
        step, rows = self.state.step, self.state.rows
        due = step % self.budget.evaluate_every == 0 or step == self.budget.steps
        if due and not (rows and rows[-1].step == step):
            self.evaluate()

    def _is_over(self) -> bool:
        rule, rows = self.budget.stop, self.state.rows
        if self.state.step >= self.budget.steps:
            return True
        if rule is None or not rows or rows[-1].step != self.state.step:
            return False
        stable = stable_steps(rows, rule.accuracy)
        return stable is not None and stable >= rule.steps

    def _progress(self) -> Progress:
        evaluations = [{"step": float(row.step), **row.values} for row in self.state.rows]
        accuracy = evaluations[-1]["test_accuracy"] if evaluations else None
        return Progress("train", self.state.step, self.budget.steps, accuracy, evaluations=evaluations)

    @property
    def seconds(self) -> float:
        """Training time over all sessions of a resumed run."""
        return self.state.seconds

    @property
    def cpu_seconds(self) -> float:
        """Processor time spent training over all sessions, in seconds."""
        return self.state.cpu_seconds

    def manifest(self) -> dict[str, Any]:
        """Final scores and measures, what they mean, and when the model grokked."""
        state, rule = self.state, self.budget.stop or Grokked()
        stable = stable_steps(state.rows, rule.accuracy)
        return {
            "precision": dtype_name(next(state.model.parameters()).dtype),
            "steps": state.step,
            "grokked_at": None if stable is None else state.step - stable,
            "n_parameters": sum(p.numel() for p in state.model.parameters() if p.requires_grad),
            **state.rows[-1].values,
            "columns": dict(self.columns),
        }


def require_finite(loss: float | None, step: int) -> None:
    """Raise an error if training has diverged.

    Raises:
        ConfigError: If the loss is infinite or no number.
    """
    if loss is not None and not math.isfinite(loss):
        raise ConfigError(f"training has diverged: loss {loss} after step {step}; lower the learning rate.")
