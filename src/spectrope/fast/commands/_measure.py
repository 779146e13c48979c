"""The actions of `spectrope attention` that measure this machine: `bench` and `calibrate`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import tyro

from spectrope.console import RARE, DeviceOption, JsonOption, counted, frame, named, print_json, say, table
from spectrope.core import Progress, UnsupportedError, choose_device, require, strict_json, to_dict
from spectrope.fast.calibration import ROUNDS, Case, cases, fit, rounds
from spectrope.fast.costs import CostModel
from spectrope.fast.crossover import (
    FAST,
    REPEATS,
    SAMPLED,
    DegreeError,
    KernelRefusal,
    KernelTiming,
    SyntheticHead,
    crossover,
    degree_errors,
    exponent,
    timings,
)
from spectrope.fast.figure import save_crossover
from spectrope.fast.planning import TOLERANCE
from spectrope.figures import check_figure
from spectrope.store import check_place, write_output

Tolerance = Annotated[
    float, tyro.conf.arg(help="Largest certified error of a head's output, as a share of max|v|.")
]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Time fast and exact attention of one head by length, and measure its error by degree.

    Kernels: polynomial takes sums over blocks, toeplitz_fft FFTs, relative_fft FFTs of unrotated vectors.

    Examples:
    $ spectrope attention bench --longest 4096
    $ spectrope attention bench --bias kerple_log --out crossover.svg
    """

    head_dim: Annotated[int, tyro.conf.arg(help="Head dimension, even.")] = 16
    reach: Annotated[float, tyro.conf.arg(help="Largest absolute value of a logit."), RARE] = 0.5
    tolerance: Tolerance = TOLERANCE
    shortest: Annotated[
        int, tyro.conf.arg(help="Shortest sequence, in tokens; lengths double from there."), RARE
    ] = 1024
    longest: Annotated[int, tyro.conf.arg(help="Maximum sequence length, in tokens.")] = 16_384
    causal: Annotated[bool, tyro.conf.arg(help="Use causal attention.")] = False
    bias: Annotated[
        str | None,
        tyro.conf.arg(help="Use this encoding's lag bias instead of rotation: kerple_log, file.py:Class."),
    ] = None
    kernels: Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="Fast kernels (default: all that apply): polynomial toeplitz_fft relative_fft."),
    ] = ()
    out: Annotated[
        Path | None, tyro.conf.arg(help="Figure to write: .png, .svg, .pdf, .html or .json (Vega-Lite).")
    ] = None
    json: JsonOption = False
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Measure, print, and draw what --out asks for."""
        require(self.shortest >= 1, self, "shortest", "at least 1")
        require(self.longest >= self.shortest, self, "longest", "at least as many as --shortest")
        if self.out is not None:
            check_figure(self.out)
        head = SyntheticHead(
            head_dim=self.head_dim,
            reach=self.reach,
            tolerance=self.tolerance,
            causal=self.causal,
            bias=None if self.bias is None else named(self.bias),
        )
        device, lengths = choose_device(self.device), _doubling(self.shortest, self.longest)
        unknown = next((name for name in self.kernels if name not in FAST), None)
        require(unknown is None, self, "kernels", f"names from {', '.join(FAST)}")
        kernels = (*(self.kernels or FAST), "exact")
        measured: list[KernelTiming] = []
        refused: list[KernelRefusal] = []
        with counted("timing") as watch:
            for found in timings(head, lengths, device, kernels):
                if isinstance(found, KernelRefusal):
                    refused.append(found)
                else:
                    measured.append(found)
                watch(Progress("attention", len(measured), 2 * len(kernels) * len(lengths)))
        if not _fast_kernels(measured):
            raise UnsupportedError(f"{refused[0].reason}.")
        errors = degree_errors(head, lengths[-1], device)
        if self.json:
            print_json(_record(head, measured, errors, refused))
        else:
            _show_bench(head, measured, errors, refused)
        if self.out is not None:
            path = save_crossover(_frame(measured), _frame(errors), head.tolerance, self.out)
            if not self.json:
                say(f"Wrote {path.resolve()}")


def _doubling(shortest: int, longest: int) -> list[int]:
    lengths = [shortest]
    while lengths[-1] * 2 <= longest:
        lengths.append(lengths[-1] * 2)
    return lengths


def _frame(records: Sequence[KernelTiming | DegreeError]) -> pl.DataFrame:
    return pl.DataFrame([asdict(record) for record in records], infer_schema_length=None)


def _record(
    head: SyntheticHead,
    measured: Sequence[KernelTiming],
    errors: Sequence[DegreeError],
    refused: Sequence[KernelRefusal],
) -> dict[str, Any]:
    directions = dict.fromkeys(timing.direction for timing in measured)
    return {
        "head": asdict(head),
        "refused": [asdict(one) for one in refused],
        "timings": [asdict(timing) for timing in measured],
        "crossover": {
            kernel: {direction: crossover(measured, kernel, direction) for direction in directions}
            for kernel in _fast_kernels(measured)
        },
        "errors": [asdict(error) for error in errors],
    }


def _fast_kernels(measured: Sequence[KernelTiming]) -> list[str]:
    return [name for name in FAST if any(timing.kernel == name for timing in measured)]


def _show_bench(
    head: SyntheticHead,
    measured: Sequence[KernelTiming],
    errors: Sequence[DegreeError],
    refused: Sequence[KernelRefusal],
) -> None:
    mask = "causal" if head.causal else "no mask"
    say(
        f"One head of width {head.head_dim}, {head.bias or 'rope'}, {mask}, float32, products up to "
        f"{head.reach:g}. Least of {REPEATS} runs; both: forward and backward. The plan of polynomial is not "
        "counted."
    )
    kernels = [*_fast_kernels(measured), "exact"]
    times = _frame(measured).with_columns(ms=1000 * pl.col("seconds"))
    for title, column in (("milliseconds", "ms"), ("MiB of tensors", "mib")):
        wide = times.pivot("kernel", index=["direction", "length"], values=column).rename(
            {"length": "tokens"}
        )
        shown = wide.select("direction", "tokens", *kernels)
        frame(title, shown.sort("direction", "tokens", descending=[True, False]))
    for name, direction in product(kernels[:-1], ("forward", "both")):
        say(_crossover_line(measured, name, direction))
    for one in refused:
        say(f"Not timed from {one.length:,} tokens on: {one.kernel}: {one.reason}.")
    rows = [
        (
            str(e.degree),
            f"{e.features:,}",
            "" if e.error_bound is None else f"{e.error_bound:.2e}",
            f"{e.error:.2e}",
        )
        for e in errors
    ]
    columns = ("degree", "features", "certified", "measured")
    table(f"error in units of max|v|; measured on {SAMPLED} random tokens", columns, rows, columns)


def _crossover_line(measured: Sequence[KernelTiming], kernel: str, direction: str) -> str:
    length = crossover(measured, kernel, direction)
    passes = "forward" if direction == "forward" else "with backward"
    if length is None:
        longest = max(timing.length for timing in measured)
        return f"{passes}: exact attention is faster than {kernel} up to {longest:,} tokens."
    powers = [exponent(measured, kernel, direction, quantity) for quantity in ("seconds", "mib")]
    grows = (
        "" if None in powers else f"; its time grows as n^{powers[0]:.2f}, its memory as n^{powers[1]:.2f}"
    )
    return f"{passes}: {kernel} is faster from about {length:,.0f} tokens on{grows}."


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Measure what operations of attention cost on this machine, for `attention plan --costs FILE`.

    By default, plans use the costs of one reference machine, so that a plan is the same everywhere. Other
    costs are only used if they are given as a file.

    Examples:
    $ spectrope attention calibrate --out costs.json
    $ spectrope attention plan RUN --costs costs.json
    """

    out: Annotated[Path | None, tyro.conf.arg(help="JSON file to write the costs to.")] = None
    json: JsonOption = False
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Measure, print, and write what --out asks for."""
        if self.out is not None:
            check_place(self.out)
        device = choose_device(self.device)
        measured, times = cases(device), []
        with counted("timing") as watch:
            for done, least in enumerate(rounds(measured, device), 1):
                watch(Progress("attention", done, ROUNDS))
                times = least
        costs = fit(measured, times)
        if self.out is not None:
            text = strict_json(to_dict(costs), indent=2) + "\n"
            write_output(self.out, text.encode())
        if self.json:
            print_json(to_dict(costs))
        else:
            _show_costs(costs, measured, times)
            if self.out is not None:
                say(f"Wrote {self.out.resolve()}; `spectrope attention plan --costs` reads it.")


def _show_costs(costs: CostModel, measured: Sequence[Case], times: Sequence[float]) -> None:
    units = {"flop": "floating-point operation", "byte": "byte", "exponential": "exponential", "call": "call"}
    units |= {"transform": "point of an FFT, per doubling"}
    rows = [(f"one {unit}", f"{getattr(costs, name):.3g}") for name, unit in units.items()]
    table(f"nanoseconds, {costs.source}", ("operation", "ns"), rows, ("ns",))
    ratios = [costs.of(case.operations) / time for case, time in zip(measured, times, strict=True)]
    say(
        f"Predicted over measured time in {len(ratios)} cases: {min(ratios):.2f} to {max(ratios):.2f}, "
        f"least of {ROUNDS} runs each."
    )
