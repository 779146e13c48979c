"""`spectrope grok`: the grokking laboratory."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import polars as pl
import tyro

from spectrope.console import (
    RARE,
    EngineOptions,
    JsonOption,
    OutPage,
    RunsRoot,
    Seeds,
    Settings,
    StopAfter,
    changes_of,
    chosen_seeds,
    complain,
    print_json,
    say,
    steps_or_never,
    try_own,
)
from spectrope.core import ConfigError, require, with_fields
from spectrope.encodings import EncodingConfig, Learned, parse_encoding
from spectrope.figures import check_page
from spectrope.grokking.compare import FEWEST, compare_measures
from spectrope.grokking.config import GrokExperiment, Grokked, GrokTraining
from spectrope.grokking.measures.base import columns
from spectrope.grokking.models.base import ModularModelConfig
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.models.transformer import ModularTransformer
from spectrope.grokking.page import write_grok
from spectrope.grokking.show import records, show_scores, train_shown
from spectrope.grokking.steps import PROGRESS
from spectrope.grokking.tasks.distributions import distribution_of
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.store import Run


@dataclass(frozen=True, kw_only=True)
class Grok(EngineOptions):
    """Train a small model on modular arithmetic until it generalises.

    Examples:
    $ spectrope grok --op mul --p 31
    $ spectrope grok --model mlp --seeds 0:3
    """

    p: Annotated[int, tyro.conf.arg(help="Modulus, a prime.")] = 59
    op: Annotated[str, tyro.conf.arg(help="add, sub, quadratic, mul, div, or a formula: 'a*b + 1'.")] = "add"
    fraction: Annotated[float, tyro.conf.arg(help="Fraction of all pairs used for training.")] = 0.5
    distribution: Annotated[str, tyro.conf.arg(help="Held-out pairs: random, square or strip.")] = "random"
    k: Annotated[
        int | None,
        tyro.conf.arg(
            help="Hold out pairs with both operands (square) or the first one (strip) up to k (default: p/2)."
        ),
        RARE,
    ] = None
    offset: Annotated[
        int, tyro.conf.arg(help="Operand b is token b + offset: 0 shares one vocabulary, p uses two."), RARE
    ] = 0
    allow_composite: Annotated[bool, tyro.conf.arg(help="Allow a composite modulus."), RARE] = False
    model: Annotated[Literal["transformer", "mlp"], tyro.conf.arg(help="Model to train.")] = "transformer"
    embedding: Annotated[
        Literal["learned", "one_hot"],
        tyro.conf.arg(help="Embedding of the MLP; one_hot is not trained."),
        RARE,
    ] = "learned"
    n_layers: Annotated[int, tyro.conf.arg(help="Number of layers of the transformer."), RARE] = 1
    encoding: Annotated[str, tyro.conf.arg(help="Positional encoding, or file.py:Class.")] = "learned"
    loss: Annotated[Literal["cross_entropy", "mse"], tyro.conf.arg(help="Training loss."), RARE] = (
        "cross_entropy"
    )
    weight_decay: Annotated[float, tyro.conf.arg(help="Weight decay of AdamW."), RARE] = 1.0
    learning_rate: Annotated[float, tyro.conf.arg(help="Learning rate, after ten steps of warm-up.")] = 1e-3
    steps: Annotated[int, tyro.conf.arg(help="Maximum number of training steps.")] = 5000
    stop_after: StopAfter = "500"
    evaluate_every: Annotated[int, tyro.conf.arg(help="Evaluation interval, in steps."), RARE] = 25
    seeds: Seeds = ("0",)
    set: Annotated[Settings, RARE] = ()
    compare_measures: Annotated[
        bool, tyro.conf.arg(help="Score how well each measure tracks and predicts test loss."), RARE
    ] = False
    runs: RunsRoot = Path("grok-runs")
    out: OutPage = Path("grok.html")
    workers: Annotated[int | None, tyro.conf.arg(help="Parallel runs on a CPU."), RARE] = 1
    json: JsonOption = False

    def run(self) -> int:
        """Run what is not in the run folders yet, print the tables, write the report.

        Returns:
            0, or 3 if measures cannot be compared, because a run stopped after too few evaluations.
        """
        require(len(self.seeds) > 0, self, "seeds", "at least one")
        looks = 1 + -(-self.steps // max(1, self.evaluate_every))
        enough = looks >= FEWEST or not self.compare_measures
        require(
            enough, self, "evaluate_every", f"small enough for {FEWEST} evaluations with --compare-measures"
        )
        check_page(self.out)
        plan = [self.experiment(seed) for seed in chosen_seeds(self.seeds)]
        if isinstance(plan[0].model, ModularTransformer.Config):
            try_own(plan[0].model)
        done = train_shown(plan, self.runs, self)
        scores = self._scores(done)
        write_grok(done, self.out, scores)
        say(f"Report: {self.out.resolve()}")
        if self.json:
            measures = {} if scores is None else {"measures": scores.to_dicts()}
            print_json(records(done) | measures | {"report": str(self.out.resolve())})
        if not self.compare_measures or scores is not None:
            return 0
        complain(
            f"measures are not compared: a run stopped after fewer than {FEWEST} evaluations; lower "
            "--evaluate-every, or use --stop-after never."
        )
        return 3

    def experiment(self, seed: int) -> GrokExperiment:
        """The experiment that these options describe.

        Raises:
            ConfigError: If a value breaks a rule.
        """
        task = ModularConfig(
            p=self.p,
            operation=self.op,
            distribution=distribution_of(self.distribution, self.k, default=self.p // 2),
            fraction=self.fraction,
            offset=self.offset,
            allow_composite=self.allow_composite,
        )
        patience = steps_or_never(self.stop_after)
        training = GrokTraining(
            steps=self.steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            loss=self.loss,
            evaluate_every=self.evaluate_every,
            stop=None if patience is None else Grokked(steps=patience),
        )
        experiment = GrokExperiment(task=task, model=self._model(seed), training=training, seed=seed)
        return with_fields(experiment, changes_of(self.set))

    def _model(self, seed: int) -> ModularModelConfig:
        if self.model == "mlp":
            if self.n_layers != 1 or self.encoding != "learned":
                raise ConfigError("--n-layers and --encoding go with --model transformer.")
            return ModularMLP.Config(embedding=self.embedding)
        if self.embedding != "learned":
            raise ConfigError("--embedding goes with --model mlp.")
        return ModularTransformer.Config(n_layers=self.n_layers, encoding=self._encoding().fitted(seed=seed))

    def _encoding(self) -> EncodingConfig:
        if self.encoding == "learned":
            return Learned.Config(std=ModularTransformer.Config.d_model**-0.5)
        return parse_encoding(self.encoding)

    def _scores(self, done: Sequence[Run]) -> pl.DataFrame | None:
        if not self.compare_measures:
            return None
        tables = [run.frame(PROGRESS) for run in done]
        if min(map(len, tables)) < FEWEST:
            return None
        known = [name for name in columns() if all(name in table.columns for table in tables)]
        scores = compare_measures(tables, known)
        show_scores(scores)
        return scores
