"""Frequency schedules: how fast each coordinate pair turns, one file each."""
