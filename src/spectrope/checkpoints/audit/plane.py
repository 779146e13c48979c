"""Measure how coordinate pairs turn with the row and the column of a patch."""

from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from spectrope.checkpoints.audit.layout import Layout, best_layout, moving_coordinates
from spectrope.checkpoints.audit.rotary import phase_slopes, rounded, wrapped
from spectrope.checkpoints.audit.starts import ORDERS, runs_like
from spectrope.encodings import Pairing

AROUND = 3.0  # Rows and columns around the declared origin among which that of a rotation is sought.


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
        gain: Factor on rotated vectors; None where it was not seen.
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
    origin, gain = _start(z[:, 0, 0], vectors, layout, seen, declared.origin or (0.0, 0.0), noise)
    parts = {name: getattr(seen, name) for name in ("pairing", "rows", "columns")}
    errors = {name: getattr(seen, name) for name in ("row_errors", "column_errors")}
    return PlaneTurning(**parts, **errors, origin=origin, gain=gain, phase_error=departure)


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


def _start(
    z: Complex[Tensor, "n m"],
    vectors: PatchVectors,
    layout: Layout,
    seen: PlaneTurning,
    declared: tuple[float, float],
    noise: float,
) -> tuple[tuple[float, float] | None, float | None]:
    """Row and column by which the first patch has turned, and the factor on it.

    The vector before its rotation is that of a token that does not turn, or a run of a source.
    """
    if vectors.still.shape[1]:
        candidates = [layout.planes(vectors.still[:, 0])]
    else:
        within = max(1e-9, 4 * noise**2)
        found = (
            runs_like(one, z, order, within, step=vectors.x.shape[-1])
            for one in reversed(vectors.sources)  # a norm behind its projection may scale it alone
            if len(one) == len(z)
            for order in ORDERS
        )
        candidates = [run for runs in found for run in runs]
    steps = torch.arange(-AROUND, AROUND + 0.5, 0.5, dtype=torch.float64)
    places = torch.cartesian_prod(steps, steps) + torch.tensor(declared, dtype=torch.float64)
    places = places[(places - torch.tensor(declared)).abs().sum(1).argsort(stable=True)]
    for run in candidates:
        c = (z * run.conj()).sum(0)
        turned = torch.polar(torch.ones(len(places), len(c), dtype=torch.float64), -seen.angles(places))
        shares = (turned * c).real.sum(1) / (z.abs() * run.abs()).sum()
        best = int((shares > shares.max() - 1e-9).nonzero()[0])
        if shares[best] > 1 - max(1e-4, 64 * noise**2):
            gain = (z.abs().square().sum() / run.abs().square().sum()).sqrt().item()
            return (places[best, 0].item(), places[best, 1].item()), gain
    return None, None
