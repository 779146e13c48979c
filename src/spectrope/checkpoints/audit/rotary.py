"""Which rotation queries and keys went through: pairs, frequencies, gain."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from spectrope.encodings import Pairing, complex_pairs, geometric

LAYOUT_POSITIONS = 64  # Positions from which the layout of the pairs is judged.
OFFSETS = (0, 1, -1, 2, -2)  # Positions at which the first query or key is looked for.
NORM_CHANGE = 1e-3  # Relative change of norms from which coordinates are called no pairs that turn.


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

    @property
    def fraction(self) -> float:
        """Share of the coordinates that turn."""
        return self.width / self.head_dim

    @property
    def gain(self) -> float | None:
        """Factor on the logits of rotated coordinates, or None where it was not seen."""
        return None if self.query_gain is None or self.key_gain is None else self.query_gain * self.key_gain


@dataclass(frozen=True)
class Layout:
    """Which coordinates form pairs."""

    pairing: Pairing
    start: int
    width: int

    def planes(self, x: Float[Tensor, "*n d"]) -> Complex[Tensor, "*n m"]:
        """The pairs as complex numbers."""
        return complex_pairs(x[..., self.start : self.start + self.width], self.pairing)


def fit_rotation(
    q: Float[Tensor, "b h t d"],
    k: Float[Tensor, "b g t d"],
    sources: list[Float[Tensor, "b _"]],
    noise: float,
) -> Rotation | None:
    """The rotation of queries and keys with constant content; None if there is none.

    Args:
        q: Queries as the kernel receives them, the same content at every position.
        k: Keys likewise.
        sources: Vectors per content among which those before rotation lie, at the first position.
        noise: Relative rounding error of the model's arithmetic.
    """
    vectors = torch.cat([q.flatten(0, 1), k.flatten(0, 1)]).double()
    moving = _moving(vectors, noise)
    if not moving.any():
        return None
    layout = _best_layout(vectors, moving, noise)
    if layout is None:
        return None
    frequencies, errors, phase_error = phase_slopes(layout.planes(vectors))
    seen, starts = zip(
        *(_start_of(x.double(), layout, frequencies, sources, noise) for x in (q, k)), strict=True
    )
    pairings: list[Pairing] = [one[0] for one in seen if one is not None]
    return Rotation(
        seen_pairing=layout.pairing,
        pairing=pairings[0] if pairings else layout.pairing,
        start=layout.start,
        width=layout.width,
        head_dim=vectors.shape[-1],
        frequencies=tuple(frequencies.tolist()),
        errors=tuple(errors.tolist()),
        phase_error=phase_error,
        query_gain=seen[0][1] if seen[0] else None,
        key_gain=seen[1][1] if seen[1] else None,
        key_offset=starts[1] - starts[0] if seen[0] and seen[1] else None,
    )


def _start_of(
    x: Float[Tensor, "b h t d"],
    layout: Layout,
    frequencies: Float[Tensor, " m"],
    sources: list[Float[Tensor, "b _"]],
    noise: float,
) -> tuple[tuple[Pairing, float] | None, int]:
    """What `gain_of` finds, and the position by which the first vector has turned."""
    for start in OFFSETS:
        back = torch.polar(torch.ones_like(frequencies), -start * frequencies)
        if (seen := gain_of(x, layout, sources, noise, back)) is not None:
            return seen, start
    return None, 0


def _moving(vectors: Float[Tensor, "n t d"], noise: float) -> Bool[Tensor, " d"]:
    """Coordinates that vary over positions by more than rounding."""
    size = vectors.square().mean().sqrt().clamp(min=1e-300)
    return ((vectors - vectors[:, :1]).abs().amax((0, 1)) / size) > 20 * noise


def _layouts(moving: Bool[Tensor, " d"]) -> Iterator[Layout]:
    """Leading blocks, and blocks at the end, that hold every moving coordinate."""
    d = len(moving)
    low, high = int(moving.nonzero()[0]), int(moving.nonzero()[-1])
    widths = range(high + 2 - high % 2, d + 1, 2)
    yield from (Layout("halves", 0, width) for width in widths)
    yield from (Layout("halves", start, d - start) for start in range(2 - d % 2, low + 1, 2))
    start = low - low % 2
    yield Layout("adjacent", start, high + 1 + (high + 1) % 2 - start if start else high + 1 + (high + 1) % 2)


def _best_layout(vectors: Float[Tensor, "n t d"], moving: Bool[Tensor, " d"], noise: float) -> Layout | None:
    """The layout whose pairs keep their norm best, if they keep it."""
    step = max(1, vectors.shape[1] // LAYOUT_POSITIONS)
    sample = vectors[:16, ::step]
    scored = [(_norm_change(layout.planes(sample)), layout) for layout in _layouts(moving)]
    score, best = min(scored, key=lambda one: one[0])
    return best if score < max(NORM_CHANGE, 8 * noise) else None


def _norm_change(z: Complex[Tensor, "n t m"]) -> float:
    """Variation of the pairs' squared norms over positions, relative to them."""
    squared = z.abs().square()
    change = (squared - squared.mean(1, keepdim=True)).square().sum()
    return (change / squared.square().sum()).sqrt().item()


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
    slope = (c[1:] * c[:-1].conj()).sum(0).angle()
    for reach in _doublings(len(c)):  # longer and longer, so that no residual wraps round
        rest = (c[:reach] * torch.polar(torch.ones_like(t[:reach]), -t[:reach] * slope)).angle()
        slope = slope + (t[:reach] * rest).sum(0) / t[:reach].square().sum()
    rest = (c * torch.polar(torch.ones_like(t), -t * slope)).angle()
    error = (rest.square().sum(0) / max(len(c) - 2, 1) / t.square().sum()).sqrt()
    return slope, error, rest.abs().max().item()


