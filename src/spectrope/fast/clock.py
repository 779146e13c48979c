"""Timing of calls on shared machines."""

import time
from collections.abc import Callable

import torch

from spectrope.core import seconds


def own_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Seconds of a call. Where one thread computes, only its own time counts, whatever else is running."""
    if device.type != "cpu" or torch.get_num_threads() > 1:
        return seconds(call, device)
    begun = time.thread_time()
    call()
    return time.thread_time() - begun
