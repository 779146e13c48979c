"""Attention under any positional encoding, by several implementations that agree."""

from spectrope.attention import certified, explicit, fused, parts, reference, toeplitz_fft
from spectrope.attention.base import IMPLEMENTATIONS, Implementation, attention, fastest
from spectrope.attention.plan import HeadPlan, Plan, forecast, plan

__all__ = [
    "IMPLEMENTATIONS",
    "HeadPlan",
    "Implementation",
    "Plan",
    "attention",
    "certified",
    "explicit",
    "fastest",
    "forecast",
    "fused",
    "parts",
    "plan",
    "reference",
    "toeplitz_fft",
]
