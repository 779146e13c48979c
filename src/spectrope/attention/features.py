r"""Symmetric monomial features: vectors whose products are polynomials of the products of other vectors."""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor


def feature_count(dim: int, degree: int) -> int:
    r"""Monomials of `dim` variables up to some degree: :math:`\binom{d+g}{g}`."""
    return math.comb(dim + degree, degree)


@dataclass(frozen=True)
class Step:
    """Coordinate `axis` times the monomials in `source`, one degree below, gives those in `target`."""

    axis: int
    source: slice
    target: slice


@lru_cache(maxsize=256)
def steps(dim: int, degree: int) -> tuple[Step, ...]:
    """How monomials of degrees 2 and more come from those one degree below, as contiguous blocks.

    Within a degree, monomials are ordered by their first coordinate, so that those without coordinates before
    `axis` are the last ones.
    """
    plan, end = [], 1 + dim
    firsts = list(range(1, 1 + dim))  # where the monomials whose first coordinate is `axis` begin
    for _ in range(2, degree + 1):
        target, begun = end, []
        for axis in range(dim):
            source = slice(firsts[axis], end)
            begun.append(target)
            plan.append(Step(axis, source, slice(target, target + end - firsts[axis])))
            target += end - firsts[axis]
        end, firsts = target, begun
    return tuple(plan)


@lru_cache(maxsize=256)
def multiplicities(dim: int, degree: int) -> Float[Tensor, " features"]:
    r"""Of each monomial :math:`x^\alpha`: the multinomial coefficient :math:`|\alpha|!/\alpha!`, in float64.

    They make :math:`\sum_{|\alpha|=m} \frac{m!}{\alpha!} x^\alpha y^\alpha = \langle x, y\rangle^m`.
    """
    exponents = torch.zeros(feature_count(dim, degree), dim, dtype=torch.float64)
    exponents[1 : 1 + dim] = torch.eye(dim, dtype=torch.float64)
    for step in steps(dim, degree):
        exponents[step.target] = exponents[step.source]
        exponents[step.target, step.axis] += 1
    logs = torch.lgamma(exponents.sum(1) + 1) - torch.lgamma(exponents + 1).sum(1)
    return logs.exp().round()


def weights(dim: int, coefficients: tuple[float, ...]) -> Float[Tensor, " features"]:
    r"""Of each monomial: :math:`a_{|\alpha|}\,|\alpha|!/\alpha!`, which turn products of features into P."""
    degree = len(coefficients) - 1
    sizes = [feature_count(dim, m) - (feature_count(dim, m - 1) if m else 0) for m in range(degree + 1)]
    by_degree = torch.tensor(coefficients, dtype=torch.float64).repeat_interleave(torch.tensor(sizes))
    return by_degree * multiplicities(dim, degree)


class Monomials:
    r"""All monomials up to a degree, of columns of coordinates: (b, d, n) to (b, F, n), F = C(d + g, g).

    Features come first and tokens last, so that each block is one product of contiguous rows. The result
    lives in memory that the next call overwrites.

    Args:
        batch: b.
        dim: d.
        tokens: The largest n.
        degree: g, at least 1.
        like: Gives the dtype and the device.
    """

    def __init__(self, batch: int, dim: int, tokens: int, degree: int, like: Tensor) -> None:
        self.dim, self.steps = dim, steps(dim, degree)
        self._values = like.new_empty(batch, feature_count(dim, degree), tokens)
        self._views: dict[int, tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]] = {}

    def __call__(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b features n"]:
        values, products = self._of_length(x.shape[-1])
        values[:, 1 : 1 + self.dim] = x
        for coordinate, source, target in products:
            torch.mul(coordinate, source, out=target)
        return values

    def _of_length(self, n: int) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """The first n tokens' memory and its blocks, cut once for each length."""
        if n not in self._views:
            values = self._values.flatten(1)[:, : self._values.shape[1] * n].unflatten(1, (-1, n))
            self._views[n] = (
                values,
                [(values[:, 1 + s.axis, None], values[:, s.source], values[:, s.target]) for s in self.steps],
            )
        values, products = self._views[n]
        values[:, 0] = 1
        return values, products

    def pull_back(
        self, values: Float[Tensor, "b features n"], grad: Float[Tensor, "b features n"]
    ) -> Float[Tensor, "b d n"]:
        """Gradient of x from that of its features, which is used up."""
        scratch = torch.empty_like(grad)
        for step in reversed(self.steps):
            source, target = values[:, step.source], grad[:, step.target]
            spare = scratch[:, : target.shape[1]]
            grad[:, 1 + step.axis] += torch.mul(source, target, out=spare).sum(1)
            grad[:, step.source].addcmul_(values[:, 1 + step.axis, None], target)
        return grad[:, 1 : 1 + self.dim]
