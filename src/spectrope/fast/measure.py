"""The measure of a run that says which of its heads fast attention would serve, at two lengths."""

import polars as pl
import torch

from spectrope.core import Progress, Watch
from spectrope.fast.model_plan import PlanAim, plan_run, table
from spectrope.lab import TableMeasure
from spectrope.store import Run

LENGTHS = (65_536, 1_048_576)  # Tokens; the second shows how the predicted cost grows.
EXAMPLES = 16  # Held-out ones, on which ranges of logits are measured.
COLUMNS = ("layer", "head", "reach_bound", "degree", "features", "error_bound", "speedup_estimate", "choice")


class AttentionPlanTable(TableMeasure, name="attention-plan"):
    """The plan of every head at 65,536 and 1,048,576 tokens and a tolerance of 1e-2.

    Columns: `length` in tokens, `layer`, `head`, `reach_bound` in logit units, `degree`, `features`,
    `error_bound` in units of max|v|, `speedup_estimate`, `cost_estimate` in nanoseconds by the default costs,
    and `choice`. Ranges are those of held-out examples.
    """

    def table(self, run: Run, device: torch.device, watch: Watch) -> pl.DataFrame:
        """The table."""
        tables = []
        for done, length in enumerate(LENGTHS):
            plans, _ = plan_run(run, device, PlanAim(length=length), EXAMPLES)
            costs = [head.polynomial_cost_estimate for _, head in plans]
            planned = table(plans).select(COLUMNS)
            tables.append(
                planned.with_columns(
                    pl.lit(length).alias("length"), pl.Series("cost_estimate", costs, dtype=pl.Float64)
                )
            )
            watch(Progress("attention-plan", done + 1, len(LENGTHS)))
        return pl.concat(tables)
