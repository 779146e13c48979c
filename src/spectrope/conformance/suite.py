"""Run a function through all cells, forwards and backwards."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import polars as pl
import torch
from torch import Tensor

from spectrope.conformance.beyond import faults_beyond
from spectrope.conformance.cells import DTYPES, LAYOUTS, RotaryCell, cells
from spectrope.conformance.example import Example, smallest
from spectrope.conformance.implementation import NotOffered, RotaryFunction
from spectrope.conformance.measured import CellVerdict, error_of, judged
from spectrope.conformance.oracle import FLOAT32, largest_angle, rotated
from spectrope.console import Shown
from spectrope.core import ConfigError, Progress, Watch, reason, unwatched

Direction = Literal["forward", "backward"]
AXES = ("dtype", "start", "layout", "order", "width", "scaling", "sections", "direction")
EXAMPLES = 12  # Printed; all are in the JSON.


@dataclass(frozen=True)
class Result:
    """One cell in one direction.

    Args:
        cell: The cell.
        direction: Values, or gradients.
        verdict: "exact" up to the rounding of the type; "float32" where the error is that of angles in
            float32; "wrong"; "not offered"; or "fails" where the function raises.
        error: Largest error, as a share of the largest coordinate of the vector times the factor of the
            scaling; None where nothing was returned.
        note: What was raised, or what else is amiss.
    """

    cell: RotaryCell
    direction: Direction
    verdict: CellVerdict
    error: float | None = None
    note: str = ""


@dataclass(frozen=True, repr=False)
class Conformance(Shown):
    """What a function does in all cells.

    Args:
        name: Of the function.
        results: A result per cell and direction.
        examples: A smallest example for each kind of failure.
        beyond: What is wrong where something else than the options of cells varies, a line each.
        absent: What of that the function does not offer.
    """

    name: str
    results: tuple[Result, ...]
    examples: tuple[Example, ...]
    beyond: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no offered cell is wrong or fails, nor anything beyond; at least one is offered."""
        return not self.beyond and all(one.verdict not in ("wrong", "fails") for one in self.results)

    def to_frame(self) -> pl.DataFrame:
        """A row per cell and direction."""
        return pl.DataFrame([_row(one) for one in self.results])

    def summary(self) -> pl.DataFrame:
        """How many cells of each value of each axis end in which way."""
        rows, data = [], self.to_frame()
        for axis in AXES:
            for value in data[axis].unique(maintain_order=True):
                some = data.filter(pl.col(axis) == value)
                counts = {v: some.filter(pl.col("verdict") == v).height for v in CellVerdict.__args__}
                rows.append({"axis": axis, "value": f"{value}"} | counts)
        return pl.DataFrame(rows)

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield f"{self.name}: {len(self.results)} cases", self.summary()
        if self.ok:
            absent = sum(one.verdict == "not offered" for one in self.results)
            yield (
                "All offered cases agree with the float64 reference, up to the rounding of their types and "
                f"of float32 angles. {self._largest()} Not offered, and therefore not tested: {absent} of "
                f"{len(self.results)} cases."
            )
        yield from self.beyond
        if self.absent:
            yield f"Not offered beside these cases, and therefore not tested: {', '.join(self.absent)}."
        notes = Counter(one.note for one in self.results if one.note and one.verdict in ("exact", "float32"))
        for note, count in notes.items():
            yield f"In {count} of {len(self.results)} cases it {note}."
        for example in self.examples[:EXAMPLES]:
            yield str(example)
        if (more := len(self.examples) - EXAMPLES) > 0:
            yield f"{more} more examples are in the JSON."

    def _largest(self) -> str:
        """The largest error, and the largest that the rounding of float32 angles would explain."""
        offered = [one for one in self.results if one.error is not None]
        worst = max(offered, key=lambda one: one.error or 0.0)
        budget = max(FLOAT32 * largest_angle(one.cell, one.cell.positions()) for one in offered)
        return (
            f"The largest error is {worst.error:.2g} of the largest coordinate ({worst.cell.dtype}, "
            f"positions from {worst.cell.start:,}); errors of up to 2^-22 of the largest angle of a case "
            f"count as such rounding, here up to {budget:.2g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        return {
            "name": self.name,
            "ok": self.ok,
            "cells": self.to_frame().to_dicts(),
            "beyond": list(self.beyond),
            "absent": list(self.absent),
            "examples": [asdict(one) | {"code": str(one)} for one in self.examples],
        }


def _row(one: Result) -> dict[str, Any]:
    tail = {"direction": one.direction, "verdict": one.verdict, "error": one.error, "note": one.note}
    return asdict(one.cell) | tail


