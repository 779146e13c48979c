"""Causal atlas: the cost of removing each frequency band of each head, and where heads attend."""
