"""Factors associated with a deposit under RoPE on Task 1: runs that differ from `controlled` in one
setting."""

from collections.abc import Mapping, Sequence
from math import exp

import numpy as np

from spectrope.stats import MIN_SEEDS, Interval, MixedLogistic
from spectrope.study.arms import DEPTHS
from spectrope.study.claim import EXPLORED_AT, Claim
from spectrope.study.claims.confounds import switched
from spectrope.study.claims.dropout import Dropout
from spectrope.study.conditions import SWITCHES
from spectrope.study.predictions import Values
from spectrope.study.quantities import Seen, deposit, shallow
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

UNSELECTED = 18  # Seeds.
WITHOUT_DROPOUT = 36  # The same, of runs without dropout.
BASE = "controlled, dropout 0.1"


def deposit_factors(study: Study, rows: StudyRows) -> list[list[str]]:
    """A line per change to `controlled`: runs with a deposit, and the factor of their odds, at each depth.

    The model is a logistic one with an intercept per seed (`spectrope.stats.MixedLogistic`), over all
    unselected seeds, whether the task was learned or not. A change counts from `MIN_SEEDS` runs on; without
    the runs of `controlled` itself, or without any change to compare with them, there is no line.
    """
    columns = [_column(study, rows, depth) for depth in DEPTHS.values()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    return [[name, *(text for column in columns for text in column.get(name, ("", "")))] for name in names]


def unselected(study: Study, seeds: int = UNSELECTED) -> list[int]:
    """Consecutive seeds that have all been run, starting from the first unexplored one."""
    first = 6 if study.scale == EXPLORED_AT else 0
    return [first + seed for seed in range(seeds)]


def wide(claim: Claim, study: Study, rows: StudyRows) -> Seen:
    """The rows of a claim under `controlled` on all unselected seeds."""
    return claim.look(rows, "controlled", study.scale, unselected(study))


def _column(study: Study, rows: StudyRows, depth: float) -> dict[str, tuple[str, str]]:
    """Runs with a deposit, and the odds against those of `controlled`, by change."""
    events = _events(study, rows, depth)
    changes = [name for name, values in events.items() if name != BASE and len(values) >= MIN_SEEDS]
    if len(events.get(BASE, {})) < MIN_SEEDS or not changes:
        return {}
    differences = dict(zip(changes, _model(events, changes).differences(), strict=True))
    return {
        name: (f"{sum(events[name].values()):.0f} of {len(events[name])}", _odds(differences.get(name)))
        for name in (BASE, *changes)
    }


def _events(study: Study, rows: StudyRows, depth: float) -> dict[str, Values]:
    """Whether each run has a deposit, by what it changes."""
    rates = wide(Dropout(), study, rows)
    thrown = {seed: switched("distance", "rope", study.scale, seed) for seed in unselected(study)}
    switches = Seen.of(rows, thrown, precision=rates.precision)
    quantity = deposit(shallow(rates.n_layers or switches.n_layers, depth))
    longer = Dropout().look(rows, "controlled", study.scale, unselected(study, WITHOUT_DROPOUT))
    by_rate = {float(arm.split("/")[1]): arm for arm in rates.arms if arm.startswith("rope/")}
    dropout = {
        BASE if rate == 0.1 else f"dropout {rate:g}": rates.values(arm, quantity)
        for rate, arm in by_rate.items()
        if rate
    }
    dropout |= {"no dropout": longer.values("rope/0", quantity)}
    return dropout | {name: switches.values(name, quantity) for name in SWITCHES}


def _model(events: Mapping[str, Values], changes: Sequence[str]) -> MixedLogistic:
    names = (BASE, *changes)
    runs = [(k, seed, value) for k, name in enumerate(names) for seed, value in events[name].items()]
    levels, seeds, values = (np.array(column) for column in zip(*runs, strict=True))
    return MixedLogistic(values.astype(bool), levels, seeds)


def _odds(difference: Interval | None) -> str:
    """A difference of log odds as a factor of the odds; 1 for the runs that the others are compared with."""
    if difference is None:
        return "1"
    ends = (difference.estimate, difference.low, difference.high)
    estimate, low, high = (f"{float(f'{exp(end):.2g}'):,g}" for end in ends)
    return f"{estimate} [{low} to {high}]"
