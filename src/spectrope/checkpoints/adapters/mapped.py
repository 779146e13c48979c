"""Weights that stay in their files: a layer reads its own when it runs, and gives them back after it."""

import bisect
import ctypes
import json
import mmap
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from spectrope.checkpoints.adapters.slices import INDEX, SINGLE
from spectrope.checkpoints.adapters.structure import block_of

LARGE = 2**30  # Bytes of weights from which on layers give back memory.
MAPS = Path("/proc/self/maps")  # What Linux maps into the memory of this process.


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a folder that its model is loaded from; none where they have other names."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        return []
    names = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
    files = [folder / name for name in sorted({*names})]
    return files if all(file.is_file() for file in files) else []


def large_files(folder: Path) -> list[Path]:
    """The same where the weights are large; none otherwise."""
    files = weight_files(folder)
    return files if sum(file.stat().st_size for file in files) >= LARGE else []


@dataclass(frozen=True)
class Mapping:
    """Where files are mapped into the memory of this process.

    Args:
        ranges: First address and first one after each, ascending and apart; none on systems without `MAPS`.
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, files: Iterable[Path]) -> "Mapping":
        """That of some files, as far as it is private to this process."""
        if not sys.platform.startswith("linux"):
            return cls()
        wanted = {str(file.resolve()) for file in files}
        rows = (line.split(maxsplit=5) for line in MAPS.read_text().splitlines())
        private = (row[0] for row in rows if len(row) == 6 and row[5] in wanted and row[1].endswith("p"))
        return cls(tuple(sorted((int(a, 16), int(b, 16)) for a, b in (one.split("-") for one in private))))

    def holds(self, x: Tensor) -> bool:
        """Whether a tensor lies in it."""
        start, stop = x.data_ptr(), x.data_ptr() + x.nbytes
        at = bisect.bisect(self.ranges, (start, sys.maxsize)) - 1
        return at >= 0 and x.device.type == "cpu" and stop <= self.ranges[at][1]

    def give_back(self, tensors: Iterable[Tensor]) -> None:
        """Take the pages of tensors out of the memory of this process; what reads them brings them back."""
        libc = ctypes.CDLL(None, use_errno=True) if self.ranges else None
        for x in tensors:
            if libc is not None and x.nbytes and self.holds(x):
                first = x.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
                size = x.data_ptr() + x.nbytes - first
                libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def give_back_after_layers(model: nn.Module, mapping: Mapping) -> None:
    """Let every layer free the pages of its weights once it has run, and likewise what is in no layer.

    Weights must not be changed in place from then on: a change is lost with the memory.
    """

    def hook(tensors: Sequence[Tensor]) -> Callable[..., None]:
        return lambda *_: mapping.give_back(tensors)

    for name, module in model.named_modules():
        numbered = re.search(r"(^|\.)\d+(\.|$)", name) is not None
        if numbered and block_of(name) != name:
            continue  # inside a layer
        parameters = module.parameters(recurse=numbered)
        if mapped := [x for x in parameters if mapping.holds(x)]:
            module.register_forward_hook(hook(mapped), always_call=True)
