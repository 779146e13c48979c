"""Probes: what a decoder's attention layers work with, and quantities computed from it."""
