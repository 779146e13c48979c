"""Identify the rotation of queries and keys: pairs, frequencies, gain."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from spectrope.checkpoints.audit.layout import Layout, best_layout, moving_coordinates
from spectrope.checkpoints.audit.starts import start_of
from spectrope.encodings import Pairing, geometric


@dataclass(frozen=True)
class Rotation:
    r"""Coordinates [start, start + width) turn in pairs by :math:`\omega_j` radians per position.

    Args:
        seen_pairing: How the kernel sees the pairs.
        pairing: How the weights lay out the pairs, where the vectors before rotation were seen, else how the
            kernel sees them.
        start: First rotated coordinate.
        width: Rotated coordinates.
        head_dim: Width of queries and keys.
        frequencies: Radians per position of each pair.
        errors: Standard error of each frequency, in radians per position.
        phase_error: Largest departure of a pair's phase from a straight line, in radians.
        query_gain: Factor on rotated queries, or None where the vectors before rotation were not seen.
        key_gain: Factor on rotated keys, likewise.
        key_offset: Positions by which keys are ahead of queries; None where either was not seen.
        position: That by which the first query has turned; None where it was not seen.
        places: Where the first head may begin in what was projected; empty where it was not seen.
    """

    seen_pairing: Pairing
    pairing: Pairing
    start: int
    width: int
    head_dim: int
    frequencies: tuple[float, ...]
    errors: tuple[float, ...]
    phase_error: float
    query_gain: float | None
    key_gain: float | None
    key_offset: int | None = None
    position: int | None = None
    places: tuple[int, ...] = ()

    @property
    def layout(self) -> Layout:
        """Which coordinates the kernel sees turning in pairs."""
        return Layout(self.seen_pairing, self.start, self.width)

    @property
    def fraction(self) -> float:
        """Share of the coordinates that turn."""
        return self.width / self.head_dim

    @property
    def gain(self) -> float | None:
        """Factor on the logits of rotated coordinates, or None where it was not seen."""
        return None if self.query_gain is None or self.key_gain is None else self.query_gain * self.key_gain


def fit_rotation(
    q: Float[Tensor, "b h t d"],
    k: Float[Tensor, "b g t d"] | None,
    sources: list[Float[Tensor, "b _"]],
    noise: float,
    likely: Layout | None = None,
) -> Rotation | None:
    """The rotation of queries and keys with constant content; None if there is none.

    Args:
        q: Queries as the kernel receives them, the same content at every position.
        k: Keys likewise; None to fit one side by itself.
        sources: Vectors per content among which those before rotation lie, at the first position.
        noise: Relative rounding error of the model's arithmetic.
        likely: Layout that is taken if pairs keep their norms in it.
    """
    sides = [x.double() for x in (q, k) if x is not None]
    vectors = torch.cat([x.flatten(0, 1) for x in sides]) if len(sides) > 1 else sides[0].flatten(0, 1)
    moving = moving_coordinates(vectors, noise)
    if not moving.any():
        return None
    layout = best_layout(vectors, moving, noise, likely)
    if layout is None:
        return None
    frequencies, errors, phase_error = phase_slopes(layout.planes(vectors))
    starts = [start_of(x[:, 0], layout, frequencies, sources, noise) for x in sides]
    query, key = (*starts, None)[:2]
    seen = [start for start in starts if start is not None]
    offset = None if query is None or key is None else key.position - query.position
    return Rotation(
        seen_pairing=layout.pairing,
        pairing=seen[0].pairing if seen else layout.pairing,
        start=layout.start,
        width=layout.width,
        head_dim=vectors.shape[-1],
        frequencies=tuple(frequencies.tolist()),
        errors=tuple(errors.tolist()),
        phase_error=phase_error,
        query_gain=query.gain if query else None,
        key_gain=key.gain if key else None,
        key_offset=offset,
        position=query.position if query else None,
        places=query.places if query else (),
    )


def phase_slopes(
    z: Complex[Tensor, "n t m"],
) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"], float]:
    r"""Frequencies of pairs that turn, with their standard errors and the largest departure from a line.

    Phases relative to the first position, weighted by energy over all vectors, are freed of a first guess
    (the phase of :math:`\sum_t c_{t+1}\bar c_t`) and fitted by a line through the origin.

    Args:
        z: Pairs of n vectors at t positions.

    Returns:
        Radians per position, their standard errors, and the departure in radians.
    """
    c = (z * z[:, :1].conj()).sum(0)
    t = torch.arange(len(c), dtype=torch.float64, device=c.device)[:, None]
    slope, phases = (c[1:] * c[:-1].conj()).sum(0).angle(), c.angle()
    for reach in _doublings(len(c)):  # longer and longer, so that no residual wraps round
        rest = wrapped(phases[:reach] - t[:reach] * slope)
        slope = slope + (t[:reach] * rest).sum(0) / t[:reach].square().sum()
    rest = wrapped(phases - t * slope)
    error = (rest.square().sum(0) / max(len(c) - 2, 1) / t.square().sum()).sqrt()
    error = torch.where((c == 0).all(0), math.pi, error)  # A pair that is zero may turn anyhow.
    return slope, error, rest.abs().max().item()


def wrapped(angles: Float[Tensor, "*n m"]) -> Float[Tensor, "*n m"]:
    """Angles less whole turns, between minus half a turn and half a turn."""
    return angles - 2 * math.pi * (angles / (2 * math.pi)).round()


def _doublings(n: int) -> Iterator[int]:
    reach = 4
    while reach < n:
        yield reach
        reach *= 2
    yield n


FREQUENCY = 1e-4  # Relative error of a frequency beyond which it differs.
MEASURED = 0.1  # Largest relative error of a frequency that shows how much a pair is slowed.
Scaling = Literal["none", "linear", "ramp", "reversed ramp", "stopped", "per pair"]


@dataclass(frozen=True)
class Fit:
    """A schedule in words.

    Args:
        base: Of the geometric progression that the frequencies start from.
        scaling: "none"; "linear", all slowed alike; "ramp", slow ones slowed more, as YaRN and Llama 3 do;
            "reversed ramp", the opposite; "stopped", some stand still; "per pair", anything else.
        factor: Largest slowdown.
        still: In words, what stands still.
    """

    base: float
    scaling: Scaling
    factor: float
    still: str = ""

    def __str__(self) -> str:
        scaled = "" if self.scaling == "none" else f", {self.scaling} by {self.factor:.4g}"
        if self.still:
            scaled = f", {self.still} not rotate"
        return f"base {rounded(self.base)}{scaled}"


def rounded(x: float) -> str:
    """Four significant digits, written out."""
    return f"{float(f'{x:.4g}'):g}"


def fit_schedule(
    frequencies: Float[Tensor, " m"],
    base: float,
    tolerance: float = 1e-3,
    bounds: Float[Tensor, " m"] | None = None,
) -> Fit:
    r"""The simplest schedule that frequencies are compatible with.

    Frequencies in geometric progression :math:`\omega_j = b^{-2j/d}/s` are a base b, slowed by s; others are
    described by their slowdown against the base given, as far as it was measured.

    Args:
        frequencies: Radians per position of each pair.
        base: To measure slowdowns against where the frequencies are in no geometric progression.
        tolerance: Relative error allowed.
        bounds: Error of measurement of each frequency; None if they are exact.
    """
    bounds = torch.zeros_like(frequencies) if bounds is None else bounds
    pairs = torch.arange(len(frequencies))
    stopped = (frequencies <= 0) & (geometric(base, 2 * len(frequencies)) > bounds)
    if bool(stopped.any()):
        return Fit(base, "stopped", math.inf, _still(stopped.nonzero().flatten().tolist(), frequencies))
    measured = (frequencies > 0) & (bounds <= MEASURED * frequencies)
    logs, step = _progression(frequencies, bounds + tolerance * frequencies, measured)
    line = torch.exp(logs + step * pairs)
    if bool(((frequencies - line).abs() < tolerance * line + bounds).all()):
        factor = math.exp(-logs)
        fitted_base = math.exp(-step * len(frequencies)) if len(frequencies) > 1 else base
        known = abs(factor - 1) < tolerance + (bounds / frequencies)[0].item()
        return Fit(fitted_base, "none" if known else "linear", factor)
    slowdown = geometric(base, 2 * len(frequencies))[measured] / frequencies[measured]
    return _against(slowdown, base, slowdown * (bounds / frequencies)[measured], tolerance)


def _still(stopped: list[int], frequencies: Float[Tensor, " m"]) -> str:
    """Pairs that stand still, in words."""
    if len(stopped) > 1 and bool((frequencies[stopped[0] :] <= 0).all()):
        return "the slowest pairs do"
    if len(stopped) == 1:
        return f"pair {stopped[0]} does"
    return f"pairs {', '.join(map(str, stopped))} do"


def _progression(
    frequencies: Float[Tensor, " m"], errors: Float[Tensor, " m"], measured: Bool[Tensor, " m"]
) -> tuple[float, float]:
    """Weighted line through the logarithms of the measured frequencies: its start and its slope."""
    x = torch.arange(len(frequencies), dtype=torch.float64)[measured]
    y = frequencies.double().log()[measured]
    weights = (frequencies / errors).double()[measured].square()
    if len(x) < 2:
        return (float(y[0]) if len(y) else 0.0), 0.0
    x_mean, y_mean = (weights * x).sum() / weights.sum(), (weights * y).sum() / weights.sum()
    step = (weights * (x - x_mean) * (y - y_mean)).sum() / (weights * (x - x_mean).square()).sum()
    return float(y_mean - step * x_mean), float(step)


def _against(
    slowdown: Float[Tensor, " m"], base: float, errors: Float[Tensor, " m"], tolerance: float
) -> Fit:
    """The kind of slowdown of the measured pairs, in increasing order of their wavelengths."""
    largest = slowdown.max().item() if len(slowdown) else 1.0
    if len(slowdown) < 2:
        return Fit(base, "per pair", largest)
    steps, allowed = slowdown.diff(), errors[1:] + errors[:-1] + tolerance * largest
    unscaled = (slowdown - 1).abs() < errors + tolerance
    if bool((steps > -allowed).all()) and unscaled[0]:
        return Fit(base, "ramp", largest)
    if bool((steps < allowed).all()) and unscaled[-1]:
        return Fit(base, "reversed ramp", largest)
    return Fit(base, "per pair", largest)
