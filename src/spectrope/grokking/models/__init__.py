"""Models of operations on residues, one per file."""
