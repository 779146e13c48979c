"""Roles of a second model with respect to the first, one per file."""
