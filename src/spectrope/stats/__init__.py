"""Intervals, tests and concentration indices: NumPy arrays in, frozen records out."""
