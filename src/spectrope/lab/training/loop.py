"""The training loop. Each step depends only on the seed and its number, so a run can stop at any step."""

import math
from dataclasses import replace
from typing import Any

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from spectrope.core import (
    Noise,
    Precision,
    Progress,
    Stop,
    Watch,
    choose_dtype,
    dtype_name,
    in_precision,
    never,
    stream_seed,
    torch_stream,
    unwatched,
)
from spectrope.lab.evaluation.score import IGNORED, by_length, counted_labels, score
from spectrope.lab.runs import build_model
from spectrope.lab.training.config import Experiment, TrainingConfig
from spectrope.lab.training.probe import Probe, Recorder, go_unprobed
from spectrope.lab.training.state import WEIGHTS, EpochScores, TrainingState, sit
from spectrope.models import Decoder
from spectrope.store import Run
from spectrope.tasks import Batch


def learning_rate(step: int, steps: int, config: TrainingConfig) -> float:
    r"""Linear warm-up to the peak, then :math:`\tfrac12\eta(1+\cos\pi t)` down to 0.

    If positions are dropped during training, the steps before and after have separate schedules.
    """
    if (kept := steps_with_positions(steps, config)) < steps:
        step, steps = (step, kept) if step < kept else (step - kept, steps - kept)
    warm = round(config.warmup * steps)
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    return 0.5 * config.learning_rate * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def steps_with_positions(steps: int, config: TrainingConfig) -> int:
    """Number of steps before positions are dropped; all steps if they are kept."""
    return steps if config.drop_positions is None else steps - max(1, round(config.drop_positions * steps))


