"""The comparison of progress measures on courses whose scores are known."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from spectrope.core.errors import ConfigError
from spectrope.grokking.compare import compare_measures, lead, partial_rank
from spectrope.stats import spearman

STEPS = np.arange(0.0, 100.0, 10.0)
FALL = np.array([2.0, 5, 8, 10, 9, 8, 7, 4, 1, 0])  # greatest at step 30, half-way at step 70


def course(**columns: np.ndarray) -> pl.DataFrame:
    train = np.exp(-STEPS / 20)
    return pl.DataFrame({"step": STEPS.astype(int), "test_loss": FALL, "train_loss": train, **columns})


def scores(*tables: pl.DataFrame, measure: str = "x") -> dict[str, float]:
    return compare_measures(tables, [measure]).filter(pl.col("measure") == measure).row(0, named=True)


def test_what_moves_first_leads_by_the_steps_between_half_ways():
    early = np.array([0.0, 0, 0, 0, 1, 6, 8, 9, 9.5, 10])  # half-way at step 50, rising
    found = scores(course(x=early))
    assert found["lead"] == 20
    assert found["rho"] == pytest.approx(stats.spearmanr(early, FALL).statistic)
    before = np.array([8.0, 3, 1, 0, 0, 0, 0, 0, 0, 0])  # half-way at step 10, before test loss has peaked
    assert scores(course(x=before))["lead"] == 60
    assert scores(course(x=STEPS))["lead"] == 20


def test_a_measure_that_comes_back_has_no_half_way():
    back = np.array([0.0, 4, 8, 9, 8, 6, 4, 3, 2, 2])
    tables = [course(x=back), course(x=STEPS)]
    found = scores(*tables)
    assert (found["runs"], found["partial_runs"], found["lead_runs"]) == (2, 1, 1)
    assert scores(tables[0])["lead"] is None
    assert scores(course(x=3 - 2 * FALL))["rho"] == pytest.approx(-1)


def test_given_training_loss_the_correlation_is_that_of_what_is_left():
    rng = np.random.default_rng(0)
    z = rng.permutation(200).astype(float)
    x, y = z + 60 * rng.standard_normal(200), z + 60 * rng.standard_normal(200)
    ranks = [stats.rankdata(values) for values in (x, y, z)]
    left = [v - np.polyval(np.polyfit(ranks[2], v, 1), ranks[2]) for v in ranks[:2]]
    assert partial_rank(x, y, z) == pytest.approx(np.corrcoef(*left)[0, 1])
    assert partial_rank(x, y, z) < spearman(x, y) - 0.3


def test_what_is_undefined_is_none():
    flat = np.ones(10)
    assert spearman(flat, FALL) is None
    assert partial_rank(flat, FALL, STEPS) is None
    assert partial_rank(FALL, STEPS, STEPS) is None
    assert lead(STEPS, flat, FALL) is None
    assert lead(STEPS, FALL, FALL + 20) is None  # test loss has not fallen by half
    found = scores(course(x=flat))
    assert found["rho"] is found["partial"] is found["lead"] is None
    missing = course(x=FALL).with_columns(pl.when(pl.col("step") > 20).then("x").alias("x"))
    assert scores(missing)["rho"] == pytest.approx(stats.spearmanr(FALL[3:], FALL[3:]).statistic)
    assert scores(missing.with_columns(x=pl.lit(None, pl.Float64)))["rho"] is None


def test_intervals_are_over_runs():
    tables = [course(x=FALL + noise * np.sin(STEPS)) for noise in (0.0, 2.0, 4.0)]
    found = scores(*tables)
    each = [stats.spearmanr(table["x"], FALL).statistic for table in tables]
    half = stats.t.ppf(0.975, 2) * stats.sem(each)
    assert (found["rho"], found["runs"]) == (pytest.approx(np.mean(each)), 3)
    assert found["rho"] - found["rho_low"] == pytest.approx(half)
    assert found["rho_high"] == min(1, np.mean(each) + half)
    assert np.isnan(scores(tables[1])["rho_low"])


def test_the_best_tracer_comes_first_and_baselines_are_listed():
    table = course(good=-FALL, poor=np.roll(FALL, 5), never=np.ones(10))
    order = compare_measures([table], ["poor", "never", "good"])["measure"].to_list()
    assert order[0] == "good"
    assert order[-1] == "never"
    assert set(order) == {"good", "poor", "never", "train_loss", "step"}


def test_comparisons_without_data_are_refused():
    with pytest.raises(ConfigError, match="needs at least one run; got none"):
        compare_measures([], ["x"])
    with pytest.raises(ConfigError, match="at least 4 evaluations of each run; lower evaluate_every"):
        compare_measures([course(x=FALL)[:3]], ["x"])
