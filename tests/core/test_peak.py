"""Peaks of real allocations, each counted in the block that made it."""

import threading
import time

import psutil
import pytest
import torch

from spectrope.core.peak import MIB, peak_memory

CPU = torch.device("cpu")
LARGE = 256  # MiB; glibc returns blocks of this size to the system as soon as they are freed.


def block(device: torch.device = CPU) -> torch.Tensor:
    return torch.ones(LARGE * MIB, dtype=torch.uint8, device=device)


def wait_until_sampled(memory, at_least: float) -> None:
    deadline = time.monotonic() + 60
    while memory.peak_mib < at_least and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_peak_between_beginning_and_end_is_seen():
    with peak_memory(CPU) as memory:
        large = block()
        wait_until_sampled(memory, memory.before_mib + LARGE)
        del large
    assert memory.peak_mib - memory.before_mib == pytest.approx(LARGE, abs=LARGE / 8)
    assert psutil.Process().memory_info().rss / MIB < memory.peak_mib - LARGE / 2


def test_what_is_still_held_at_the_end_counts_however_short_the_block():
    with peak_memory(CPU) as memory:
        large = block()
    assert memory.peak_mib - memory.before_mib > LARGE * 7 / 8
    del large


def test_an_earlier_peak_is_not_inherited():
    with peak_memory(CPU) as first:
        large = block()
    del large
    with peak_memory(CPU) as second:
        pass
    assert second.peak_mib < first.peak_mib - LARGE / 2
    assert second.peak_mib - second.before_mib < LARGE / 8


def test_what_was_held_before_is_told_apart():
    large = block()
    with peak_memory(CPU) as memory:
        pass
    assert memory.before_mib > LARGE
    assert memory.peak_mib - memory.before_mib < LARGE / 8
    del large


def test_sampling_ends_with_the_block_also_when_it_fails():
    threads, during = threading.active_count(), []

    def fail() -> None:
        during.append(threading.active_count())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), peak_memory(CPU):
        fail()
    assert during == [threads + 1]
    assert threading.active_count() == threads


class Allocator:
    """As much of CUDA's allocator as is asked for its statistics, on a machine without one."""

    def __init__(self, allocated: int, peak: int) -> None:
        self.allocated, self.peak = allocated * MIB, peak * MIB

    def hold(self, mib: int) -> None:
        self.allocated += mib * MIB
        self.peak = max(self.peak, self.allocated)

    def patch(self, monkeypatch) -> None:
        monkeypatch.setattr(torch.cuda, "init", lambda: None)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: self.allocated)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: self.peak)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self.reset)

    def reset(self, device) -> None:
        self.peak = self.allocated


def test_on_cuda_the_statistics_start_anew(monkeypatch):
    allocator = Allocator(allocated=10, peak=500)
    allocator.patch(monkeypatch)
    with peak_memory(torch.device("cuda")) as memory:
        allocator.hold(30)
        allocator.hold(-20)
    assert (memory.before_mib, memory.peak_mib) == (10, 40)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda_the_allocator_counts_the_tensors_of_the_block():
    cuda = torch.device("cuda")
    with peak_memory(cuda) as first:
        block(cuda)
    with peak_memory(cuda) as second:
        pass
    assert first.peak_mib - first.before_mib == pytest.approx(LARGE, abs=1)
    assert second.peak_mib == second.before_mib == first.before_mib
