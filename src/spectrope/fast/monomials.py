r"""Monomial features of vectors, and the state of linear attention in them.

With features :math:`\phi(x)`, all monomials of the coordinates up to degree g, and weights w,
:math:`\langle w \circ \phi(x), \phi(y)\rangle = P(\langle x, y\rangle)` for any polynomial P of degree g.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

WIDE = 4  # Coordinates at once, where features are products of two: fewer and longer operations.
SUMMED = 512  # Features in one product; longer sums are taken in parts, which bounds their rounding.
CACHED_PRODUCTS = 2**20  # Of features and cotangents at once: 4 MiB in float32.


def feature_count(dim: int, degree: int) -> int:
    r"""Number of features of `dim` coordinates: :math:`\binom{d+g}{g}`, and for degree 2 a few more."""
    if degree != 2:
        return math.comb(dim + degree, degree)
    return steps(dim, 2)[-1].target.stop


def derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Coefficients of P', the constant first, as are those of P."""
    return tuple(m * a for m, a in enumerate(coefficients) if m)


@dataclass(frozen=True)
class Step:
    """Products of each coordinate in `axes` with the features `source` are `target`, one degree above."""

    axes: slice
    source: slice
    target: slice


@lru_cache(maxsize=1024)
def steps(dim: int, degree: int) -> tuple[Step, ...]:
    """The products that make features of degrees 2 and above from those one degree below, block by block.

    Within a degree, features are ordered by their first coordinate, so that those without coordinates before
    `axes` are the last ones. Products of two are taken several axes at once: then both orders of a pair
    within `axes` occur, and share the weight of their monomial.
    """
    width = min(WIDE, max(1, dim // 4)) if degree == 2 else 1  # wider, copies of pairs cost more
    plan, end = [], 1 + dim
    firsts = list(range(1, 1 + dim, width))  # where the features whose first coordinates are `axes` begin
    for _ in range(2, degree + 1):
        target, begun = end, []
        for block, first in enumerate(firsts):
            axes = slice(block * width, min((block + 1) * width, dim))
            begun.append(target)
            size = (axes.stop - axes.start) * (end - first)
            plan.append(Step(axes, slice(first, end), slice(target, target + size)))
            target += size
        end, firsts = target, begun
    return tuple(plan)


@lru_cache(maxsize=64)
def exponents(dim: int, degree: int) -> Int[Tensor, "features d"]:
    r"""The exponents :math:`\alpha` of each feature :math:`x^\alpha`."""
    powers = torch.zeros(feature_count(dim, degree), dim, dtype=torch.int64)
    if degree > 0:
        powers[1 : 1 + dim] = torch.eye(dim, dtype=torch.int64)
    for step in steps(dim, degree):
        of_step = powers[step.target].view(step.axes.stop - step.axes.start, -1, dim)
        of_step[:] = powers[step.source]
        of_step[..., step.axes].diagonal(dim1=0, dim2=2).add_(1)
    return powers


def _hashes(powers: Int[Tensor, "features d"]) -> Int[Tensor, " features"]:
    """A hash of each monomial: a fixed random combination of its exponents, modulo 2^64."""
    draw = torch.Generator().manual_seed(powers.shape[1])
    return (powers * torch.randint(-(2**62), 2**62, (powers.shape[1],), generator=draw)).sum(1)


@lru_cache(maxsize=64)
def multiplicities(dim: int, degree: int) -> Float[Tensor, " features"]:
    r"""Each feature's share of the multinomial coefficient :math:`|\alpha|!/\alpha!`, in float64.

    These make :math:`\sum_{|\alpha|=m} \frac{m!}{\alpha!} x^\alpha y^\alpha = \langle x, y\rangle^m`.
    """
    powers = exponents(dim, degree)
    _, which, times = _hashes(powers).unique(return_inverse=True, return_counts=True)
    return multinomials(powers) / times[which]


def multinomials(powers: Int[Tensor, "features d"]) -> Float[Tensor, " features"]:
    r"""The multinomial coefficients :math:`|\alpha|!/\alpha!`, in float64."""
    logs = torch.lgamma(powers.sum(1).double() + 1) - torch.lgamma(powers.double() + 1).sum(1)
    return logs.exp().round()


def feature_weights(dim: int, coefficients: tuple[float, ...]) -> Float[Tensor, " features"]:
    r"""Weights :math:`a_{|\alpha|}` times multiplicity, with which products of features sum to P."""
    degree = len(coefficients) - 1
    by_degree = torch.tensor(coefficients, dtype=torch.float64)[exponents(dim, degree).sum(1)]
    return by_degree * multiplicities(dim, degree)


@lru_cache(maxsize=64)
def raised_index(dim: int, degree: int) -> Int[Tensor, "d below"]:
    r"""Index of the feature :math:`x_a x^\beta` for coordinates a and :math:`\beta` one degree below.

    With it, :math:`\nabla_x P(\langle x, y\rangle) = P'(\langle x, y\rangle)\,y` is a product of features
    of degree g - 1 of x with features of degree g of y.
    """
    below, above = _hashes(exponents(dim, degree - 1)), _hashes(exponents(dim, degree))
    ordered, order = above.sort()
    wanted = _hashes(torch.eye(dim, dtype=torch.int64))[:, None] + below
    return order[torch.searchsorted(ordered, wanted)]


class MonomialFeatures:
    r"""Features of columns of coordinates: (b, d, n) to (b, F, n).

    Tokens are last, so that each block is one product of contiguous rows. The next call overwrites the
    result.

    Args:
        batch: b.
        dim: d.
        tokens: The largest n.
        degree: g.
        like: Tensor with the dtype and the device.
    """

    def __init__(self, batch: int, dim: int, tokens: int, degree: int, like: Tensor) -> None:
        self.dim, self.steps = dim, steps(dim, degree)
        self._linear = dim if degree > 0 else 0
        self._values = like.new_empty(batch, feature_count(dim, degree), tokens)
        self._views: dict[int, tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]] = {}

    def __call__(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b features n"]:
        values, products = self._of_length(x.shape[-1])
        values[:, 1 : 1 + self._linear] = x[:, : self._linear]
        for coordinates, source, target in products:
            torch.mul(coordinates, source, out=target)
        return values

    def _of_length(self, n: int) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """Memory for n tokens and views of its blocks, made once for each length."""
        if n not in self._views:
            values = self._values.flatten(1)[:, : self._values.shape[1] * n].unflatten(1, (-1, n))
            self._views[n] = values, [self._blocks(values, step) for step in self.steps]
        values, products = self._views[n]
        values[:, 0] = 1
        return values, products

    def _blocks(self, values: Tensor, step: Step) -> tuple[Tensor, Tensor, Tensor]:
        coordinates = values[:, 1 + step.axes.start : 1 + step.axes.stop, None]
        source = values[:, None, step.source]
        return coordinates, source, values[:, step.target].unflatten(1, (-1, source.shape[2]))


class State:
    r"""The sums :math:`S = \sum_s \phi(y_s) z_s^\top` of a polynomial's features, (b, F, e).

    Args:
        coefficients: Of P, the constant first.
        like: Columns (b, d, n) of coordinates, with the sizes, the dtype and the device.
        width: Width e of the payloads.
        tokens: Most tokens in one update or read.
    """

    def __init__(
        self, coefficients: tuple[float, ...], like: Float[Tensor, "b d n"], width: int, tokens: int
    ) -> None:
        batch, dim, degree = len(like), like.shape[1], len(coefficients) - 1
        self._coefficients, self._tokens = coefficients, tokens
        self._features = MonomialFeatures(batch, dim, tokens, degree, like)
        self._weights = feature_weights(dim, coefficients).to(like)[:, None]
        self._sums = like.new_zeros(batch, len(self._weights), width)
        self._weighted: Tensor | None = None

    @cached_property
    def _slopes(self) -> tuple[MonomialFeatures, Tensor, Tensor]:
        """Features one degree below, their weights in P', and their index when raised by a coordinate."""
        batch, dim, degree = len(self._sums), self._features.dim, len(self._coefficients) - 1
        below = MonomialFeatures(batch, dim, self._tokens, degree - 1, self._sums)
        index = raised_index(dim, degree).to(self._sums.device)
        return below, feature_weights(dim, derivative(self._coefficients)).to(self._sums)[:, None], index

    def clear(self) -> None:
        """Set all sums to zero."""
        self._sums.zero_()
        self._weighted = None

    def decay(self, factor: Float[Tensor, "b 1 1"]) -> None:
        """Multiply all sums by a factor of each row."""
        self._sums.mul_(factor)
        self._weighted = None

    def update(self, y: Float[Tensor, "b d n"], z: Float[Tensor, "b e n"]) -> None:
        """Add tokens and their payloads."""
        self._sums.baddbmm_(self._features(y), z.mT)
        self._weighted = None

    def read(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b e n"]:
        r""":math:`\sum_s P(\langle x, y_s\rangle) z_s`."""
        if self._weighted is None:
            self._weighted = (self._sums * self._weights).mT.contiguous()
        first, *rest = zip(self._weighted.split(SUMMED, 2), self._features(x).split(SUMMED, 1), strict=True)
        sums = torch.bmm(*first)
        for left, right in rest:
            sums.baddbmm_(left, right)
        return sums

    def read_gradient(self, x: Float[Tensor, "b d n"], w: Float[Tensor, "b e n"]) -> Float[Tensor, "b d n"]:
        r""":math:`\nabla_x \langle w, \sum_s P(\langle x, y_s\rangle) z_s\rangle`.

        As :math:`\nabla_x P(\langle x, y\rangle) = P'(\langle x, y\rangle)\,y`, this is a product of features
        one degree below, times w, with sums of features raised by one coordinate.
        """
        below, slopes, raised_to = self._slopes
        features = below(x).mul_(slopes)
        size = max(1, CACHED_PRODUCTS // (w.shape[0] * w.shape[1] * w.shape[2]))
        out = torch.zeros_like(x)
        for some, index in zip(features.split(size, 1), raised_to.split(size, 1), strict=True):
            products = torch.mul(some[:, :, None], w[:, None]).flatten(1, 2)
            out.baddbmm_(self._sums[:, index.flatten()].view(*x.shape[:2], -1), products)
        return out
