"""Frequency schedules, one per file: how fast each coordinate pair rotates."""
