"""Certified attention in linear time: polynomials of the logits instead of their exponentials."""

from spectrope.fast import certified, toeplitz_fft
from spectrope.fast.plan import HeadPlan, Plan, forecast, plan

__all__ = ["HeadPlan", "Plan", "certified", "forecast", "plan", "toeplitz_fft"]
