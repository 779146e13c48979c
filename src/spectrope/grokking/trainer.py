"""Full-batch training in which each step depends only on the seed and the step number."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.grokking.config import GrokExperiment
from spectrope.grokking.measures.base import PROGRESS_MEASURES, Snapshot, columns
from spectrope.grokking.models.base import ModularModel
from spectrope.grokking.record import (
    SCORES,
    Evaluation,
    answers,
    one_hot,
    plain,
    scores,
    with_moment,
)
from spectrope.grokking.steps import StepTrainer, require_finite
from spectrope.lab import TrainingState
from spectrope.store import Run

PAIRS, MOMENTS = "pairs", "moments"  # Table and tensors beside evaluations and weights.


class GrokTrainer(StepTrainer):
    """Trains the model of one experiment, from its last checkpoint if `run` has one.

    Args:
        experiment: What to train, on what, and how.
        run: Where checkpoints, evaluations and weights go.
        device: Device to compute on.
    """

    def __init__(self, experiment: GrokExperiment, run: Run, device: torch.device) -> None:
        self.experiment, self.config = experiment, experiment.training
        self.columns = {**SCORES, **columns()}
        task = experiment.task.build()
        self.split, self.cycle = task.split(experiment.seed), task.cycle()
        self.train, self.pairs = self.split.train.to(device), self.split.pairs.to(device)
        dtype, mse = getattr(torch, self.config.dtype), self.config.loss == "mse"
        model = experiment.model.build(experiment.task, experiment.seed).to(device, dtype)
        self.targets = one_hot(self.train, experiment.task.p).to(dtype) if mse else None
        self.measures = [PROGRESS_MEASURES[name]() for name in PROGRESS_MEASURES]
        super().__init__(self.config, run, TrainingState(model, self._optimiser(model), row=Evaluation))

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

    def look(self) -> dict[str, float | None]:
        """Scores of both splits and every measure; embeddings and answers of now are kept."""
        snapshot, state = self.snapshot(), self.state
        metrics = scores(snapshot, mse=self.targets is not None)
        require_finite(metrics["train_loss"], state.step)
        for measure in self.measures:
            metrics |= measure(snapshot)
        state.kept = with_moment(state.kept, state.step, snapshot)
        return metrics

    def write(self) -> None:
        """Write evaluations, moments, answers and weights."""
        super().write()
        self.run.write_frame(PAIRS, answers(self.split, self.snapshot()))
        self.run.write_tensors(MOMENTS, self.state.kept, {})

    def _optimiser(self, model: ModularModel) -> torch.optim.AdamW:
        trained = [p for p in model.parameters() if p.requires_grad]
        return torch.optim.AdamW(
            trained, betas=self.config.betas, weight_decay=self.config.weight_decay, fused=True
        )
