"""Plans for every head of a trained model at some length: the table of them, and those of a run."""

import math
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import torch

from spectrope.core import require
from spectrope.encodings import Context, Encoding
from spectrope.fast.costs import DEFAULT, CostModel
from spectrope.fast.planning import TOLERANCE, HeadPlan, forecast
from spectrope.lab import LayerHeads, TrainedSubject, capture_heads, longest
from spectrope.store import Run

LONGEST = 2**24  # Tokens that plans are made for; all lags of them are held in memory.
COLUMNS: dict[str, Any] = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "reach_bound": pl.Float64,
    "degree": pl.Int64,
    "rank": pl.Int64,
    "features": pl.Int64,
    "error_bound": pl.Float64,
    "speedup_estimate": pl.Float64,
    "choice": pl.String,
    "reason": pl.String,
}

LayerPlans = list[tuple[int, HeadPlan]]  # Number of the layer, and the choice for one of its heads.


@dataclass(frozen=True, kw_only=True)
class PlanAim:
    """What heads are planned for."""

    length: int  # Tokens of the sequence.
    tolerance: float = TOLERANCE  # Largest certified error of an output, in units of max|v|.
    costs: CostModel = DEFAULT  # Constants of the predicted costs.

    def __post_init__(self) -> None:
        require(1 <= self.length <= LONGEST, self, "length", f"from 1 to {LONGEST}")
        require(0 < self.tolerance < 1, self, "tolerance", "between 0 and 1")

    def forecast(
        self, ctx: Context, encoding: Encoding, causal: bool, out: torch.dtype | None = None
    ) -> tuple[HeadPlan, ...]:
        """The choice for each head of a layer, from its logits on some sequences, and the outputs' dtype."""
        return forecast(ctx, encoding, self.length, self.tolerance, causal=causal, costs=self.costs, out=out)


def table(plans: LayerPlans) -> pl.DataFrame:
    """A row per head: the range of centred logits, the certificate, the predicted speed-up, the choice."""
    return pl.DataFrame([_head_row(layer, head) for layer, head in plans], schema=COLUMNS)


def _head_row(layer: int, head: HeadPlan) -> dict[str, object]:
    """One head's row of the table.

    Args:
        layer: Number of its layer.
        head: The choice for it.
    """
    certificate = head.certificate
    return {
        "layer": layer,
        "head": head.head,
        "reach_bound": None if math.isnan(head.reach_bound) else head.reach_bound,
        "degree": certificate and certificate.polynomial.degree,
        "rank": certificate and certificate.rank,
        "features": head.features,
        "error_bound": certificate and certificate.error_bound,
        "speedup_estimate": head.speedup_estimate,
        "choice": head.choice,
        "reason": head.reason,
    }


@torch.no_grad()
def plan_run(run: Run, device: torch.device, aim: PlanAim, examples: int = 64) -> tuple[LayerPlans, int]:
    """Plan every head of a finished run by its logits on the longest held-out examples.

    Args:
        run: A finished run.
        device: Device to compute on.
        aim: Length, tolerance and costs.
        examples: Held-out examples that ranges are measured on.

    Returns:
        The plan of each head of each layer, counted from 0, of which `table` makes a data frame; and how many
        tokens each example has.
    """
    subject = TrainedSubject.of(run, device)
    batch, n = longest(subject.held_out, examples)
    plans: LayerPlans = []

    def receive(layer: LayerHeads) -> None:
        heads = aim.forecast(_first(layer.ctx, n), layer.encoding, layer.causal)
        plans.extend((layer.layer, head) for head in heads)

    capture_heads(subject.model, batch.to(device), receive)
    return plans, n


def _first(ctx: Context, n: int) -> Context:
    """The first n tokens, which all examples have; a mask that hides padding alone then hides nothing."""
    mask = None if ctx.mask is None else ctx.mask[..., :n]
    if mask is not None and mask.shape[-2:-1] != (1,):
        mask = mask[..., :n, :]
    mask = None if mask is None or bool(mask.all()) else mask
    q_pos, k_pos = ctx.q_pos[..., :n], ctx.k_pos[..., :n]
    return replace(ctx, q=ctx.q[:, :, :n], k=ctx.k[:, :, :n], q_pos=q_pos, k_pos=k_pos, mask=mask)
