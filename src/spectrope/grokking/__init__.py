"""Grokking on operations modulo a prime and on images: tasks, models, training, measures, theory."""
