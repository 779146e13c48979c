"""Peak memory of a block of code, independent of what the process did before."""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import psutil
import torch

SECONDS_BETWEEN_SAMPLES = 0.1
MIB = 2**20


@dataclass
class PeakMemory:
    """Memory of this process while a block ran; child processes are not counted.

    On a CPU it is the resident memory of the whole process: interpreter, libraries, tensors, and freed memory
    that the C library has not returned to the system. It is sampled when the block begins, several times a
    second and when the block ends, so a brief peak may be missed. On CUDA it is what torch's allocator holds
    for this process's tensors on that device, without the CUDA context and cached blocks; no peak is missed.

    The block added at least `peak_mib - before_mib`, and more where it reused memory that was freed earlier.

    Args:
        before_mib: Memory when the block began, in MiB (2**20 bytes).
        peak_mib: Largest memory from then until the block ended, in MiB.
    """

    before_mib: float
    peak_mib: float


def peak_memory(device: torch.device) -> AbstractContextManager[PeakMemory]:
    """Measure the peak memory of a block that computes on a device.

    ```python
    with peak_memory(device) as memory:
        train()
    print(memory.peak_mib)
    ```
    """
    return _allocated(device) if device.type == "cuda" else _resident()


@contextmanager
def _resident() -> Iterator[PeakMemory]:
    process, ended = psutil.Process(), threading.Event()
    before = process.memory_info().rss / MIB
    memory = PeakMemory(before, before)

    def sample() -> None:
        memory.peak_mib = max(memory.peak_mib, process.memory_info().rss / MIB)

    def sample_until_ended() -> None:
        while not ended.wait(SECONDS_BETWEEN_SAMPLES):
            sample()

    sampler = threading.Thread(target=sample_until_ended, daemon=True)
    sampler.start()
    try:
        yield memory
    finally:
        ended.set()
        sampler.join()
        sample()


@contextmanager
def _allocated(device: torch.device) -> Iterator[PeakMemory]:
    torch.cuda.init()  # There are no statistics to reset before.
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device) / MIB
    memory = PeakMemory(before, before)
    try:
        yield memory
    finally:
        memory.peak_mib = torch.cuda.max_memory_allocated(device) / MIB