def _doublings(n: int) -> Iterator[int]:
    reach = 4
    while reach < n:
        yield reach
        reach *= 2
    yield n


def gain_of(
    x: Float[Tensor, "b h t d"],
    layout: Layout,
    sources: list[Float[Tensor, "b _"]],
    noise: float,
    back: Complex[Tensor, " m"],
) -> tuple[Pairing, float] | None:
    """How the weights lay out the pairs, and the factor that the rotation multiplies them by.

    Turned back, the first position is what was rotated up to that factor, so the vectors before it are found
    among the sources as a run of coordinates in the same direction, in one order of the pairs or the other.

    Args:
        x: Queries or keys, rotated.
        layout: How the kernel sees the pairs.
        sources: What the layer's inner modules put out at the first position.
        noise: Relative rounding error of the model's arithmetic.
        back: Turns the first position back to where no rotation is.
    """
    z = layout.planes(x[:, 0, 0]) * back
    if layout.width < 4:  # two coordinates have but one order, and any run is almost in their direction
        return None
    orders: tuple[Pairing, Pairing] = ("halves", "adjacent")
    for source in reversed(sources):
        for pairing in orders:
            match = _match(source.double(), _serialised(z, pairing))
            if match is not None and match[0] > 1 - max(1e-9, 4 * noise**2):
                return pairing, match[1]
    return None


def _serialised(z: Complex[Tensor, "b m"], pairing: Pairing) -> Float[Tensor, "b w"]:
    parts = torch.view_as_real(z)
    return (parts.transpose(-1, -2) if pairing == "halves" else parts).flatten(1)


def _match(source: Float[Tensor, "b _"], target: Float[Tensor, "b w"]) -> tuple[float, float] | None:
    """Best cosine between the target and a run of the source, over all contents, and target over source."""
    if source.shape[1] < target.shape[1]:
        return None
    runs = source.unfold(1, target.shape[1], 1)
    products = torch.einsum("bow,bw->o", runs, target)
    energies = runs.square().sum((0, 2))
    cosines = products / (energies.sqrt() * target.norm()).clamp(min=1e-300)
    best = int(cosines.argmax())
    return cosines[best].item(), (target.square().sum() / products[best]).item()


Scaling = Literal["none", "linear", "ramp", "reversed ramp", "stopped", "per pair"]


@dataclass(frozen=True)
class Fit:
    """A schedule in words.

    Args:
        base: Of the geometric progression that the frequencies start from.
        scaling: "none"; "linear", all slowed alike; "ramp", slow ones slowed more, as YaRN and Llama 3 do;
            "reversed ramp", the opposite; "stopped", the slowest stand still; "per pair", anything else.
        factor: Largest slowdown.
    """

    base: float
    scaling: Scaling
    factor: float

    def __str__(self) -> str:
        scaled = "" if self.scaling == "none" else f", {self.scaling} by {self.factor:.4g}"
        if self.scaling == "stopped":
            scaled = ", the slowest pairs stand still"
        return f"base {rounded(self.base)}{scaled}"


def rounded(x: float) -> str:
    """Four significant digits, written out."""
    return f"{float(f'{x:.4g}'):g}"


def fit_schedule(frequencies: Float[Tensor, " m"], base: float, tolerance: float = 1e-3) -> Fit:
    r"""The schedule that frequencies follow.

    Frequencies in geometric progression :math:`\omega_j = b^{-2j/d}/s` are a base b, slowed by s; others are
    described by their slowdown against the base given.

    Args:
        frequencies: Radians per position of each pair.
        base: To measure slowdowns against where the frequencies are in no geometric progression.
        tolerance: Relative error allowed.
    """
    m = len(frequencies)
    turning = frequencies > 0
    if not bool(turning.all()):
        return Fit(base, "stopped", float("inf"))
    logs = frequencies.double().log()
    step = (logs[-1] - logs[0]) / max(m - 1, 1)
    line = logs[0] + step * torch.arange(m, dtype=torch.float64)
    if bool(((logs - line).abs() < tolerance).all()):
        factor = torch.exp(-logs[0]).item()
        fitted_base = torch.exp(-step * m).item() if m > 1 else base
        return Fit(fitted_base, "none" if abs(factor - 1) < tolerance else "linear", factor)
    return _against(geometric(base, 2 * m) / frequencies, base, tolerance)


def _against(slowdown: Float[Tensor, " m"], base: float, tolerance: float) -> Fit:
    steps, largest = slowdown.diff(), slowdown.max().item()
    if bool((steps > -tolerance * largest).all()) and abs(slowdown[0].item() - 1) < tolerance:
        return Fit(base, "ramp", largest)
    if bool((steps < tolerance * largest).all()) and abs(slowdown[-1].item() - 1) < tolerance:
        return Fit(base, "reversed ramp", largest)
    return Fit(base, "per pair", largest)
