"""Models of modular arithmetic, one per file."""
