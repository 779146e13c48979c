"""Certified attention in linear time: polynomials of the logits in place of their exponentials."""

from spectrope.fast import polynomial, toeplitz
from spectrope.fast.costs import CostModel, read_costs
from spectrope.fast.planning import HeadPlan, Plan, forecast, plan
from spectrope.fast.polynomial import planned_attention

__all__ = [
    "CostModel",
    "HeadPlan",
    "Plan",
    "forecast",
    "plan",
    "planned_attention",
    "polynomial",
    "read_costs",
    "toeplitz",
]
