"""What every benchmark does: gate first, then time side by side, then print and store.

A benchmark is a list of cases given to `run`; `python -m benchmarks.NAME` prints one row per case and writes
`benchmarks/results/PROCESSOR/NAME.json`, with the peak of matrix products measured beside it. A case
whose result is wrong gets no row and makes the command fail. Results of two processors never share a folder.
"""

import ctypes
import gc
import json
import multiprocessing
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from spectrope.core.device import choose_device, choose_dtype, machine

RESULTS = Path(__file__).parent / "results"
PEAK_SIDE, PEAK_RUNS = 2048, 5  # Of the square matrices whose product is timed.
PACKAGES = ("spectrope", "torch", "numpy", "scipy")


@dataclass(frozen=True)
class Case:
    """Two ways to the same end, and the gate that the fast one must pass before it is timed.

    Args:
        label: What is timed.
        gate: Raises `AssertionError` if the fast result is wrong.
        fast: Runs it once.
        reference: Runs what it is compared with once, if anything.
        goal: What the project asks for, in words, such as "< 1 s" or ">= 8x".
        share: Part of the whole that one run of the reference does; its time is divided by it, and its peak
            memory is not reported.
        repeats: Timed runs per side, where not as many as of the other cases.
        clock: Clock in seconds, such as processor time, which does not depend on other work on the machine.
    """

    label: str
    gate: Callable[[], object]
    fast: Callable[[], object]
    reference: Callable[[], object] | None = None
    goal: str = ""
    share: float = 1.0
    repeats: int | None = None
    clock: Callable[[], float] = time.perf_counter


@dataclass(frozen=True)
class Side:
    """Median and least seconds of one side, and the peak memory in MiB that one run adds, where known."""

    seconds: float
    least_seconds: float
    peak_mib: float | None


@dataclass(frozen=True)
class Row:
    """Both sides of a case, how many times faster the fast one is, and quartiles of that over the turns."""

    label: str
    fast: Side
    reference: Side | None
    ratio: float | None
    repeats: int
    goal: str
    share: float = 1.0
    quartiles: tuple[float, float] | None = None


def run(
    name: str,
    cases: Iterable[Case],
    *,
    threads: int = 1,
    repeats: int = 5,
    summary: Callable[[list[Row]], dict[str, Any]] | None = None,
) -> None:
    """Gate, time, print and store every case.

    Args:
        name: File name of the stored results, without suffix.
        cases: The cases, made one by one so that each may free what the one before it held.
        threads: Threads of torch.
        repeats: Timed runs per side, taken in turns; their medians are reported.
        summary: What is stored of all rows beside them.

    Raises:
        SystemExit: After all cases, if the gate of any stayed shut.
    """
    torch.set_num_threads(threads)
    print(_columns("", "seconds", "reference", "ratio", "quartiles", "peak MiB", "reference", "goal"))
    rows, wrong = [], []
    for case in cases:
        try:
            case.gate()
        except AssertionError as error:
            wrong.append(f"{case.label}: wrong result, not timed: {error}")
            continue
        rows.append(measured(case, case.repeats or repeats))
        print(_line(rows[-1]), flush=True)
    store(name, [asdict(row) for row in rows], summary(rows) if summary else {})
    if wrong:
        sys.exit("\n".join(wrong))


def measured(case: Case, repeats: int) -> Row:
    """Peak memory from a first, untimed run of each side; then both sides timed in turns."""
    calls = [call for call in (case.fast, case.reference) if call is not None]
    peaks = [peak_mib(call) for call in calls]
    turns = [[timed(call, case.clock) for call in calls] for _ in range(repeats)]
    times = zip(*turns, strict=True)
    sides = [Side(statistics.median(t), min(t), peak) for t, peak in zip(times, peaks, strict=True)]
    if len(sides) == 1:
        return Row(case.label, sides[0], None, None, repeats, case.goal, case.share)
    reference = _whole(sides[1], case.share)
    ratio = reference.seconds / sides[0].seconds
    ratios = [theirs / ours / case.share for ours, theirs in turns]
    lower, _, upper = statistics.quantiles(ratios, n=4, method="inclusive") if repeats > 1 else ratios * 3
    return Row(case.label, sides[0], reference, ratio, repeats, case.goal, case.share, (lower, upper))


def _whole(part: Side, share: float) -> Side:
    """What a whole run takes, from a part of it."""
    return part if share == 1 else Side(part.seconds / share, part.least_seconds / share, None)


def timed(call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one run, until the accelerator has finished."""
    _synchronise()
    start = clock()
    call()
    _synchronise()
    return clock() - start


def peak_mib(call: Callable[[], object]) -> float | None:
    """Most memory that one run adds, in MiB: on the accelerator if there is one, else in this process.

    The process's own peak can be reset, and so measured, on Linux with glibc; elsewhere there is no figure,
    nor of work in other processes.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        _synchronise()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    if platform.libc_ver()[0] != "glibc" or multiprocessing.active_children():
        call()
        return None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # returns freed memory, so that using it again counts
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak of the resident set
    before = status_mib("VmRSS")
    call()
    return status_mib("VmHWM") - before


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def status_mib(field: str) -> float:
    """A figure that Linux keeps of this process, such as "VmRSS", in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def _line(row: Row) -> str:
    other = row.reference
    numbers = (
        f"{row.fast.seconds:.3g}",
        f"{other.seconds:.3g}" if other else "",
        f"{row.ratio:.2f}x" if row.ratio else "",
        "" if row.quartiles is None else "{:.2f}-{:.2f}".format(*row.quartiles),
        *(
            "" if side is None or side.peak_mib is None else f"{side.peak_mib:z.0f}"
            for side in (row.fast, other)
        ),
    )
    return _columns(row.label, *numbers, row.goal)


def _columns(label: str, *cells: str) -> str:
    return f"{label:>36} " + " ".join(f"{cell:>9}" for cell in cells)


def product_peak() -> dict[str, float]:
    """Gigaflops a second of square products, by dtype, with torch's present threads.

    The best of a few, in float32 and, where the processor has such products, in bfloat16.
    """
    device = choose_device()
    return {
        str(dtype).removeprefix("torch."): _gigaflops(dtype, device)
        for dtype in dict.fromkeys((torch.float32, choose_dtype("auto", device)))
    }


def _gigaflops(dtype: torch.dtype, device: torch.device) -> float:
    x = torch.ones(PEAK_SIDE, PEAK_SIDE, dtype=dtype, device=device)
    least = min(timed(lambda: x @ x) for _ in range(PEAK_RUNS))
    return round(2 * PEAK_SIDE**3 / least / 1e9, 1)


def place() -> Path:
    """The folder of this machine's results: its accelerator, or its processor and vector instructions."""
    here = machine()
    alone = here["accelerator"] == "none"
    name = f"{here['processor']} {here['capability']}" if alone else str(here["accelerator"])
    return RESULTS / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def store(name: str, rows: list[dict[str, Any]], summary: dict[str, Any] | None = None) -> None:
    """Write rows with the machine and the versions that they were measured on; print the file's path."""
    result: dict[str, Any] = {
        "benchmark": name,
        "machine": machine(),
        "product_gflops": product_peak(),
        "versions": {package: version(package) for package in PACKAGES},
        "rows": rows,
    } | (summary or {})
    folder = place()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=2, allow_nan=False) + "\n")
    print(path)
