"""The decoder of the experiments."""
