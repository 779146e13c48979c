"""Quantities that claims compute from a row; None if the row lacks the data."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, log

import numpy as np
import polars as pl

from spectrope.lab import AnyExperiment, Experiment
from spectrope.stats import t_interval
from spectrope.study.conditions import RELEASED
from spectrope.study.corrections import is_latent
from spectrope.study.plan import is_named
from spectrope.study.predictions import Values
from spectrope.study.rows import StudyRow, StudyRows

ABLATION = "ablation"  # Table of the exact sweep, free of the authors' faults.
THEIRS = "ablation-unrestored-all"  # As the public code does it: R9 and R10,
THEIRS_LATENT = "ablation-latent-columns-unrestored-all"  # and R12 under latent attention.

Quantity = Callable[[StudyRow], float | None]
REACHED = 0.9  # Share of the best possible accuracy that ends the time to learn.
LEARNED = 0.5  # Share of the best possible accuracy from which on a model counts as having learned its task.


def held_out(row: StudyRow) -> float | None:
    """Final held-out accuracy in percent."""
    return _percent(row, "test_accuracy")


def fitted(row: StudyRow) -> float | None:
    """Final training accuracy in percent."""
    return _percent(row, "train_accuracy")


def shortfall(row: StudyRow) -> float | None:
    """Points between the best possible accuracy and the held-out one."""
    ceiling, reached = _percent(row, "bayes_accuracy"), held_out(row)
    return None if ceiling is None or reached is None else ceiling - reached


def overfit(row: StudyRow) -> float | None:
    """Points between training and held-out accuracy."""
    train, test = _percent(row, "train_accuracy"), held_out(row)
    return None if train is None or test is None else train - test


def speed(row: StudyRow) -> float | None:
    """Held-out accuracy in percent, averaged over the epochs: the area under the learning curve."""
    scores = _curve(row, "test")
    return 100 * sum(scores) / len(scores) if scores else None


def fitting_speed(row: StudyRow) -> float | None:
    """Training accuracy in percent, averaged over the epochs, as the paper judges how fast one converges."""
    scores = _curve(row, "train")
    return 100 * sum(scores) / len(scores) if scores else None


def late_range(row: StudyRow) -> float | None:
    """Points between the largest and the smallest held-out accuracy in the last tenth of the epochs, at least
    the last two; None of a run of one epoch."""
    last = _last(row)
    return 100 * (max(last) - min(last)) if len(last) > 1 else None


def late_rise(row: StudyRow) -> float | None:
    """Points by which the held-out accuracy rises over the same epochs; None of a run of one epoch."""
    last = _last(row)
    return 100 * (last[-1] - last[0]) if len(last) > 1 else None


def _last(row: StudyRow) -> list[float]:
    scores = _curve(row, "test")
    return scores[-max(2, len(scores) // 10) :]


def _curve(row: StudyRow, split: str) -> list[float]:
    """Accuracies after each epoch, as fractions; empty where they were not recorded."""
    table = row.tables.get("metrics")
    if table is None:
        return []
    return table.filter((pl.col("split") == split) & (pl.col("epoch") > 0)).sort("step")["accuracy"].to_list()


def learned(row: StudyRow) -> bool:
    """Whether the model reaches half of the best possible accuracy, so that it has something to lose."""
    accuracy, ceiling = row.facts["test_accuracy"], row.facts["bayes_accuracy"]
    return accuracy is not None and ceiling is not None and accuracy >= LEARNED * ceiling


def own_ablation(experiment: AnyExperiment) -> str:
    """Name of the table of drops by which a run is judged: the exact ablation, or the authors' ablation under
    `released`. The same applies to `released` without one of its switches.
    """
    decoder = Experiment.of(experiment)
    if decoder is None or not decoder.condition.startswith(RELEASED):
        return ABLATION
    return THEIRS_LATENT if is_latent(decoder) else THEIRS


def gap(layers: Iterable[int] | None = None, ablation: str | None = None) -> Quantity:
    """Points by which the largest drop exceeds the second of its layer; the largest such gap of some layers.

    Drops are of examples that had no part in choosing the head (see `spectrope.lab.ablation.rule`): held-out
    ones, except by the authors' ablation, which takes those of training as well.

    Args:
        layers: Counted from 0; None means all.
        ablation: By which ablation; None means the run's own.
    """
    return partial(_largest_gap, layers=None if layers is None else tuple(layers), ablation=ablation)


def deposit(layers: Iterable[int] | None = None, ablation: str | None = None) -> Quantity:
    """1 if the deposit rule finds a deposit in one of some layers by such an ablation, else 0."""
    return partial(_any_deposit, layers=None if layers is None else tuple(layers), ablation=ablation)


def shallow(n_layers: int, depth: float = 1 / 2) -> range:
    """The layers, counted from 0, in the first part of the depth, by default half; at least one."""
    return range(max(1, int(n_layers * depth + 1e-9)))


def log_odds(row: StudyRow) -> float | None:
    r"""Log odds of a right held-out answer, :math:`\ln\frac{c + 1/2}{e + 1/2}` of c right ones and e errors.

    Half an example on either side keeps it finite where there is none (Haldane and Anscombe). Near a ceiling
    it tells 3 errors in 100,000 from 800, which differ by less than a point.
    """
    right, wrong = hits(row), errors(row)
    return None if right is None or wrong is None else log((right + 0.5) / (wrong + 0.5))


def errors(row: StudyRow) -> float | None:
    """Held-out examples that are answered wrongly."""
    accuracy, decoder = row.facts["test_accuracy"], Experiment.of(row.experiment)
    return None if accuracy is None or decoder is None else float(round((1 - accuracy) * decoder.n_test))


def hits(row: StudyRow) -> float | None:
    """Held-out examples that are answered rightly."""
    wrong, decoder = errors(row), Experiment.of(row.experiment)
    return None if wrong is None or decoder is None else decoder.n_test - wrong


def log_loss(row: StudyRow) -> float | None:
    """Natural logarithm of the held-out loss."""
    loss = row.facts["test_loss"]
    return None if loss is None or loss <= 0 else log(loss)


def time_to_learn(row: StudyRow) -> float | None:
    """Steps until the held-out accuracy reaches `REACHED` of the best possible one, as a share of the run's
    steps. The resolution is one evaluation per epoch. A run that never reaches it counts as if it did at the
    evaluation after its end. The result is a restricted mean, with the same limit for all runs of a
    comparison, so that censoring needs no model.
    """
    table, ceiling = row.tables.get("metrics"), row.facts["bayes_accuracy"]
    if table is None or ceiling is None:
        return None
    scores = table.filter(pl.col("split") == "test").sort("step")
    evaluated = scores["step"].to_list()
    if len(evaluated) < 2 or not evaluated[-1]:
        return None
    beyond = 2 * evaluated[-1] - evaluated[-2]
    steps = scores.filter(pl.col("accuracy") >= REACHED * ceiling)["step"].to_list()
    return min([*steps, beyond]) / evaluated[-1]


def reached(row: StudyRow) -> float | None:
    """1 if held-out accuracy came within `REACHED` of the best possible one at some evaluation, else 0."""
    table, ceiling = row.tables.get("metrics"), row.facts["bayes_accuracy"]
    if table is None or ceiling is None:
        return None
    scores = table.filter(pl.col("split") == "test")["accuracy"]
    return float((scores >= REACHED * ceiling).any())


def _percent(row: StudyRow, name: str) -> float | None:
    value = row.facts[name]
    return None if value is None else 100 * value


def deposits_of(row: StudyRow, ablation: str | None = None) -> pl.DataFrame | None:
    """What the deposit rule says of each layer by an ablation, by default the run's own."""
    return row.tables.get((ablation or own_ablation(row.experiment)).replace("ablation", "deposit"))


