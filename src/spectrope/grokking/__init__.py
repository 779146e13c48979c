"""Grokking on residues: full-batch training, and the measures that are said to foresee it."""
