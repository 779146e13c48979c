"""Compare the measured rotation by row and column with the declared one."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from spectrope.checkpoints.adapters.towers import GRID
from spectrope.checkpoints.audit.compare import Discrepancy, is_near
from spectrope.checkpoints.audit.declared_plane import DeclaredPlane
from spectrope.checkpoints.audit.plane import (
    PatchStart,
    PatchVectors,
    PlaneTurning,
    fit_plane,
    layout_of,
    starts_of,
)
from spectrope.checkpoints.audit.rotary import FREQUENCY, rounded, wrapped

AXES = ("row", "column")
NEAR = 5e-3  # Relative difference up to which a factor on all frequencies is explained.
COARSE = torch.finfo(torch.bfloat16).eps
HARMLESS = "harmless if queries and keys are shifted alike"
NOWHERE = (math.inf, math.inf)
ALONG = "in proportion to row and column"
HeadOfSide = tuple[str, int]  # "queries" or "keys", and the head.


def place_findings(vectors: PatchVectors, declared: DeclaredPlane, noise: float) -> list[Discrepancy]:
    """Every respect in which queries or keys of some heads turn otherwise than declared."""
    wanted = declared.turning
    seen = fit_plane(vectors, wanted, noise)
    even = seen is not None and seen.phase_error <= _resolution(noise)
    if not even and (coarse := _coarse(vectors, wanted, noise)) is not None:
        got = "cosines and sines of low precision"
        return [Discrepancy("angles", ALONG, got, residual=coarse.phase_error)]
    if seen is None:
        still = layout_of(vectors, wanted, noise) is None and not _moves(vectors, noise)
        return [Discrepancy("encoding", wanted.describe(), "none" if still else "of no known layout")]
    if seen.pairing != wanted.pairing:
        return [Discrepancy("pairing", wanted.pairing, seen.pairing)]
    if len(seen.rows) != len(wanted.rows):
        share = f"{len(seen.rows) / len(wanted.rows):.4g}"
        return [Discrepancy("rotated fraction", "1", share)]
    if even and agree(wanted, seen):
        return list(_prefix(vectors, noise)) or list(_starts(vectors, wanted, seen, noise))
    if (words := _other_positions(vectors, declared, noise)) is not None:
        return [Discrepancy("positions", "row and column of each patch", words)]
    return [_frequencies(declared, seen) if even else _uneven(seen)]


def _resolution(noise: float) -> float:
    """Departure of a phase that is left to rounding, in radians."""
    return 10 * noise + 1e-4


def _coarse(vectors: PatchVectors, wanted: PlaneTurning, noise: float) -> PlaneTurning | None:
    """The declared rotation as bfloat16 would leave it, where a model of higher precision applies that."""
    if noise >= COARSE:
        return None
    seen = fit_plane(vectors, wanted, COARSE)
    if seen is None or len(seen.rows) != len(wanted.rows) or seen.phase_error > _resolution(COARSE):
        return None
    return seen if agree(wanted, seen) else None


def _moves(vectors: PatchVectors, noise: float) -> bool:
    x = vectors.patches
    return bool((x - x[:, :1]).abs().max() > 20 * noise * x.square().mean().sqrt())


def _other_positions(vectors: PatchVectors, declared: DeclaredPlane, noise: float) -> str | None:
    """Positions at which the declared frequencies explain all phases, in words; None if there are none."""
    layout = layout_of(vectors, declared.turning, noise)
    assert layout is not None
    z = layout.planes(vectors.patches)
    phases = (z * z[:, :1].conj()).sum(0).angle()
    for words, places in _other_places(vectors.places):
        angles = declared.turning.angles(places)
        if wrapped(phases - (angles - angles[:1])).abs().max() <= _resolution(noise):
            return words
    return None


def _uneven(seen: PlaneTurning) -> Discrepancy:
    """Phases that are no sum over row and column."""
    note = "no known order of the patches explains them"
    got = f"off by up to {seen.phase_error:.2g} rad"
    return Discrepancy("angles", ALONG, got, note, residual=seen.phase_error)


def _other_places(places: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Positions that patches may get by mistake: words, and row and column of each."""
    rows, columns = (places.amax(0) + 1).tolist()
    index = torch.arange(len(places))
    yield "those of reading order, not of blocks", torch.stack([index // columns, index % columns], -1)
    for width in range(2, 2 * max(rows, columns) + 1):
        if width != columns:
            at = places[:, 0] * columns + places[:, 1]
            yield f"counted in rows of {width} patches", torch.stack([at // width, at % width], -1)
    at = places[:, 0] * columns + places[:, 1]
    if rows != columns:  # On a square, this is the axes exchanged.
        yield "counted column by column", torch.stack([at % rows, at // rows], -1)
    yield "one index of the patch on both axes", torch.stack([at, at], -1)
    yield "rows counted backwards", torch.stack([rows - 1 - places[:, 0], places[:, 1]], -1)
    yield "columns counted backwards", torch.stack([places[:, 0], columns - 1 - places[:, 1]], -1)
    for last in range(1, max(rows, columns) - 1):
        yield f"rows and columns stay at {last}", places.clamp(max=last)


def _frequencies(declared: DeclaredPlane, seen: PlaneTurning) -> Discrepancy:
    """Where pairs turn with another axis, in another sense or at other speeds."""
    wanted = declared.turning
    exchanged = replace(wanted, rows=wanted.columns, columns=wanted.rows)
    got, declared_axes = axes_of(seen), axes_of(wanted)
    if agree(exchanged, seen) or _crossed(declared, seen):
        return Discrepancy("axes", axes_in_words(declared_axes), "row and column exchanged")
    if any(a != b for a, b in zip(declared_axes, got, strict=True) if b != "neither"):
        return Discrepancy("axes", axes_in_words(declared_axes), axes_in_words(got))
    if agree(replace(wanted, rows=_minus(wanted.rows), columns=_minus(wanted.columns)), seen):
        return Discrepancy("sense of rotation", "1", "-1")
    return _speeds(declared, seen)


def _crossed(declared: DeclaredPlane, seen: PlaneTurning) -> bool:
    """Whether exchanged axes have kept their own scales, as where coordinates are normalised."""
    scales = (declared.scales[1], declared.scales[0])
    axes = tuple(1 - axis for axis in declared.axes)
    crossed = replace(declared, axes=axes).at_base(declared.base)
    return scales[0] != scales[1] and agree(crossed.turning, seen)


def _minus(frequencies: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(-frequency for frequency in frequencies)


def agree(wanted: PlaneTurning, seen: PlaneTurning) -> bool:
    """Whether all frequencies are these, within the errors of the measurement."""
    return all(
        abs(a - b) <= FREQUENCY * abs(a) + bound
        for expected, got, bounds in (
            (wanted.rows, seen.rows, seen.row_errors),
            (wanted.columns, seen.columns, seen.column_errors),
        )
        for a, b, bound in zip(expected, got, bounds, strict=True)
    )


def axes_of(turning: PlaneTurning) -> list[str]:
    """The axis that each pair turns with: "row", "column", "both" or "neither"."""
    found = []
    parts = (turning.rows, turning.columns, turning.row_errors, turning.column_errors)
    for row, column, row_error, column_error in zip(*parts, strict=True):
        turned = (abs(row) > 2 * row_error, abs(column) > 2 * column_error)
        names = [name for name, moves in zip(AXES, turned, strict=True) if moves]
        found.append({0: "neither", 1: "".join(names), 2: "both"}[len(names)])
    return found


def axes_in_words(axes: Sequence[str]) -> str:
    """Runs of pairs that turn with one axis."""
    runs: list[list[int]] = []
    for pair, axis in enumerate(axes):
        if runs and axes[runs[-1][0]] == axis:
            runs[-1][1] = pair
        else:
            runs.append([pair, pair])
    if len(runs) > 4:
        return f"pairs {', '.join(map(str, range(4)))}, … by {', '.join(axes[:4])}, …"
    parts = (f"{a} to {b} by {axes[a]}" if a < b else f"{a} by {axes[a]}" for a, b in runs)
    return f"pairs {', '.join(parts)}"


def _speeds(declared: DeclaredPlane, seen: PlaneTurning) -> Discrepancy:
    """Other speeds on the right axes, by base or factor where that explains all of them."""
    base = _base(declared, seen)
    if base is not None and agree(declared.at_base(base).turning, seen):
        return Discrepancy("base", rounded(declared.base), rounded(base))
    factors = (_factor(declared, seen, 0), _factor(declared, seen, 1))
    if agree(declared.at_base(declared.base, factors).turning, seen):
        return _scaled(factors)
    pairs = [pair for pair, axis in enumerate(declared.axes) if axis < len(AXES)]
    worst = max(pairs, key=lambda j: abs(math.log(max(_ratio(declared, seen, j), 1e-9))))
    axis = declared.axes[worst]
    wanted, got = ((one.rows, one.columns)[axis][worst] for one in (declared.turning, seen))
    return Discrepancy("frequencies", f"pair {worst} at {wanted:.5g}", f"{got:.5g} rad per {AXES[axis]}")


def _base(declared: DeclaredPlane, seen: PlaneTurning) -> float | None:
    """The base of the progression through the measured speeds, each weighted by how well it is known."""
    weighted, squares = 0.0, 0.0
    for j, (axis, exponent) in enumerate(zip(declared.axes, declared.exponents, strict=True)):
        if axis >= len(AXES):
            continue
        speed = (seen.rows, seen.columns)[axis][j]
        error = (seen.row_errors, seen.column_errors)[axis][j]
        if speed > error:
            weight = (speed / max(error, FREQUENCY * speed)) ** 2
            weighted += weight * exponent * math.log(speed / declared.scales[axis])
            squares += weight * exponent**2
    return math.exp(-weighted / squares) if squares else None


def _scaled(factors: tuple[float, float]) -> Discrepancy:
    """All frequencies of an axis are multiplied by one factor."""
    got = f"× {factors[0]:.4g} by row, × {factors[1]:.4g} by column"
    causes = {
        "as without the factor 2π": (1 / (2 * math.pi),) * 2,
        "as of coordinates from 0 to 1": (0.5, 0.5),
        "as of rows and columns that are not normalised": tuple(n / (4 * math.pi) for n in GRID),
    }
    near = (
        words
        for words, wanted in causes.items()
        if all(abs(a / b - 1) < NEAR for a, b in zip(factors, wanted, strict=True))
    )
    residual = max(abs(factor - 1) for factor in factors)
    return Discrepancy("frequencies", "× 1", got, next(near, ""), residual=residual)


def _ratio(declared: DeclaredPlane, seen: PlaneTurning, pair: int) -> float:
    axis = declared.axes[pair]
    wanted, got = ((one.rows, one.columns)[axis][pair] for one in (declared.turning, seen))
    return abs(got / wanted)


def _factor(declared: DeclaredPlane, seen: PlaneTurning, axis: int) -> float:
    """Factor on the fastest pair of an axis, which is known best."""
    pairs = [j for j, own in enumerate(declared.axes) if own == axis]
    return _ratio(declared, seen, min(pairs, key=lambda j: declared.exponents[j]))


def _prefix(vectors: PatchVectors, noise: float) -> Iterator[Discrepancy]:
    """Tokens beside the patches that turn."""
    x = vectors.still
    if x.shape[1] > 1 and bool((x - x[:, :1]).abs().max() > 20 * noise * x.square().mean().sqrt()):
        yield Discrepancy("rotation of the tokens before the patches", "none", "as of patches")


def _starts(
    vectors: PatchVectors, wanted: PlaneTurning, seen: PlaneTurning, noise: float
) -> Iterator[Discrepancy]:
    """Where the first patch is at another row or column, or vectors are scaled.

    They are compared with a token that does not turn, and with the outputs of inner modules.
    """
    layout = layout_of(vectors, wanted, noise)
    assert layout is not None
    standing, before = starts_of(vectors, layout, seen, wanted, noise)
    found = [*_displaced(standing, wanted, ""), *_scaled_by(before or standing, noise)]
    if not found and before is not None:
        found = [*_displaced(before, wanted, HARMLESS if standing is None else "")]
        if standing is not None and not is_near(before.gain, standing.gain, noise):
            other = f"{before.gain / standing.gain:.5g} times as large"
            found += [Discrepancy("rotation of the tokens before the patches", "as large as patches", other)]
    yield from found


def _displaced(start: PatchStart | None, wanted: PlaneTurning, note: str) -> Iterator[Discrepancy]:
    if start is None or not differ(wanted.origin, start.origin or NOWHERE):
        return
    if start.origin is None:
        yield Discrepancy("first position", place_in_words(wanted.origin), "none that explains all pairs")
    else:
        declared, got = place_in_words(wanted.origin), place_in_words(start.origin)
        yield Discrepancy("first position", declared, got, note)


def _scaled_by(start: PatchStart | None, noise: float) -> Iterator[Discrepancy]:
    """A factor on vectors."""
    if start is not None and not is_near(1.0, start.gain, noise):
        residual = abs(start.gain - 1)
        yield Discrepancy("attention factor", "1", f"{start.gain:.5g}", residual=residual)


def differ(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    """Whether two places of the first patch were both seen, and lie apart."""
    if one is None or other is None:
        return False
    return any(abs(a - b) > 0.1 for a, b in zip(one, other, strict=True))


def place_in_words(origin: tuple[float, float] | None) -> str:
    row, column = origin or (0.0, 0.0)
    return f"row {row:g}, column {column:g}"


def by_place(of: dict[HeadOfSide, list[Discrepancy]], together: list[Discrepancy]) -> list[Discrepancy]:
    """Findings of the layer where all heads share them, else of one side or of single heads.

    Args:
        of: Findings of queries and keys of each head.
        together: Findings of all heads together.
    """
    wrong = {place: findings for place, findings in of.items() if findings}
    if not wrong:
        return []
    if len(wrong) == len(of):
        respects = {one.what for findings in wrong.values() for one in findings}
        are_theirs = together and {one.what for one in together} <= respects
        return together if are_theirs else next(iter(wrong.values()))
    for side in ("queries", "keys"):
        heads = [place for place in of if place[0] == side]
        if all(place in wrong for place in heads) and len(wrong) == len(heads):
            return [_of_side(one, side) for one in wrong[heads[0]]]
    return [
        replace(one, what=f"{one.what} of {side} of head {head}", head=head)
        for (side, head), findings in wrong.items()
        for one in findings
    ]


def _of_side(finding: Discrepancy, side: str) -> Discrepancy:
    """A finding of all queries or all keys."""
    if finding.what == "first position":
        other = {"queries": "keys", "keys": "queries"}[side]
        return replace(finding, what=f"position of {side}", note=f"{other} start where declared")
    return replace(finding, what=f"{finding.what} of {side} alone")
