"""Marker of options that only `--help-all` shows."""

RARE = "rare"