def _chosen(row: StudyRow, layers: tuple[int, ...] | None, ablation: str | None) -> pl.DataFrame | None:
    deposits = deposits_of(row, ablation)
    if deposits is None or layers is None:
        return deposits
    return deposits.filter(pl.col("layer").is_in(layers))


def _largest_gap(row: StudyRow, layers: tuple[int, ...] | None, ablation: str | None) -> float | None:
    deposits = _chosen(row, layers, ablation)
    return None if deposits is None or deposits.is_empty() else max(deposits["gap"])


def _any_deposit(row: StudyRow, layers: tuple[int, ...] | None, ablation: str | None) -> float | None:
    deposits = _chosen(row, layers, ablation)
    return None if deposits is None or deposits.is_empty() else float(any(deposits["deposit"]))


@dataclass(frozen=True)
class Seen:
    """Available rows of the runs that a claim needs.

    Args:
        arms: Names of the arms, in order.
        rows: Rows by arm and seed.
        left_out: A line for each row that exists but does not count.
        withdrawn: What corrections withdraw of the condition, in words.
        waiting: Seeds of which some arm has no row that counts.
    """

    arms: tuple[str, ...]
    rows: Mapping[tuple[str, int], StudyRow]
    left_out: tuple[str, ...] = ()
    withdrawn: str = ""
    waiting: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        rows: StudyRows,
        arms: Mapping[int, Mapping[str, AnyExperiment]],
        lost: tuple[str, ...] = (),
        precision: str | None = None,
        *,
        committed: bool = False,
    ) -> "Seen":
        """Look up each arm of each seed; rows in another precision are left out, by name.

        Args:
            rows: All rows that there are.
            arms: The claim's arms by seed.
            lost: A line for each of their rows that could not be read.
            precision: The one that counts; None takes that of most.
            committed: Whether rows of code that was not committed are left out as well.
        """
        names = tuple(dict.fromkeys(name for group in arms.values() for name in group))
        rows_by_arm = {
            (name, seed): row
            for seed, group in arms.items()
            for name, experiment in group.items()
            if (row := rows.get(experiment)) is not None
        }
        if precision is None and rows_by_arm:
            precision = Counter(row.facts["precision"] for row in rows_by_arm.values()).most_common(1)[0][0]
        odd = {
            key: f"computed in {row.facts['precision']}, not {precision}"
            for key, row in rows_by_arm.items()
            if row.facts["precision"] != precision
        }
        if committed:
            odd |= {
                key: f"made by code that was not committed ({row.facts['commit']})"
                for key, row in rows_by_arm.items()
                if not is_named(row.facts["commit"])
            }
        left_out = tuple(
            f"{name}, seed {seed} (run {rows_by_arm[name, seed].run}), {why}"
            for (name, seed), why in odd.items()
        )
        kept = {key: row for key, row in rows_by_arm.items() if key not in odd}
        waiting = tuple(
            seed for seed, group in arms.items() if any((name, seed) not in kept for name in group)
        )
        return cls(names, kept, (*lost, *left_out), waiting=waiting)

    def on(self, seeds: Collection[int]) -> "Seen":
        """The rows of some seeds alone."""
        return replace(self, rows={key: row for key, row in self.rows.items() if key[1] in seeds})

    @property
    def precision(self) -> str | None:
        """That of its rows; None if there are none."""
        return next((row.facts["precision"] for row in self.rows.values()), None)

    @property
    def n_layers(self) -> int:
        """Depth of the models, or 0 if there are none."""
        decoders = (Experiment.of(row.experiment) for row in self.rows.values())
        return max((decoder.model.n_layers for decoder in decoders if decoder is not None), default=0)

    def values(self, arm: str, quantity: Quantity, *, only_learned: bool = False) -> Values:
        """A quantity of one arm, by seed, where it is defined."""
        rows = {seed: row for (name, seed), row in self.rows.items() if name == arm}
        read = {seed: quantity(row) for seed, row in rows.items() if learned(row) or not only_learned}
        return {s: value for s, value in sorted(read.items()) if value is not None and isfinite(value)}

    def complete(self, arms: Collection[str], *quantities: Quantity) -> set[int]:
        """Seeds of which every one of some arms has every one of some quantities."""
        seeds = [self.values(arm, quantity).keys() for arm in arms for quantity in quantities]
        return set[int].intersection(*map(set, seeds)) if seeds else set()

    def minus(self, first: str, second: str, quantity: Quantity, *, only_learned: bool = False) -> Values:
        """A quantity of the first arm minus that of the second, by seed, where both have it."""
        one, other = (self.values(arm, quantity, only_learned=only_learned) for arm in (first, second))
        return difference(one, other)


def told_mean(values: Values, form: str = ".2f") -> str:
    """Mean over seeds with its 95 % t interval, such as "0.30 [0.23 to 0.37]"; empty with fewer than two."""
    if len(values) < 2:
        return ""
    one = t_interval(np.array(list(values.values())))
    return f"{one.estimate:{form}} [{one.low:{form}} to {one.high:{form}}]"


def difference(first: Values, second: Values) -> Values:
    """First minus second, where both are defined."""
    return {seed: value - second[seed] for seed, value in first.items() if seed in second}
