"""Gradients by head over the first steps of training, which are repeated after its end."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

import polars as pl
import torch

from spectrope.core import Interrupted, Progress, Watch, require_least
from spectrope.lab.measures.base import TableMeasure
from spectrope.lab.probes.head_factors import by_head, factor_gradients, projections
from spectrope.lab.runs import experiment_of, run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.probe import Probe
from spectrope.models import Decoder
from spectrope.store import Run, temporary_folder
from spectrope.tasks import Batch

EVERY, STEPS = 20, 40  # Steps between two measurements, and to the last of them.


@dataclass(frozen=True, kw_only=True)
class FactorProbe(Probe):
    """Records the table "head_gradients", with one row per step, layer and head, counted from 0."""

    table: ClassVar[str] = "head_gradients"

    examples: int = 256  # The first training examples.

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 1, "examples")

    def choose(self, data: Batch) -> Batch:
        """The first training examples, without common padding."""
        return data[: self.examples].trimmed()

    def measure(self, model: Decoder, batch: Batch) -> Mapping[str, pl.DataFrame]:
        """The energy of the gradient by each head's factors, and by its W_Q and W_K."""
        by_factors, shared = (factor_gradients(model, batch), factor_gradients(model, batch, projections))
        return {self.table: by_head(energy=by_factors, projections=shared)}


class HeadGradients(TableMeasure, name="head_gradients"):
    """The energy of each head's gradient over the first steps.

    A step depends only on the seed and its number, so repeating the first steps, in a temporary folder,
    reproduces those of the run.
    """

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table of `FactorProbe`, up to the last of these steps.

        Raises:
            UnsupportedError: If attention is not multi-head.
        """
        from spectrope.lab.training.loop import Trainer  # Here, so that measures are named without it.

        experiment = experiment_of(run)
        unscored = replace(experiment, training=replace(experiment.training, eval_examples=1))
        with temporary_folder() as folder:
            again = run_for(unscored, folder)
            trainer = Trainer(unscored, again, device, FactorProbe(every=EVERY), run.manifest["precision"])
            with suppress(Interrupted):
                trainer.fit(stop=lambda: trainer.state.step > STEPS)
            table = again.frame(FactorProbe.table)
        watch(Progress("learning", 1, 1))
        return table.filter(pl.col("step") <= STEPS)

    def examples(self, experiment: Experiment) -> int:
        training = experiment.training
        steps = training.epochs * -(-experiment.n_train // training.batch_size)
        return min(STEPS + 1, steps) * training.batch_size
