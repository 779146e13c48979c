"""Causal atlas: what each frequency band of each head costs, and where heads attend."""
