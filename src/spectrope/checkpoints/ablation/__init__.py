"""Ablation of heads of other people's language models."""
