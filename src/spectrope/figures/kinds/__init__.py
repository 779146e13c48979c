"""Figures, one file per kind, registered by name."""
