"""Checkpoints on texts longer than those of their training: which pairs leave the trained range, and which
scaling helps."""
