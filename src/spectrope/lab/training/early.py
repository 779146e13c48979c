"""What a finished run was like before and as it began to train: its first steps are taken again."""

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import polars as pl
import torch

from spectrope.core import Interrupted, Progress, Watch, unwatched
from spectrope.lab.probes.head_factors import factor_growth
from spectrope.lab.runs import experiment_of, load_model, run_for
from spectrope.lab.training.factors import FactorProbe, by_head
from spectrope.lab.training.learning import LearningProbe
from spectrope.lab.training.loop import Trainer, build_model
from spectrope.store import Run

EVERY, STEPS = 20, 40  # Steps between two measurements, and to the last of them.
KERNELS = (
    "positional_share",
    "positional_null",
    "tangent_largest",
    "tangent_plain_largest",
    "newton_largest",
    "newton_plain_largest",
)


def kernels_at_start(run: Run, device: torch.device, watch: Watch = unwatched) -> pl.DataFrame:
    """The tangent kernels of every head before training; keep and return the table "start".

    A row per layer and head, with the columns `KERNELS` of the table "learning" of `LearningProbe`.

    Raises:
        UnsupportedError: If attention is not multi-head.
    """
    experiment, probe = experiment_of(run), LearningProbe()
    train, _ = experiment.task.build().split(experiment.n_train, experiment.n_test, experiment.seed)
    model = build_model(experiment, device).eval()
    measured = probe.measure(model, probe.choose(train).to(device))[probe.table]
    table = measured.select("layer", "head", *KERNELS)
    run.write_frame("start", table)
    watch(Progress("learning", 1, 1))
    return table


def head_gradients(run: Run, device: torch.device, watch: Watch = unwatched) -> pl.DataFrame:
    """The gradient's energy by head over the first steps; keep and return the table "head_gradients".

    A step depends on the seed and its number alone, so that the first ones, taken again in a folder that is
    then removed, are those of the run.

    Raises:
        UnsupportedError: If attention is not multi-head.
    """
    experiment = experiment_of(run)
    unscored = replace(experiment, training=replace(experiment.training, eval_examples=1))
    with tempfile.TemporaryDirectory() as folder:
        again = run_for(unscored, Path(folder))
        trainer = Trainer(unscored, again, device, FactorProbe(every=EVERY), run.manifest["precision"])
        with suppress(Interrupted):
            trainer.fit(stop=lambda: trainer.state.step > STEPS)
        table = again.frame(FactorProbe.table).filter(pl.col("step") <= STEPS)
    run.write_frame(FactorProbe.table, table)
    watch(Progress("learning", 1, 1))
    return table


def head_growth(run: Run, device: torch.device, watch: Watch = unwatched) -> pl.DataFrame:
    """How far training has moved each head's factors; keep and return the table "head_growth".

    Raises:
        UnsupportedError: If attention is not multi-head.
    """
    before = build_model(experiment_of(run), device)
    table = by_head(energy=factor_growth(before, load_model(run, device)))
    run.write_frame("head_growth", table)
    watch(Progress("learning", 1, 1))
    return table
