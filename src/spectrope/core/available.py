"""Memory that is available to this process."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import torch

# Limit, use and statistics of a control group (versions 2 and 1), and the file cache that can be dropped.
CONTROLLERS = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available_memory(device: torch.device, root: Path = Path("/")) -> int:
    """Bytes that this process can still allocate on a device.

    On a CPU, the memory that the system can provide without swapping, within the limits of the control groups
    of this process, by which containers and SLURM limit memory. On CUDA, the free memory of the device and
    what torch's allocator holds in reserve.

    Args:
        device: A CPU or CUDA device.
        root: Where the files of the system are; for tests.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min([psutil.virtual_memory().available, *_within_groups(root)])


def _within_groups(root: Path) -> Iterator[int]:
    """What is left to each control group of this process that has a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return  # another system than Linux
    for line in lines:
        _, controllers, path = line.split(":", 2)
        known = next((name for name in controllers.split(",") if name in CONTROLLERS), None)
        if known is None:
            continue
        top = root / "sys/fs/cgroup" / known
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            yield from _left(folder, *CONTROLLERS[known])
            if folder == top:
                break


def _left(folder: Path, limit: str, used: str, cache: str) -> Iterator[int]:
    """What is left to one control group, unless it is not there or has no limit."""
    try:
        most, taken = ((folder / name).read_text().strip() for name in (limit, used))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return
    if most != "max":
        yield max(int(most) - int(taken) + int(statistics.get(cache, 0)), 0)
