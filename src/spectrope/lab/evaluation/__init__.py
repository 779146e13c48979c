"""Scores of a decoder on examples, of the trained length and longer."""
