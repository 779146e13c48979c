"""Experiment trackers, one per file; no data leave the machine unless an address is given."""

from spectrope.checkpoints.trackers.base import TRACKERS, Tracker, tracker

__all__ = ["TRACKERS", "Tracker", "tracker"]
