"""Measure how coordinate pairs turn with the row and the column of a patch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from spectrope.checkpoints.audit.layout import Layout, best_layout, moving_coordinates
from spectrope.checkpoints.audit.rotary import phase_slopes, rounded, wrapped
from spectrope.checkpoints.audit.starts import ORDERS, runs_like
from spectrope.encodings import Pairing

NEAR, FAR = 3.0, 64.0  # Rows and columns around the declared origin among which that of a rotation is sought.
STEP = 0.5  # Between places that are tried.
PLACES = 4  # Decimals of a place.
STEPS = 4  # Of refinement, each of which leaves the square of the error.


@dataclass(frozen=True)
class PlaneTurning:
    r"""Pairs turn by :math:`r\,\omega^{row}_j + c\,\omega^{column}_j` in row r and column c.

    Args:
        pairing: How coordinates pair.
        rows: Radians per row of each pair.
        columns: Radians per column of each pair.
        row_errors: Error allowed for each, in radians per row; zeros where declared.
        column_errors: The same per column.
        base: Of the declared progression, or of the measured one where it is one; None if it is another.
        origin: Row and column by which the first patch has turned; None where it was not seen.
        gain: Factor on rotated vectors; None where it was not seen. Where it was and no origin is given, none
            explains them.
        phase_error: Largest departure from these phases, in radians.
    """

    pairing: Pairing
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    row_errors: tuple[float, ...]
    column_errors: tuple[float, ...]
    base: float | None = None
    origin: tuple[float, float] | None = None
    gain: float | None = None
    phase_error: float = 0.0

    def describe(self) -> str:
        """One line for a table."""
        known = "other frequencies" if self.base is None else f"base {rounded(self.base)}"
        return f"rotary by row and column, {known}"

    def angles(self, places: Tensor) -> Float[Tensor, "*n m"]:
        """Phases at rows and columns (*n, 2)."""
        frequencies = torch.tensor([self.rows, self.columns], dtype=torch.float64)
        return places.double() @ frequencies


@dataclass(frozen=True, eq=False)
class PatchVectors:
    """Queries or keys of some heads with constant content.

    Args:
        x: At every token, with shape (n, t, d).
        places: Row and column of each patch, with shape (p, 2).
        first: Index of the first patch among the tokens; those before it and behind the last do not turn.
        sources: What inner modules put out, with shape (b, width) each.
    """

    x: Float[Tensor, "n t d"]
    places: Int[Tensor, "p 2"]
    first: int
    sources: list[Float[Tensor, "b _"]]

    @property
    def patches(self) -> Float[Tensor, "n p d"]:
        """Those of the patches."""
        return self.x[:, self.first : self.first + len(self.places)].double()

    @property
    def still(self) -> Float[Tensor, "n q d"]:
        """Those of the tokens that are no patches."""
        behind = self.first + len(self.places)
        return torch.cat([self.x[:, : self.first], self.x[:, behind:]], 1).double()

    def standing(self, layout: Layout) -> Iterator[Complex[Tensor, "n m"]]:
        """Pairs of a token that does not turn, if there is one."""
        if self.still.shape[1]:
            yield layout.planes(self.still[:, 0])

    def before(self, layout: Layout, noise: float) -> Iterator[Complex[Tensor, "n m"]]:
        """Pairs that may be those of the first patch before its rotation: runs of a source."""
        z, within = layout.planes(self.patches[:, 0]), max(1e-9, 4 * noise**2)
        for one in reversed(self.sources):  # A norm behind its projection may scale it alone.
            for order in ORDERS if len(one) == len(z) else ():
                yield from runs_like(one, z, order, within, step=self.x.shape[-1])

    def on_grid(self, z: Complex[Tensor, "n p m"]) -> Complex[Tensor, "n r c m"]:
        """Values of the patches at their rows and columns."""
        rows, columns = (self.places.amax(0) + 1).tolist()
        grid = z.new_zeros(len(z), rows, columns, z.shape[-1])
        grid[:, self.places[:, 0], self.places[:, 1]] = z
        return grid


def fit_plane(vectors: PatchVectors, declared: PlaneTurning, noise: float) -> PlaneTurning | None:
    """How the pairs of these vectors turn; None if nothing moves, or if no pairs keep their norms.

    Args:
        vectors: Queries or keys.
        declared: The rotation declared, whose layout is tried first and near whose origin theirs is sought.
        noise: Relative rounding error of the model's arithmetic.
    """
    layout = layout_of(vectors, declared, noise)
    if layout is None:
        return None
    z = vectors.on_grid(layout.planes(vectors.patches))
    (rows, row_errors), (columns, column_errors) = _slopes(z), _slopes(z.transpose(1, 2))
    relative = (z * z[:, :1, :1].conj()).sum(0)
    seen = PlaneTurning(
        layout.pairing,
        tuple(rows.tolist()),
        tuple(columns.tolist()),
        tuple((5 * row_errors + 4 * noise / z.shape[1]).tolist()),
        tuple((5 * column_errors + 4 * noise / z.shape[2]).tolist()),
    )
    places = torch.cartesian_prod(*(torch.arange(n) for n in z.shape[1:3])).view(*z.shape[1:3], 2)
    departure = wrapped(relative.angle() - seen.angles(places)).abs().max().item()
    starts = [one for one in starts_of(vectors, layout, seen, declared, noise) if one is not None]
    parts = {name: getattr(seen, name) for name in ("pairing", "rows", "columns")}
    errors = {name: getattr(seen, name) for name in ("row_errors", "column_errors")}
    return PlaneTurning(
        **parts,
        **errors,
        origin=starts[0].origin if starts else None,
        gain=starts[-1].gain if starts else None,
        phase_error=departure,
    )


def layout_of(vectors: PatchVectors, declared: PlaneTurning, noise: float) -> Layout | None:
    """Which coordinates form pairs, the declared ones first."""
    patches = vectors.patches
    moving = moving_coordinates(patches, noise)
    if not bool(moving.any()):
        return None
    return best_layout(patches, moving, noise, Layout(declared.pairing, 0, 2 * len(declared.rows)))


def _slopes(z: Complex[Tensor, "n r c m"]) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
    """Radians per step along the first axis of the grid, and their standard errors."""
    slope, error, _ = phase_slopes(z.transpose(1, 2).flatten(0, 1))
    return slope, error


@dataclass(frozen=True)
class PatchStart:
    """What a rotation makes of a vector that does not turn.

    Args:
        origin: Row and column by which it has turned; None where none explains it.
        gain: Factor on it.
    """

    origin: tuple[float, float] | None
    gain: float


def starts_of(
    vectors: PatchVectors, layout: Layout, seen: PlaneTurning, declared: PlaneTurning, noise: float
) -> tuple[PatchStart | None, PatchStart | None]:
    """How the first patch has turned from a token that stands still, and from outputs of inner modules.

    Args:
        vectors: Queries or keys.
        layout: Which coordinates form pairs.
        seen: Their frequencies.
        declared: The rotation declared.
        noise: Relative rounding error of the model's arithmetic.
    """
    first, near = layout.planes(vectors.patches[:, 0]), declared.origin or (0.0, 0.0)
    standing = _start_from(vectors.standing(layout), first, seen, near, noise)
    return standing, _start_from(vectors.before(layout, noise), first, seen, near, noise)


def _start_from(
    references: Iterable[Complex[Tensor, "n m"]],
    z: Complex[Tensor, "n m"],
    seen: PlaneTurning,
    declared: tuple[float, float],
    noise: float,
) -> PatchStart | None:
    """How the pairs of the first patch have turned from those of a reference; None if there is none.

    Args:
        references: Pairs that may be those of the first patch before its rotation, likely ones first.
        z: Pairs of the first patch.
        seen: Frequencies by row and column.
        declared: Row and column near which that of the first patch is sought first.
        noise: Relative rounding error of the model's arithmetic.
    """
    found: PatchStart | None = None
    for one in references:
        gain = (z.abs().norm() / one.abs().norm()).item()
        c = (z * one.conj()).sum(0) / (z.abs() * one.abs()).sum()
        if (origin := _place(c, seen, declared, noise)) is not None:
            return PatchStart(origin, gain)
        found = found or PatchStart(None, gain)
    return found


def _place(
    c: Complex[Tensor, " m"], seen: PlaneTurning, declared: tuple[float, float], noise: float
) -> tuple[float, float] | None:
    """Row and column that explain the phases of all pairs, nearest to the declared ones."""
    frequencies = torch.tensor([seen.rows, seen.columns], dtype=torch.float64)
    for around in (NEAR, FAR):
        steps = torch.arange(-around, around + STEP, STEP, dtype=torch.float64)
        places = torch.cartesian_prod(steps, steps) + torch.tensor(declared, dtype=torch.float64)
        places = places[(places - torch.tensor(declared)).abs().sum(1).argsort(stable=True)]
        best = places[int((_shares(c, places, frequencies) + 1e-9 * _order(places)).argmax())]
        for place in (best, _refined(c, best, frequencies)):
            if _shares(c, place[None], frequencies).item() > 1 - max(1e-4, 64 * noise**2):
                return round(place[0].item(), PLACES) + 0.0, round(place[1].item(), PLACES) + 0.0
    return None


def _order(places: Float[Tensor, "n 2"]) -> Float[Tensor, " n"]:
    """From 1 down to 0, so that the first of equals is taken."""
    return torch.linspace(1, 0, len(places), dtype=torch.float64)


def _shares(
    c: Complex[Tensor, " m"], places: Float[Tensor, "n 2"], frequencies: Float[Tensor, "2 m"]
) -> Float[Tensor, " n"]:
    """Share of the pairs' energy that a rotation to each place explains."""
    angles = places @ frequencies
    return (torch.polar(torch.ones_like(angles), -angles) * c).real.sum(1)


def _refined(
    c: Complex[Tensor, " m"], place: Float[Tensor, " 2"], frequencies: Float[Tensor, "2 m"]
) -> Float[Tensor, " 2"]:
    """The place near one that fits the phases best, each weighted by its pair's energy."""
    for _ in range(STEPS):
        left = (c * torch.polar(torch.ones_like(c.real), -(place @ frequencies))).angle()
        weights = c.abs().sqrt()
        solved = torch.linalg.lstsq((frequencies * weights).T, (left * weights)[:, None]).solution[:, 0]
        place = place + solved
    return place
