"""Full-batch training whose every step depends on the seed and its own number alone."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.grokking.config import GrokExperiment
from spectrope.grokking.measures.base import MEASURES, Snapshot
from spectrope.grokking.record import (
    Evaluation,
    answers,
    one_hot,
    plain,
    scores,
    stable_steps,
    table,
    with_moment,
)
from spectrope.models.modular.base import ModularModel
from spectrope.store import Run
from spectrope.training.interrupt import Stop, never
from spectrope.training.sitting import sit
from spectrope.training.state import WEIGHTS, TrainingState

PROGRESS, PAIRS, MOMENTS = "progress", "pairs", "moments"  # Tables and tensors beside the weights.


@dataclass(frozen=True)
class GrokProgress:
    """What a progress line shows.

    Args:
        step: Steps taken.
        steps: Most steps.
        last: The latest evaluation, if any.
        over: Whether training has ended.
    """

    step: int
    steps: int
    last: Evaluation | None
    over: bool


Watcher = Callable[[GrokProgress], None]


class GrokTrainer:
    """Trains the model of one experiment, from its last checkpoint if `run` has one.

    Args:
        experiment: What to train, on what, and how.
        run: Where checkpoints, evaluations and weights go.
        device: Where to compute.
    """

    def __init__(self, experiment: GrokExperiment, run: Run, device: torch.device) -> None:
        self.experiment, self.config, self.run = experiment, experiment.training, run
        task = experiment.task.build()
        self.split, self.cycle = task.split(experiment.seed), task.cycle()
        self.train, self.pairs = self.split.train.to(device), self.split.pairs.to(device)
        dtype, mse = getattr(torch, self.config.dtype), self.config.loss == "mse"
        model = experiment.model.build(experiment.task, experiment.seed).to(device, dtype)
        self.targets = one_hot(self.train, experiment.task.p).to(dtype) if mse else None
        self.state = TrainingState(model, self._optimiser(model), row=Evaluation)
        self.state.restore(run)
        self.measures = [MEASURES[name]() for name in MEASURES]

    def fit(self, watch: Watcher = lambda progress: None, stop: Stop = never) -> ModularModel:
        """Train to the end, then write evaluations, moments and weights.

        Args:
            watch: Told before every step, and at the end, where training stands.
            stop: Asked after every step whether to stop there.

        Raises:
            Interrupted: If asked to stop, once the checkpoint is written.
        """
        state = self.state
        self._evaluate_if_due()
        sit(
            state,
            self._next,
            is_over=self._is_over,
            before=lambda: watch(self._progress()),
            save=self._save,
            stop=stop,
            place=f"at most {self.config.steps}, saved in {self.run.path}",
        )
        self.run.write_frame(PROGRESS, table(state.rows))
        self.run.write_frame(PAIRS, answers(self.split, self.snapshot()))
        self.run.write_tensors(MOMENTS, state.kept, {})
        self.run.write_tensors(WEIGHTS, state.model.state_dict(), {})
        watch(self._progress())
        return state.model

    def step(self) -> None:
        """One step of the optimiser on all training pairs."""
        state = self.state
        for group in state.optimiser.param_groups:
            group["lr"] = self.config.rate(state.step)
        state.optimiser.zero_grad(set_to_none=True)
        self.loss(state.model(self.train.a, self.train.b)).backward()
        state.optimiser.step()
        state.step += 1

    def loss(self, logits: Float[Tensor, "n p"]) -> Tensor:
        """Mean loss of the training pairs."""
        if self.targets is None:
            return F.cross_entropy(logits, self.train.labels)
        return F.mse_loss(logits, self.targets)

    @torch.no_grad()
    def snapshot(self) -> Snapshot:
        """The model as the measures see it: one pass over all pairs."""
        model = self.state.model
        x = model.represent(self.pairs.a, self.pairs.b)
        of_a, of_b, logits = (plain(t) for t in (*model.operands(), model.read_out(x)))
        weights = {name: plain(p) for name, p in model.named_parameters() if p.requires_grad}
        return Snapshot(self.split, self.cycle, of_a, of_b, plain(x), logits, weights)

    def evaluate(self) -> None:
        """Score both splits, take every measure, and keep the embeddings and answers of now."""
        snapshot, state = self.snapshot(), self.state
        found = scores(snapshot, mse=self.targets is not None)
        for measure in self.measures:
            found |= measure(snapshot)
        state.rows.append(Evaluation(state.step, found))
        state.kept = with_moment(state.kept, state.step, snapshot)

    def _optimiser(self, model: ModularModel) -> torch.optim.AdamW:
        trained = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.AdamW(
            trained, betas=self.config.betas, weight_decay=self.config.weight_decay, fused=True
        )

    def _next(self) -> None:
        self.step()
        self._evaluate_if_due()

    def _save(self) -> None:
        self.state.save(self.run)
        self.run.write_frame(PROGRESS, table(self.state.rows))

    def _evaluate_if_due(self) -> None:
        step, rows = self.state.step, self.state.rows
        due = step % self.config.evaluate_every == 0 or step == self.config.steps
        if due and not (rows and rows[-1].step == step):
            self.evaluate()

    def _is_over(self) -> bool:
        rule, rows = self.config.stop, self.state.rows
        if self.state.step >= self.config.steps:
            return True
        if rule is None or not rows or rows[-1].step != self.state.step:
            return False
        stable = stable_steps(rows, rule.accuracy)
        return stable is not None and stable >= rule.steps

    def _progress(self) -> GrokProgress:
        rows = self.state.rows
        return GrokProgress(self.state.step, self.config.steps, rows[-1] if rows else None, self._is_over())
