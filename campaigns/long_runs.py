"""Long processes: a thousand tiny runs in one process, whose memory, files, threads and folders stay flat.

`python -m campaigns.long_runs` trains and ablates them, and fits a line to what the process holds after the
first half, when caches and the allocator's pools are full. The slope of each line is stored with its 95 %
interval, and what was held at the start beside what was held at the end.
"""

import argparse
import os
import shutil
import tempfile
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from campaigns.faults import scratch
from campaigns.harness import store
from campaigns.writers import load, plan

WARM = 0.5  # Share of the runs that fill caches and the pools of the allocator.
T = 1.96  # Of a normal interval of 95 %.


def held(place: Path) -> dict[str, float]:
    """What this process holds now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
    return {
        "memory_mib": memory,
        "file_descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "python_threads": threading.active_count(),
        "temporary_files": len(os.listdir(place)),
    }


def slope(values: list[float]) -> tuple[float, float]:
    """Least-squares slope for each run, and the half width of its interval."""
    from scipy.stats import linregress

    if len(set(values)) == 1:
        return 0.0, 0.0
    fit: Any = linregress(range(len(values)), values)
    return float(fit.slope), T * float(fit.stderr)


def many(place: Path, times: int) -> dict[str, Any]:
    """Carry out so many runs, and the slope of everything that the process holds."""
    load()
    import torch

    from spectrope.core import SpectropeWarning
    from spectrope.lab.job import Job, complete

    warnings.simplefilter("ignore", SpectropeWarning)
    temporary = place / "tmp"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    base = replace(plan()[0], n_train=32, n_test=16)
    base = replace(base, training=replace(base.training, epochs=1))
    seen: list[dict[str, float]] = []
    for seed in range(times):
        root = place / "runs"
        complete(Job(replace(base, seed=seed)), root, torch.device("cpu"))
        shutil.rmtree(root)
        seen.append(held(temporary))
    warm = seen[int(WARM * times) :]
    lines = {}
    for name in warm[0]:
        values = [one[name] for one in warm]
        each, half = slope(values)
        lines[name] = {
            "after_the_first_run": seen[0][name],
            "first": values[0],
            "last": values[-1],
            "largest": max(values),
            "slope_for_1000_runs": round(1000 * each, 3),
            "interval": [round(1000 * (each - half), 3), round(1000 * (each + half), 3)],
        }
    return {"runs": times, "left_out_at_first": times - len(warm), "lines": lines}


def main() -> None:
    """Run the campaign and store its figures."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--unstored", action="store_true", help="print the figures and keep no file")
    asked = parser.parse_args()
    place, begun = scratch(), time.monotonic()
    try:
        figures = many(place, asked.runs)
        figures["seconds"] = round(time.monotonic() - begun)
        store("long_runs", "one process", figures, keep=not asked.unstored)
        for name, line in figures["lines"].items():
            print(f"{name}: {line['slope_for_1000_runs']} for 1000 runs, 95 % interval {line['interval']}")
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
