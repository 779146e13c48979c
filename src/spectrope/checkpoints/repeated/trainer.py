"""Training of a Llama on repeated random tokens."""

from dataclasses import asdict
from typing import Any

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from torch import nn

from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.adapters.llama import random_llama
from spectrope.checkpoints.repeated.config import RepeatedTokens
from spectrope.checkpoints.repeated.groups import group_costs, heads_of
from spectrope.checkpoints.sequences import Sequences, predicting, repeated_tokens
from spectrope.core import ConfigError, Progress, Stop, Watch, never, unwatched
from spectrope.lab import WEIGHTS, EpochScores, TrainingState, sit
from spectrope.store import Run

STREAMS = 1_000_000  # Seeds of tokens between two seeds of runs; a step takes the one of its number.
CHOOSING, SCORING = 900_001, 900_002  # Those of sequences that choose heads, and that score them.
WATCHED, CHOSEN_ON, SCORED_ON = (
    128,
    256,
    512,
)  # Sequences: of each evaluation, to choose heads, to score them.


def repeats(experiment: RepeatedTokens, n: int, stream: int) -> Sequences:
    """Sequences that repeat, each with its own period between 2 and half the length."""
    seed, one = experiment.seed * STREAMS + stream, experiment
    ids, wanted = repeated_tokens(np.arange(one.vocabulary), n, one.length, "distance", seed)
    return predicting(ids, wanted, torch.full((n,), one.length))


def untrained_model(experiment: RepeatedTokens) -> Any:
    """The Llama of an experiment before its first step."""
    return random_llama(
        experiment.vocabulary,
        width=experiment.d_model,
        feed_forward=experiment.feed_forward,
        layers=experiment.n_layers,
        heads=experiment.n_heads,
        length=4 * experiment.length,
        base=experiment.base,
        seed=experiment.seed,
    )


@torch.no_grad()
def token_scores(model: nn.Module, data: Sequences) -> tuple[float, float]:
    """Mean loss in nats and accuracy on the repeated tokens of all sequences."""
    logits, wanted = model(input_ids=data.ids).logits[data.scored], data.targets[data.scored]
    loss, hit = F.cross_entropy(logits, wanted), (logits.argmax(-1) == wanted).float().mean()
    return float(loss), float(hit)


class RepeatedTrainer:
    """Trains the model of one experiment, from its last checkpoint if `run` has one.

    Args:
        experiment: What to train, and how.
        run: Where checkpoints, scores and weights go.
        device: Device to compute on.
    """

    def __init__(self, experiment: RepeatedTokens, run: Run, device: torch.device) -> None:
        self.experiment, self.run, self.device = experiment, run, device
        model = untrained_model(experiment).to(device)
        settings: dict[str, Any] = {"betas": (0.9, 0.98), "weight_decay": 0.01}
        optimiser = torch.optim.AdamW(model.parameters(), lr=experiment.learning_rate, **settings)
        self.state = TrainingState(model, optimiser)
        self.state.restore(run)
        self.held_out = repeats(experiment, WATCHED, 0).to(device)
        self.final: dict[str, float] = {}

    def step(self) -> None:
        """One step of the optimiser on new sequences, and the evaluation that is due after it."""
        state, one = self.state, self.experiment
        for group in state.optimiser.param_groups:
            group["lr"] = one.rate(state.step + 1)
        ids = repeats(one, one.batch_size, state.step + 1).ids.to(self.device)
        loss = state.model(input_ids=ids, labels=ids).loss
        state.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(state.model.parameters(), 1.0)
        state.optimiser.step()
        state.step += 1
        if not torch.isfinite(loss):
            raise ConfigError(f"training has diverged at step {state.step}; lower the learning rate.")
        if state.step % one.evaluate_every == 0 or state.step == one.steps:
            self._evaluate()

    def fit(self, watch: Watch = unwatched, stop: Stop = never) -> None:
        """Train to the end, then measure the heads and write everything that the run is made for.

        Args:
            watch: Shown the steps done and the held-out accuracy, before every step and at the end.
            stop: Called after every step; training stops when it returns true.

        Raises:
            Interrupted: If asked to stop, once the checkpoint is written.
        """
        sit(
            self.state,
            self.step,
            is_over=self._is_over,
            before=lambda: watch(self._progress()),
            save=lambda: self.state.save(self.run),
            stop=stop,
            place=f"at most {self.experiment.steps}, saved in {self.run.path}",
        )
        watch(self._progress())
        self._measure()
        self.run.write_frame("metrics", pl.DataFrame([asdict(row) for row in self.state.rows]))
        self.run.write_tensors(WEIGHTS, self.state.model.state_dict(), {})

    def _measure(self) -> None:
        """Describe heads on some sequences, and score groups of them on others."""
        subject = CheckpointSubject.of(self.state.model)
        heads = heads_of(subject, repeats(self.experiment, CHOSEN_ON, CHOOSING).to(self.device))
        data = repeats(self.experiment, SCORED_ON, SCORING).to(self.device)
        loss, accuracy = token_scores(self.state.model, data)
        self.final = {"test_loss": loss, "test_accuracy": accuracy}
        self.run.write_frame("atlas-heads", pl.DataFrame([vars(head) for head in heads]))
        self.run.write_frame("head-groups", group_costs(subject, data, heads))

    def _evaluate(self) -> None:
        """Add the held-out scores; an epoch is the interval between two evaluations."""
        loss, accuracy = token_scores(self.state.model, self.held_out)
        step = self.state.step
        epoch = -(-step // self.experiment.evaluate_every)
        self.state.rows.append(EpochScores(epoch, step, "test", loss, accuracy))

    def _is_over(self) -> bool:
        rows = self.state.rows
        reached = bool(rows) and rows[-1].accuracy >= self.experiment.enough
        return reached or self.state.step >= self.experiment.steps

    def _progress(self) -> Progress:
        rows = self.state.rows
        return Progress("train", self.state.step, self.experiment.steps, rows[-1].accuracy if rows else None)

    @property
    def seconds(self) -> float:
        """Training time over all sessions of a resumed run."""
        return self.state.seconds

    @property
    def cpu_seconds(self) -> float:
        """Processor time spent training over all sessions, in seconds."""
        return self.state.cpu_seconds

    def manifest(self) -> dict[str, Any]:
        """Final held-out scores on repeated tokens."""
        n_parameters = sum(parameter.numel() for parameter in self.state.model.parameters())
        facts = {
            "precision": self.experiment.precision,
            "steps": self.state.step,
            "n_parameters": n_parameters,
        }
        return {**facts, **self.final}
