"""How long work takes."""

import time
from collections.abc import Callable

import torch


def seconds(call: Callable[[], object], device: torch.device, calls: int = 1) -> float:
    """Wall-clock seconds per call: what calls leave to the device counts, what others left there does not."""
    _wait(device)
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    _wait(device)
    return (time.perf_counter() - begun) / calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
