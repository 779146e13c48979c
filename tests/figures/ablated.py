"""Made-up tables in the shape that the methods of `spectrope ablate` keep beside the drops."""

import numpy as np
import polars as pl

from spectrope.lab.ablation.deposit import deposit_table
from spectrope.store import Run

N = 400


def add_ablations(run: Run) -> Run:
    """Write what the deposit rule finds, a cumulative curve and a screening into a run's folder."""
    heads = run.frame("ablation").sort("drop", descending=True)
    seed = run.config["seed"]
    run.write_frame("deposit", deposit(run.frame("ablation"), seed))
    run.write_frame("cumulative", cumulative(heads))
    noise = np.random.default_rng(seed).normal(size=len(heads))
    estimates = pl.Series(0.02 * heads["drop"].to_numpy() + 0.1 * noise)
    run.write_frame("screen", heads.with_columns(loss_increase_estimate=estimates))
    return run


def deposit(heads: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The rule on examples that the intact model gets right and each head's removal loses at its rate."""
    lost = heads["drop"].clip(0, 100).to_numpy().reshape(heads["layer"].n_unique(), -1)
    ablated = np.random.default_rng([2, seed]).random((*lost.shape, N)) >= lost[..., None] / 100
    return deposit_table(np.ones(N, bool), ablated, seed=seed)


def cumulative(heads: pl.DataFrame) -> pl.DataFrame:
    """Drops that add up until all is lost."""
    drop = (100 * (1 - (1 - pl.col("drop").clip(0, 100) / 100).cum_prod())).alias("drop")
    steps = heads.select("layer", "head", drop, single="drop").with_row_index("n_changed", 1)
    return steps.with_columns(drop_low=pl.col("drop") - 2, drop_high=pl.col("drop") + 2)
