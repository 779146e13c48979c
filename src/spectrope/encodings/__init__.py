"""Positional encodings, one per file, with position rules and frequency schedules inside."""
