"""Certified attention in linear time, by polynomials."""

__all__ = [
    "DEFAULT",
    "TOLERANCE",
    "AttentionPlan",
    "Bench",
    "Calibrate",
    "CostModel",
    "HeadPlan",
    "LayerPlans",
    "PlanAim",
    "Tolerance",
    "certified_plan",
    "forecast",
    "plan",
    "plan_run",
    "planned_attention",
    "read_costs",
    "table",
]

from .commands._measure import Bench, Calibrate, Tolerance
from .costs import DEFAULT, CostModel, read_costs
from .model_plan import LayerPlans, PlanAim, plan_run, table
from .planning import TOLERANCE, AttentionPlan, HeadPlan, forecast, plan
from .polynomial import planned_attention
from .witness import certified_plan
