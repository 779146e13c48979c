"""Ablation of heads: interventions, exact and adaptive sweeps, the deposit rule."""
