"""Ablation of heads of language-model checkpoints."""