def conform(
    function: Callable[..., Tensor],
    name: str = "",
    *,
    only: Iterable[RotaryCell] | None = None,
    watch: Watch = unwatched,
) -> Conformance:
    """Compare an implementation of rotary embeddings with the oracle in every cell.

    Args:
        function: Takes vectors (batch, heads, tokens, width) and positions (tokens,) and returns the rotated
            vectors. It may have the optional arguments `base`, `layout` ("interleaved" or "halves"), `width`
            (rotated coordinates), `scaling` (as in a checkpoint's `rope_parameters`) and `sections` (pairs
            per axis of positions with shape (3, tokens)). If it raises `NotImplementedError`, the cell counts
            as not offered.
        name: For reports.
        only: Cells; None takes all.
        watch: Progress callback.

    Raises:
        ConfigError: If it cannot be called so or offers no cell at all, `only` is empty, or a function
            without `layout` returns no tensor of the shape of the vectors; with `layout`, that is a failure.
    """
    tested = RotaryFunction.of(name or getattr(function, "__name__", "function"), function)
    chosen = list(cells() if only is None else only)
    if not chosen:
        raise ConfigError("only must name at least one cell.")
    layouts = set(LAYOUTS) if "layout" in tested.takes else {own_layout(tested)}
    results: list[Result] = []
    for done, cell in enumerate(chosen):
        results += _both(tested, cell) if cell.layout in layouts else _absent(cell, "no argument layout")
        if done % 32 == 0 or done + 1 == len(chosen):
            watch(Progress("checking", done + 1, len(chosen)))
    if all(one.verdict == "not offered" for one in results):
        raise ConfigError(f"{tested.name} offers none of the cases: {results[0].note or 'no reason given'}.")
    forward = (one for one in results if one.direction == "forward")
    right = next((one.cell for one in forward if one.verdict in ("exact", "float32")), None)
    found = {} if right is None else faults_beyond(tested, right)
    return Conformance(
        tested.name,
        tuple(results),
        tuple(_examples(tested, results)),
        tuple(f"{name}: {fault}" for name, fault in found.items() if fault),
        tuple(name for name, fault in found.items() if fault is None),
    )


def own_layout(tested: RotaryFunction) -> str:
    """Detect the layout of a function without the argument `layout`: the one that is closer to its output,
    whichever way it turns.

    Raises:
        ConfigError: If it fails on the plainest cell, or returns no tensor of the right shape.
    """
    cell = RotaryCell()
    x, positions = cell.vectors("x"), cell.positions()
    try:
        y = tested(x.clone(), positions.clone(), cell.asked())
    except (Exception, SystemExit) as error:  # A user's function may raise anything.
        raise ConfigError(f"{tested.name} fails on the plainest cell: {reason(error)}.") from None
    if not isinstance(y, Tensor) or y.shape != x.shape:
        what = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ConfigError(f"{tested.name} must return a tensor with shape {tuple(x.shape)}; got {what}.")
    if y.device != x.device:
        raise ConfigError(
            f"{tested.name} must return a tensor on {x.device}, as its vectors; got {y.device}."
        )

    def gap(layout: str) -> float:
        chosen = replace(cell, layout=layout)
        return min(error_of(chosen, y, rotated(chosen, x, positions, sense), x) for sense in (1, -1))

    return min(LAYOUTS, key=gap)


def _absent(cell: RotaryCell, why: str) -> list[Result]:
    return [Result(cell, direction, "not offered", note=why) for direction in ("forward", "backward")]


def _both(tested: RotaryFunction, cell: RotaryCell) -> list[Result]:
    """The values and the gradients of a cell."""
    x, positions = cell.vectors("x").requires_grad_(), cell.positions()
    before, given = x.detach().clone(), positions.clone()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = tested(x, given, cell.asked())
    except NotOffered as why:
        return _absent(cell, str(why))
    except (Exception, SystemExit) as error:
        return [Result(cell, one, "fails", note=reason(error)) for one in ("forward", "backward")]
    if not isinstance(y, Tensor) or y.shape != x.shape or not y.is_floating_point():
        note = "another shape" if isinstance(y, Tensor) and y.shape != x.shape else "no floating-point tensor"
        return [Result(cell, one, "fails", note=note) for one in ("forward", "backward")]
    if y.device != x.device:
        return [Result(cell, one, "fails", note=f"a tensor on {y.device}") for one in ("forward", "backward")]
    notes = [] if y.dtype is DTYPES[cell.dtype] else [f"returns {y.dtype}".replace("torch.", "")]
    if not torch.equal(before, x.detach()):
        notes.append("changes its input")
    if not torch.equal(positions, given):
        notes.append("changes the positions")
    error = error_of(cell, y, rotated(cell, before, positions), before)
    spoils = any(note.startswith("changes") for note in notes)
    verdict = "wrong" if spoils else judged(cell, positions, error)
    return [Result(cell, "forward", verdict, error, "; ".join(notes)), _backward(cell, x, y)]


def _backward(cell: RotaryCell, x: Tensor, y: Tensor) -> Result:
    """The gradient of the products with another vector, which is that vector rotated back."""
    if not y.requires_grad:
        return Result(cell, "backward", "not offered", note="not differentiable by torch")
    g = cell.vectors("g")
    try:
        (gradient,) = torch.autograd.grad(y, x, g.to(y.dtype))
    except Exception as error:
        return Result(cell, "backward", "fails", note=reason(error))
    error = error_of(cell, gradient, rotated(cell, g, cell.positions(), sense=-1), g)
    return Result(cell, "backward", judged(cell, cell.positions(), error), error)


def _examples(tested: RotaryFunction, results: Iterable[Result]) -> Iterator[Example]:
    """A smallest example for the first failure of each dtype, scaling, kind of sections, width, direction and
    note."""
    seen: set[tuple[Any, ...]] = set()
    for one in results:
        kind = (one.cell.dtype, one.cell.scaling, one.cell.sections, one.cell.width, one.direction, one.note)
        if one.verdict in ("wrong", "fails") and kind not in seen:
            seen.add(kind)
            yield smallest(tested, one.cell, one.direction, one.error, one.note)
