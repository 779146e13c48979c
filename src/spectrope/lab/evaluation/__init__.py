"""Scores of a decoder on examples."""
