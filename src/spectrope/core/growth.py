"""Predict the peak memory of a computation at lengths that are too large to try."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TRIED = 157  # A prime, as are half its successor and 2 * 157 - 1, so that few other sizes are multiples.
PAIRED = (TRIED, (TRIED + 1) // 2, 2 * TRIED - 1)  # All pairs, a triangle of them, each query with each lag.

Bytes = tuple[int, int, int]  # Constant, proportional to the length, and to its square.


@dataclass(frozen=True)
class PeakGrowth:
    """Peak memory of a computation as a function of its length.

    Args:
        moments: By device, bytes in use at some moments of the run at `TRIED` positions: constant ones, those
            that grow with the length, and those that grow with its square.
    """

    moments: dict[torch.device, frozenset[Bytes]]

    def at(self, length: int) -> dict[torch.device, int]:
        """Peak bytes on each device at a length."""
        ratio = length / TRIED
        return {
            device: int(max(fixed + ratio * line + ratio**2 * square for fixed, line, square in moments))
            for device, moments in self.moments.items()
        }

    def longest(self, available: dict[torch.device, int]) -> int:
        """The largest length at which the peak is within the available bytes of each device."""

        def fits(length: int) -> bool:
            return all(size <= available.get(device, size) for device, size in self.at(length).items())

        low, high = 0, 1
        while fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def peak_growth(run: Callable[[int], object]) -> PeakGrowth:
    """Run a computation at a small length, and derive how its peak memory grows.

    Each tensor that it allocates counts as constant, linear or quadratic in the length, by the divisors of
    its size. The sum of each kind is kept after every operation, so the operation that needs most memory at
    the small length need not be the one that does at a large length. Memory that is used inside a single
    operation, and memory of other libraries such as NumPy, does not count.

    >>> growth = peak_growth(lambda n: torch.ones(n, n, dtype=torch.float32) + torch.ones(n))
    >>> growth.at(1000) == {torch.device("cpu"): 2 * 4_000_000 + 4_000}
    True

    Args:
        run: The computation, a function of the length.
    """
    with _Allocations() as allocations:
        run(TRIED)
    return PeakGrowth({device: frozenset(seen) for device, seen in allocations.moments.items()})


class _Allocations(TorchDispatchMode):
    """Watches the storage of all tensors that operations create."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, torch.device, Bytes]] = {}
        self.moments: dict[torch.device, set[Bytes]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        known = {reference.cdata for reference, _, _ in _storages(tree_leaves((args, kwargs)))}
        for reference, device, size in _storages(tree_leaves(output)):
            if reference.cdata not in known and device.type != "meta":  # neither a view nor without data
                self.live.setdefault(reference.cdata, (reference, device, _kind(size)))
        self.live = {key: one for key, one in self.live.items() if not one[0].expired()}
        self._note()
        return output

    def _note(self) -> None:
        sums: dict[torch.device, list[int]] = {}
        for _, device, sizes in self.live.values():
            total = sums.setdefault(device, [0, 0, 0])
            for kind, size in enumerate(sizes):
                total[kind] += size
        for device, (fixed, line, square) in sums.items():
            self.moments.setdefault(device, set()).add((fixed, line, square))


def _storages(values: Iterable[Any]) -> list[tuple[StorageWeakRef, torch.device, int]]:
    """A reference to the storage of each tensor, its device and its bytes."""
    storages = [value.untyped_storage() for value in values if isinstance(value, Tensor)]
    return [(StorageWeakRef(one), one.device, one.nbytes()) for one in storages]


def _kind(size: int) -> Bytes:
    """A size in bytes under the power of the length with which it grows."""
    if size % TRIED and size % PAIRED[-1]:
        return size, 0, 0
    paired = any(size % (TRIED * one) == 0 for one in PAIRED)
    return (0, 0, size) if paired else (0, size, 0)
