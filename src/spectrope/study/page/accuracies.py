"""Accuracies beside those of the paper's Table 1, with their stability, their gap and their speed."""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from spectrope.stats import t_interval
from spectrope.study.arms import NAMES_AND_MLA, TASKS, by_encoding
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.latent_attention import TABLE_1
from spectrope.study.plan import planned_scales
from spectrope.study.predictions import Values
from spectrope.study.quantities import (
    Quantity,
    Seen,
    fitting_speed,
    held_out,
    late_range,
    late_rise,
    overfit,
    reached,
    time_to_learn,
)
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

COLUMNS = (
    "encoding",
    "condition",
    "seeds",
    "Table 1, %",
    "held out, %",
    "spread over seeds",
    "range over the last epochs (rise)",
    "training minus held out",
    "speed on training examples, %",
    "time to learn, % of the steps",
)


def accuracies(study: Study, rows: StudyRows) -> Mapping[str, list[list[str]]]:
    """By task, a line per encoding and condition that has runs, in the order of `COLUMNS`."""
    tables = {
        words: [
            line
            for encoding in NAMES_AND_MLA
            for condition in study.conditions
            if (line := _line(trained(study, rows, task, condition), task, encoding, condition))
        ]
        for task, words in TASKS.items()
    }
    return {words: lines for words, lines in tables.items() if lines}


def seeds_of(study: Study) -> list[int]:
    """The seeds of the study that count for claim 1."""
    return DistanceOrdering().numbers(study.seeds, study.scale)


def trained(study: Study, rows: StudyRows, task: str, condition: str) -> Seen:
    """The rows of every encoding on a task, on the seeds of `seeds_of`."""
    arms = {
        seed: by_encoding(task, condition, study.scale, seed, encodings=NAMES_AND_MLA)
        for seed in seeds_of(study)
    }
    return Seen.of(rows, arms, committed=study.scale in planned_scales())


def _line(seen: Seen, task: str, encoding: str, condition: str) -> list[str]:
    """The cells of an encoding under a condition; empty if it has no runs there."""
    scores = seen.values(encoding, held_out)
    if not scores:
        return []
    printed = TABLE_1[task].get(encoding)
    return [
        NAMES_AND_MLA[encoding],
        condition,
        f"{len(scores)}",
        "–" if printed is None else f"{printed:.2f}",
        _with_interval(scores),
        f"{np.std(list(scores.values()), ddof=1):.1f}" if len(scores) > 1 else "–",
        f"{_mean(seen, encoding, late_range)} ({_mean(seen, encoding, late_rise, sign='+')})",
        *(_mean(seen, encoding, quantity) for quantity in (overfit, fitting_speed)),
        _time(seen, encoding),
    ]


def _with_interval(values: Values) -> str:
    numbers: Sequence[float] = list(values.values())
    if len(numbers) < 2:
        return f"{numbers[0]:.1f}"
    interval = t_interval(np.array(numbers))
    return f"{interval.estimate:.1f} [{max(0.0, interval.low):.1f} to {min(100.0, interval.high):.1f}]"


def _mean(seen: Seen, arm: str, quantity: Quantity, sign: str = "") -> str:
    values = seen.values(arm, quantity).values()
    return f"{fmean(values):{sign}.1f}" if values else "–"


def _time(seen: Seen, arm: str) -> str:
    """Of the runs that get there, and how many these are."""
    arrived = {seed for seed, value in seen.values(arm, reached).items() if value}
    times = [value for seed, value in seen.values(arm, time_to_learn).items() if seed in arrived]
    n = len(seen.values(arm, reached))
    if not times:
        return f"0 of {n} runs" if n else "–"
    return f"{100 * fmean(times):.0f}" + (f", {len(times)} of {n} runs" if len(times) < n else "")
