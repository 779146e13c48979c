"""The laboratory of decoders: experiments on labelled sequences, measured after training."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from spectrope.core import Precision, median_seconds
from spectrope.lab.experiments import Laboratory, TrainingTime
from spectrope.lab.job import train
from spectrope.lab.manifest import DECODER
from spectrope.lab.measures import MEASURES
from spectrope.lab.runs import build_model, run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.probe import Probe
from spectrope.store import Run, temporary_folder

if TYPE_CHECKING:
    from spectrope.lab.training.loop import Trainer

EXAMPLES = 256  # Held-out ones of a shortened experiment.
FORWARD = 1 / 3  # Share of a step that its forward pass takes.


class DecoderLaboratory(Laboratory[Experiment], name=DECODER):
    """Trains the decoder of `models` on a task's training examples."""

    Experiment = Experiment
    measured = True

    def check(self, experiment: Experiment, probe: Probe | None) -> None:
        """Test the probe, if there is one, on the untrained model."""
        if probe is not None:
            few = experiment.task.build().sample(2, experiment.seed)
            probe.measure(build_model(experiment, torch.device("cpu")), probe.choose(few))

    def trainer(
        self,
        experiment: Experiment,
        run: Run,
        device: torch.device,
        precision: Precision,
        probe: Probe | None = None,
    ) -> "Trainer":
        from spectrope.lab.training.loop import Trainer  # Here, so that experiments are read without it.

        return Trainer(experiment, run, device, probe, precision)

    def time(self, experiment: Experiment, device: torch.device, precision: Precision) -> TrainingTime:
        making, step = time_steps(shortened(experiment), device, precision)
        return TrainingTime(_training(experiment, making, step), step)

    def operations(self, experiment: Experiment) -> float:
        """Two for each weight and each pair of tokens, in the longest sequences that there can be."""
        model, training = experiment.model, experiment.training
        width, t = model.n_heads * model.head_dim, model.max_length
        weights = model.n_layers * (4 * model.d_model * width + 2 * model.d_model * model.d_ff)
        pairs = 2 * model.n_layers * width * t
        examples = training.epochs * experiment.n_train + _scored(experiment) * FORWARD
        return 2 * t * (weights + pairs) * examples / FORWARD

    def time_measure(
        self, experiment: Experiment, name: str, device: torch.device, precision: Precision
    ) -> float:
        """Seconds for the whole run, from a measurement of a shortened one."""
        measure, short = MEASURES[name](), shortened(experiment)
        with temporary_folder() as folder:
            run = train(short, folder, device, precision=precision)
            begun = time.perf_counter()
            measure.take(run, device)
            seconds = time.perf_counter() - begun
        return seconds * measure.examples(experiment) / measure.examples(short)


def time_steps(short: Experiment, device: torch.device, precision: Precision) -> tuple[float, float]:
    """Seconds to make the data of a shortened experiment, and per step of the optimiser."""
    with temporary_folder() as folder:
        begun = time.perf_counter()
        trainer = DecoderLaboratory().trainer(short, run_for(short, folder), device, precision)
        making = time.perf_counter() - begun
        return making, median_seconds(lambda: trainer.step(trainer.train_data), device)


def shortened(experiment: Experiment) -> Experiment:
    """The same experiment with one step, on few examples."""
    training = replace(experiment.training, epochs=1, eval_examples=1)
    n_train = min(experiment.n_train, training.batch_size)
    return replace(experiment, training=training, n_train=n_train, n_test=min(experiment.n_test, EXAMPLES))


def _training(whole: Experiment, making: float, step: float) -> float:
    """Seconds to make the data, take all steps, and score both splits after each epoch."""
    config, short = whole.training, shortened(whole)
    examples = (whole.n_train + whole.n_test) / (short.n_train + short.n_test)
    steps = config.epochs * whole.n_train / config.batch_size
    scoring = _scored(whole) / config.batch_size * FORWARD
    return making * examples + (steps + scoring) * step


def _scored(whole: Experiment) -> int:
    """Examples that are scored before the first epoch and after each, counted each time."""
    config = whole.training
    once = min(config.eval_examples, whole.n_train) + min(config.eval_examples, whole.n_test)
    return (config.epochs + 1) * once
