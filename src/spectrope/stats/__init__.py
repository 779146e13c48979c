"""Intervals, tests and indices: NumPy arrays in, frozen records out; nothing here knows of models."""
