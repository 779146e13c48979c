r"""Symmetric monomial features: vectors whose products are polynomials of the products of other vectors."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

WIDE = 4  # Coordinates at once, where features are products of two: fewer and longer operations.


def feature_count(dim: int, degree: int) -> int:
    r"""Features of `dim` coordinates up to some degree: :math:`\binom{d+g}{g}`, for degree 2 a few more."""
    if degree != 2:
        return math.comb(dim + degree, degree)
    return steps(dim, 2)[-1].target.stop


def derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    """Coefficients of P', the constant first, as are those of P."""
    return tuple(m * a for m, a in enumerate(coefficients) if m)


@dataclass(frozen=True)
class Step:
    """Coordinates `axes`, one by one, times features `source` give features `target`, one degree above."""

    axes: slice
    source: slice
    target: slice


@lru_cache(maxsize=1024)
def steps(dim: int, degree: int) -> tuple[Step, ...]:
    """How features of degrees 2 and more come from those one degree below, as contiguous blocks.

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
    r"""Of each feature :math:`x^\alpha`: :math:`\alpha`."""
    powers = torch.zeros(feature_count(dim, degree), dim, dtype=torch.int64)
    if degree > 0:
        powers[1 : 1 + dim] = torch.eye(dim, dtype=torch.int64)
    for step in steps(dim, degree):
        of_step = powers[step.target].view(step.axes.stop - step.axes.start, -1, dim)
        of_step[:] = powers[step.source]
        of_step[..., step.axes].diagonal(dim1=0, dim2=2).add_(1)
    return powers


def _keys(powers: Int[Tensor, "features d"]) -> Int[Tensor, " features"]:
    """One number for each monomial: a random combination of its exponents, modulo 2^64."""
    draw = torch.Generator().manual_seed(powers.shape[1])
    return (powers * torch.randint(-(2**62), 2**62, (powers.shape[1],), generator=draw)).sum(1)


@lru_cache(maxsize=64)
def multiplicities(dim: int, degree: int) -> Float[Tensor, " features"]:
    r"""Of each feature :math:`x^\alpha`: its share of the multinomial :math:`|\alpha|!/\alpha!`, in float64.

    They make :math:`\sum_{|\alpha|=m} \frac{m!}{\alpha!} x^\alpha y^\alpha = \langle x, y\rangle^m`.
    """
    powers = exponents(dim, degree)
    _, which, times = _keys(powers).unique(return_inverse=True, return_counts=True)
    return multinomials(powers) / times[which]


def multinomials(powers: Int[Tensor, "features d"]) -> Float[Tensor, " features"]:
    r"""The multinomial coefficients :math:`|\alpha|!/\alpha!`, in float64."""
    logs = torch.lgamma(powers.sum(1).double() + 1) - torch.lgamma(powers.double() + 1).sum(1)
    return logs.exp().round()


def weights(dim: int, coefficients: tuple[float, ...]) -> Float[Tensor, " features"]:
    r"""Of each feature: :math:`a_{|\alpha|}` times its multiplicity; products of features then become P."""
    degree = len(coefficients) - 1
    by_degree = torch.tensor(coefficients, dtype=torch.float64)[exponents(dim, degree).sum(1)]
    return by_degree * multiplicities(dim, degree)


@lru_cache(maxsize=64)
def raised(dim: int, degree: int) -> Int[Tensor, "d below"]:
    r"""Where :math:`x_a x^\beta` is, for each coordinate a and each feature :math:`\beta` one degree below.

    With them, :math:`\nabla_x P(\langle x, y\rangle) = P'(\langle x, y\rangle)\,y` is a product of features
    of degree g - 1 of x with features of degree g of y.
    """
    below, above = _keys(exponents(dim, degree - 1)), _keys(exponents(dim, degree))
    ordered, order = above.sort()
    wanted = _keys(torch.eye(dim, dtype=torch.int64))[:, None] + below
    return order[torch.searchsorted(ordered, wanted)]


class Monomials:
    r"""Features of columns of coordinates: (b, d, n) to (b, F, n).

    Features come first and tokens last, so that each block is one product of contiguous rows. The result
    lives in memory that the next call overwrites.

    Args:
        batch: b.
        dim: d.
        tokens: The largest n.
        degree: g.
        like: Gives the dtype and the device.
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
        """The first n tokens' memory and its blocks, cut once for each length."""
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
