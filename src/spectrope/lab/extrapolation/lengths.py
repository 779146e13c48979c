"""Accuracy and loss of a trained run by length, as it is and with its positions scaled."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import polars as pl
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor

from spectrope.core import (
    ConfigError,
    Progress,
    UnknownNameError,
    UnsupportedError,
    Watch,
    require_type,
    unwatched,
)
from spectrope.encodings import LongRoPE
from spectrope.lab.evaluation.score import IGNORED, correct, counted_labels, predict
from spectrope.lab.extrapolation.scalings import SCALINGS, rescheduled
from spectrope.lab.extrapolation.search import schedule_of, search_slowdowns
from spectrope.lab.measures.lengths import longer_examples
from spectrope.lab.runs import dtype_for, experiment_of, load_model
from spectrope.lab.training.config import Experiment
from spectrope.models import Decoder, DecoderConfig
from spectrope.stats import mean_intervals
from spectrope.store import Run
from spectrope.tasks import Batch, TaskConfig

TABLE = "extrapolation"
EXTRAPOLATED = 2000  # Of each length, held out.
SEARCHED = 256  # Training examples, lengthened, on which LongRoPE's factors are searched.
BATCH = 256  # Sequences of the trained length at once; fewer of longer ones.
KEYS = ("scaling", "factor", "examples")
SCHEMA: dict[str, Any] = {
    "scaling": pl.String,
    "factor": pl.Float64,
    "length": pl.Float64,
    **dict.fromkeys(("accuracy", "low", "high", "loss", "loss_low", "loss_high"), pl.Float64),
    "examples": pl.Int64,
    "note": pl.String,
}


def check_lengths(
    factors: Sequence[float | int], scalings: Sequence[str], tasks: Iterable[TaskConfig] = ()
) -> None:
    """Refuse lengths or scalings that do not exist, before anything is trained.

    Raises:
        ConfigError: If there is none, a factor is below 1, or a task has no longer form.
        UnknownNameError: If no scaling has a name.
    """
    if not factors or not scalings:
        raise ConfigError("lengths and scalings must be at least one each.")
    for factor in factors:
        require_type(factor, Real, "each of lengths", "a number")
        if not 1 <= factor < float("inf"):
            raise ConfigError(f"lengths must be multiples of the trained one, from 1 on; got {factor:g}.")
    for name in scalings:
        if name not in SCALINGS:
            raise UnknownNameError("scaling", name, SCALINGS)
    for task in tasks:
        longer_examples(task, float(max(factors)), 1, 0)


def extrapolate(
    run: Run,
    factors: Sequence[float | int],
    scalings: Sequence[str] = ("none",),
    *,
    examples: int = EXTRAPOLATED,
    device: torch.device | None = None,
    watch: Watch = unwatched,
) -> pl.DataFrame:
    """Score a finished run on increasingly long held-out sequences, and store the scores with it. Sequences
    contain more fillers but no new labels; see `longer_examples`. A scaling that does not apply, such as
    another schedule for an encoding that does not rotate, gives no row. A length that an encoding does not
    support gives a row without scores, with the reason. Existing results are not recomputed.

    Args:
        run: The run.
        factors: Lengths, as multiples of the trained one.
        scalings: Names in `SCALINGS`.
        examples: Held-out examples of each length.
        device: Where to compute; default the CPU.
        watch: Progress callback.

    Returns:
        The rows asked for: `scaling`, `factor`, `length` (mean, in tokens), `accuracy` with its 95 % Wilson
        interval, `loss` in nats with its 95 % t interval over examples, `examples`, and `note`.

    Raises:
        ConfigError: If the task has no longer form, a factor is below 1, or there are fewer than 2 examples.
        UnknownNameError: If no scaling has a name.
    """
    check_lengths(factors, scalings)
    if examples < 2:
        raise ConfigError(f"examples must be at least 2, for an interval; got {examples}.")
    subject = _Subject(run, examples, device or torch.device("cpu"))
    known = subject.known()
    wanted = [(name, float(factor)) for name in scalings for factor in factors]
    for done, (name, factor) in enumerate(wanted, 1):
        here = (pl.col("scaling") == name) & (pl.col("factor") == factor) & (pl.col("examples") == examples)
        if known.filter(here).is_empty() and (row := subject.row(name, factor)) is not None:
            with run.lock():  # Another process may have added rows meanwhile.
                known = pl.concat([subject.known().filter(~here), pl.DataFrame([row], schema=SCHEMA)])
                run.write_frame(TABLE, known.sort(KEYS))
        watch(Progress("lengths", done, len(wanted)))
    asked = pl.DataFrame(wanted, schema={"scaling": pl.String, "factor": pl.Float64}, orient="row")
    return asked.join(
        known.filter(pl.col("examples") == examples), on=["scaling", "factor"], maintain_order="left"
    )


@dataclass
class _Subject:
    """A run, and what it is scored on."""

    run: Run
    examples: int
    device: torch.device

    def __post_init__(self) -> None:
        self.experiment: Experiment = experiment_of(self.run)
        self.dtype = dtype_for(self.run, self.device)

    def known(self) -> pl.DataFrame:
        """The rows that the run has."""
        if not self.run.has_frame(TABLE):
            return pl.DataFrame(schema=SCHEMA)
        table = self.run.frame(TABLE)
        # Earlier versions scored those that number their tokens as if nothing had been asked for.
        right = (pl.col("scaling") != "interpolated") | (pl.col("note") != "")
        return table.filter(right) if self.numbered else table

    @property
    def numbered(self) -> bool:
        """Whether the task numbers its tokens itself."""
        return self.experiment.task.build().sample(1, self.experiment.seed).positions is not None

    def row(self, scaling: str, factor: float) -> dict[str, Any] | None:
        """The scores at one length, or None where the scaling does not apply."""
        # The held-out examples of training come after its training examples; these do as well.
        data = self._data(factor, self.examples, self.experiment.n_train)
        row = {"scaling": scaling, "factor": factor, "length": data.lengths.double().mean().item()}
        row |= {"examples": self.examples, "note": ""}
        try:
            config = self._scaled(scaling, factor)
            if config and config.positions != self.experiment.model.positions and self.numbered:
                raise UnsupportedError(f"task {self.experiment.task.kind!r} numbers its tokens itself.")
            return None if config is None else row | self._scores(config, data, factor)
        except UnsupportedError as refusal:
            return row | {"note": str(refusal)}

    def _data(self, factor: float, n: int, start: int) -> Batch:
        return longer_examples(self.experiment.task, factor, n, self.experiment.seed, start)

    def _scaled(self, scaling: str, factor: float) -> DecoderConfig | None:
        """The model's configuration with its positions scaled."""
        rule, model = SCALINGS[scaling], self.experiment.model
        return self._longrope(factor) if rule is None else rule(model, factor)

    def _scores(self, config: DecoderConfig, data: Batch, factor: float) -> dict[str, float]:
        model = self._model(config)
        logits = self._predict(model, data, factor)
        hits = correct(model, data, logits)
        accuracy = stats.binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
        labels = counted_labels(model, data.labels)
        losses = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")[labels != IGNORED]
        loss = mean_intervals(losses.double().numpy())
        return {
            "accuracy": hits.double().mean().item(),
            "low": float(accuracy.low),
            "high": float(accuracy.high),
            "loss": float(loss.estimate),
            "loss_low": float(loss.low),
            "loss_high": float(loss.high),
        }

    def _predict(self, model: Decoder, data: Batch, factor: float) -> Tensor:
        return predict(model, data, batch_size=max(1, int(BATCH / factor**2)), dtype=self.dtype)

    def _model(self, config: DecoderConfig) -> Decoder:
        """The trained weights in a model of another configuration."""
        trained = load_model(self.run, self.device)
        if config == self.experiment.model:
            return trained
        model = Decoder(config, trained.impl).to(self.device)
        known = trained.state_dict()
        model.load_state_dict({name: known[name] for name in model.state_dict()})
        if trained.without_positions:
            model.drop_positions()
        return model.eval()

    def _longrope(self, factor: float) -> DecoderConfig | None:
        """The model with the best factors of a search, where it has frequencies to slow."""
        model, length = self.experiment.model, self.experiment.model.max_length

        def with_factors(factors: tuple[float, ...]) -> DecoderConfig | None:
            return rescheduled(model, lambda base: schedule_of(factors, base, factor, length))

        found = _geometric(with_factors((1.0,)))
        if found is None or factor == 1:
            return None if found is None else model
        base, width = found, model.sizes["head_dim"]
        data = self._data(factor, min(SEARCHED, self.experiment.n_train), 0)

        def loss(factors: tuple[float, ...]) -> float:
            config = with_factors(factors)
            assert config is not None
            logits = self._predict(self._model(config), data, factor)
            return float(F.cross_entropy(logits, data.labels))

        return with_factors(search_slowdowns(loss, width, base, factor, length, self.experiment.seed))


def _geometric(config: DecoderConfig | None) -> float | None:
    """The base of the first schedule that was replaced."""
    return next((one.base for one in _schedules(config)), None) if config is not None else None


def _schedules(value: Any) -> Iterator[LongRoPE]:
    if isinstance(value, LongRoPE):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _schedules(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _schedules(getattr(value, name))
