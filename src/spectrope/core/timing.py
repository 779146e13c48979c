"""How long work takes."""

import time
from collections.abc import Callable
from statistics import median

import torch


def seconds(call: Callable[[], object], device: torch.device, calls: int = 1) -> float:
    """Wall-clock seconds per call: what calls leave to the device counts, what others left there does not."""
    _wait(device)
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return (time.perf_counter() - begun) / calls


def median_seconds(step: Callable[[], None], device: torch.device, steps: int = 5) -> float:
    """Median seconds of some steps, after one that warms up."""
    return median([seconds(step, device) for _ in range(steps + 1)][1:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
