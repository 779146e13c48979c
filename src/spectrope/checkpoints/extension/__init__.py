"""Checkpoints on texts longer than those of their training: what leaves the trained range, and what helps."""