class Trainer:
    """Trains the model of one experiment, from its last checkpoint if `run` has one.

    Args:
        experiment: The experiment.
        run: Run folder, to which checkpoints, scores and weights are written.
        device: Device to compute on.
        probe: Probe that measures during training, without changing weights or scores.
        precision: Precision of matrix products, unless the experiment or a checkpoint sets it.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: Run,
        device: torch.device,
        probe: Probe | None = None,
        precision: Precision = "auto",
    ) -> None:
        self.experiment, self.run, self.device = experiment, run, device
        self.config = experiment.training
        task = experiment.task.build()
        self.train_data, self.test_data = task.split(experiment.n_train, experiment.n_test, experiment.seed)
        self.steps_per_epoch = -(-experiment.n_train // self.config.batch_size)
        self.steps = self.config.epochs * self.steps_per_epoch
        model = build_model(experiment, device)
        configured = self.config.precision
        dtype = choose_dtype(precision if configured == "auto" else configured, device)
        self.state = TrainingState(model, make_optimiser(model, self.config), dtype=dtype)
        self.state.restore(run)
        if self.state.step > steps_with_positions(self.steps, self.config):
            model.drop_positions()  # As the steps before the checkpoint did.
        if probe is None:
            go_unprobed(run, self.state.step)
        self.recorder = None if probe is None else Recorder(probe, run, self.train_data, self.state.step)

    def fit(self, watch: Watch = unwatched, stop: Stop = never) -> Decoder:
        """Train to the end, then write scores and weights.

        Args:
            watch: Progress callback, called before every step and at the end.
            stop: Called after every step; training stops when it returns true.

        Raises:
            Interrupted: If a stop is requested, once the checkpoint is written.
        """
        state = self.state

        def before() -> None:
            watch(self.progress())
            self._record()

        if not state.rows:
            self.score_epoch(0)
        sit(
            state,
            self._next,
            is_over=lambda: state.step >= self.steps,
            before=before,
            save=lambda: state.save(self.run),
            stop=stop,
            place=f"{self.steps}, saved in {self.run.path}",
        )
        self._record()
        self.write()
        watch(self.progress())
        return state.model

    def write(self) -> None:
        """Write the scores so far and the weights into the run folder."""
        self.run.write_frame("metrics", pl.DataFrame(self.state.rows))
        self.run.write_tensors(WEIGHTS, self.state.model.state_dict(), {})

    def _record(self) -> None:
        if self.recorder is not None:
            self.recorder.record(self.state.model, self.state.step)

    def _next(self) -> None:
        epoch, within = divmod(self.state.step, self.steps_per_epoch)
        self.step(self.batch(epoch, within))
        if within == self.steps_per_epoch - 1:
            self.score_epoch(epoch + 1)

    def step(self, batch: Batch) -> None:
        """One step of the optimiser: gradients of the micro-batches add up to the batch's mean gradient."""
        state = self.state
        if state.step >= steps_with_positions(self.steps, self.config):
            state.model.drop_positions()
        for group in state.optimiser.param_groups:
            group["lr"] = learning_rate(state.step, self.steps, self.config)
        state.optimiser.zero_grad(set_to_none=True)
        accumulate(state.model, batch, self.noise(), self.config.micro_batch, state.dtype)
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(state.model.parameters(), self.config.clip)
        state.optimiser.step()
        state.step += 1

    def noise(self) -> Noise | None:
        """Dropout of the next step."""
        p = self.experiment.model.dropout
        seed = stream_seed(self.experiment.seed, "dropout", self.state.step)
        return Noise(p, seed, self.device) if p > 0 else None

    def batch(self, epoch: int, within: int) -> Batch:
        """Examples of a step of an epoch."""
        order = torch.randperm(
            self.experiment.n_train, generator=torch_stream(self.experiment.seed, "order", epoch)
        )
        size = self.config.batch_size
        return self._numbered(self.train_data[order[within * size : (within + 1) * size]])

    def _numbered(self, batch: Batch) -> Batch:
        """The batch with positions drawn for this step, where the model's rule draws any."""
        if batch.positions is not None:
            return batch
        rule, (n, width) = self.experiment.model.positions, batch.inputs.shape
        seed = stream_seed(self.experiment.seed, "positions", self.state.step)
        still, drawn = (rule(n, width, batch.inputs.device, s) for s in (None, seed))
        return batch if torch.equal(still, drawn) else replace(batch, positions=drawn.expand(n, width))

    def score_epoch(self, epoch: int) -> None:
        """Score both splits after an epoch."""
        n = self.config.eval_examples
        for split, data in (("train", self.train_data), ("test", self.test_data)):
            result = score(self.state.model, data[:n], dtype=self.state.dtype)
            row = EpochScores(epoch, self.state.step, split, result.loss, result.accuracy)
            self.state.rows.append(row)

    def progress(self) -> Progress:
        """Steps taken, and held-out accuracy after the last whole epoch."""
        tests = [row for row in self.state.rows if row.split == "test"]
        last = tests[-1].accuracy if tests and tests[-1].epoch else None
        return Progress("train", self.state.step, self.steps, last)

    @property
    def seconds(self) -> float:
        """Training time over all sessions of a resumed run."""
        return self.state.seconds

    @property
    def cpu_seconds(self) -> float:
        """Processor time spent training over all sessions, in seconds."""
        return self.state.cpu_seconds

    def manifest(self) -> dict[str, Any]:
        """Scores of the current model, and the precision of training."""
        model, dtype = self.state.model, self.state.dtype
        train_score = score(model, self.train_data[: len(self.test_data)], dtype=dtype)
        test_score = score(model, self.test_data, dtype=dtype)
        return {
            "precision": dtype_name(dtype),
            "bayes_accuracy": self.experiment.task.build().bayes_accuracy(),
            "chance_accuracy": self.test_data.commonest,
            "train_accuracy": train_score.accuracy,
            "test_accuracy": test_score.accuracy,
            "test_loss": test_score.loss,
            "n_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        }


def make_optimiser(model: Decoder, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW or gradient descent with momentum over the parameters that train, in torch's fused form."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    shared = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "fused": True}
    if config.optimiser == "sgd":
        return torch.optim.SGD(trainable, momentum=config.betas[0], **shared)
    return torch.optim.AdamW(trainable, betas=config.betas, **shared)


def accumulate(
    model: Decoder, batch: Batch, noise: Noise | None, micro_batch: int, dtype: torch.dtype
) -> Tensor:
    """Add the gradient of a batch's mean loss to `.grad`, one micro-batch at a time, and return the loss.

    Micro-batches contain examples of similar length and are trimmed where padding has no effect, which saves
    work without changing the sums.
    """
    device = next(model.parameters()).device
    counted = int((counted_labels(model, batch.labels) != IGNORED).sum())
    total = torch.zeros((), device=device)
    for _, piece in by_length(batch, micro_batch, trim=model.padding_is_inert):
        piece = piece.to(device)
        with in_precision(device, dtype):
            logits = model(piece, noise)
        labels = counted_labels(model, piece.labels)
        loss = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum") / max(
            1, counted
        )
        loss.backward()
        total += loss.detach()
    return total
