"""The laboratory of language models on repeated random tokens.

A run measures itself once it is trained. It holds the tables `metrics` (held-out scores by step),
`atlas-heads` (where heads attend) and `head-groups` (what groups of heads cost without their bands), and the
weights.
"""

import time
from typing import TYPE_CHECKING

import torch

from spectrope.checkpoints.repeated.config import RepeatedTokens
from spectrope.core import Precision, UnsupportedError, median_seconds
from spectrope.lab import Laboratory, Probe, TrainingTime, run_for
from spectrope.store import Run, temporary_folder

if TYPE_CHECKING:
    from spectrope.checkpoints.repeated.trainer import RepeatedTrainer


class RepeatedLaboratory(Laboratory[RepeatedTokens], name=RepeatedTokens.laboratory):
    """Trains small Llamas until they have induction heads."""

    Experiment = RepeatedTokens

    def check(self, experiment: RepeatedTokens, probe: Probe | None) -> None:
        from spectrope.checkpoints.adapters.llama import require_llama

        require_llama()
        if probe is not None:
            raise UnsupportedError("probes measure decoders; a run on repeated tokens measures itself.")

    def trainer(
        self,
        experiment: RepeatedTokens,
        run: Run,
        device: torch.device,
        precision: Precision,
        probe: Probe | None,
    ) -> "RepeatedTrainer":
        from spectrope.checkpoints.repeated.trainer import RepeatedTrainer  # Experiments are read without it.

        return RepeatedTrainer(experiment, run, device)

    def time(self, experiment: RepeatedTokens, device: torch.device, precision: Precision) -> TrainingTime:
        """As for any laboratory, if all steps are taken and without the measurements at the end."""
        with temporary_folder() as folder:
            begun = time.perf_counter()
            trainer = self.trainer(experiment, run_for(experiment, folder), device, precision, None)
            making = time.perf_counter() - begun
            step = median_seconds(trainer.step, device)
        return TrainingTime(making + experiment.steps * step, step)

    def operations(self, experiment: RepeatedTokens) -> float:
        """Six for each weight and token, if all steps are taken."""
        width, one = experiment.d_model, experiment
        weights = one.n_layers * (4 * width**2 + 3 * width * one.feed_forward) + one.vocabulary * width
        return 6.0 * weights * one.steps * one.batch_size * one.length
