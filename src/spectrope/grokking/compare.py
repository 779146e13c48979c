"""How closely each progress measure follows the test loss, and how far ahead of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from jaxtyping import Float

from spectrope.core import ConfigError
from spectrope.stats import Interval, ends, spearman, t_interval

FEWEST = 4  # Evaluations from which a rank correlation means anything.
GIVEN = "train_loss"
BASELINES = (GIVEN, "step")  # What is known without any measure; the step has whatever drifts.
MOVED = 0.25  # Share of its range by which a measure must end elsewhere than it began, to have a half-way.
SCORED = (("rho", "runs", 1.0), ("partial", "partial_runs", 1.0), ("lead", "lead_runs", np.inf))

Series = Float[np.ndarray, " n"]


def compare_measures(progress: Sequence[pl.DataFrame], measures: Sequence[str]) -> pl.DataFrame:
    """How well each measure tracks and predicts the test loss, over the runs of one setting, best first.

    For each run: `rho` is Spearman's correlation of the measure with test loss over all evaluations;
    `partial` the same given training loss; `lead` is the number of steps between the point at which the
    measure has completed half of its change, from the first evaluation to the last, and the point at which
    the test loss has fallen half-way from its peak. Training loss and the step number are listed as
    baselines, because any quantity with a trend correlates with a falling loss. Columns hold the mean over
    the runs where a score is defined, whose number is in `runs`, `partial_runs` and `lead_runs`, and from two
    runs on its 95 % t interval.

    Args:
        progress: The table `progress` of each run, one per seed.
        measures: Columns to compare.

    Raises:
        ConfigError: If there is no run, or one has fewer than 4 evaluations.
    """
    if not progress:
        raise ConfigError("a comparison of measures needs at least one run; got none.")
    if min(map(len, progress)) < FEWEST:
        raise ConfigError(
            f"a comparison of measures needs at least {FEWEST} evaluations of each run; lower evaluate_every."
        )
    rows = [_scored(name, [_scores(table, name) for table in progress]) for name in (*BASELINES, *measures)]
    strength = pl.col("rho").abs()
    return pl.DataFrame(rows, infer_schema_length=None).sort(strength, descending=True, nulls_last=True)


def _scored(measure: str, of_runs: Sequence[dict[str, float | None]]) -> dict[str, object]:
    row: dict[str, object] = {"measure": measure}
    for score, count, reach in SCORED:
        known = [value for run in of_runs if (value := run[score]) is not None]
        row |= {count: len(known)} | ends(score, _over_runs(known, reach))
    return row


def _over_runs(values: Sequence[float], reach: float) -> Interval | None:
    """The mean with its interval, cut to what is possible; of one value alone, its width is unknown."""
    known = np.array(values, float)
    if len(known) > 1:
        whole = t_interval(known)
        return replace(whole, low=max(whole.low, -reach), high=min(whole.high, reach))
    if len(known) == 0:
        return None
    value = float(known[0])
    return Interval(estimate=value, low=np.nan, high=np.nan, level=0.95, method="one run")


def _scores(table: pl.DataFrame, measure: str) -> dict[str, float | None]:
    columns = ["step", measure, "test_loss", GIVEN]
    kept = table.select(list(dict.fromkeys(columns))).drop_nulls()
    if len(kept) < FEWEST:
        return dict.fromkeys(("rho", "partial", "lead"))
    step, x, y, z = (kept[name].to_numpy().astype(float) for name in columns)
    return {
        "rho": spearman(x, y),
        "partial": None if measure == GIVEN else partial_rank(x, y, z),
        "lead": lead(step, x, y),
    }


def tracing(table: pl.DataFrame, measure: str) -> float | None:
    """Spearman's correlation of a measure with test loss over the evaluations of one run, where defined."""
    return _scores(table, measure)["rho"]


def partial_rank(x: Series, y: Series, z: Series) -> float | None:
    r"""Spearman's correlation given z, :math:`(r_{xy}-r_{xz}r_{yz})/\sqrt{(1-r_{xz}^2)(1-r_{yz}^2)}`.

    None where a side has no spread, or z ranks as x or y does.
    """
    xy, xz, yz = spearman(x, y), spearman(x, z), spearman(y, z)
    if xy is None or xz is None or yz is None:
        return None
    size = (1 - xz**2) * (1 - yz**2)
    return None if size < 1e-12 else (xy - xz * yz) / size**0.5


def lead(step: Series, x: Series, test_loss: Series) -> float | None:
    """Steps by which x is half-way, from its first value to its last, before test loss is, from its peak.

    None where test loss does not fall by half, or x ends near where it began.
    """
    peak = int(test_loss.argmax())
    if test_loss[-1] > test_loss[peak] / 2 or abs(x[-1] - x[0]) <= MOVED * np.ptp(x):
        return None
    return float(_half_way(step[peak:], test_loss[peak:]) - _half_way(step, x))


def _half_way(step: Series, x: Series) -> float:
    """The first step at which x has gone at least half of its way."""
    return step[np.argmax((x - x[0]) / (x[-1] - x[0]) >= 0.5)]
