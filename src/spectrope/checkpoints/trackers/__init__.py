"""Clients of experiment trackers, one per file; nothing leaves the machine unless an address is given."""

from spectrope.checkpoints.trackers.base import TRACKERS, Tracker, tracker

__all__ = ["TRACKERS", "Tracker", "tracker"]
