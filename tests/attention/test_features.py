"""Monomials: their number, their products, their gradient."""

import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.attention.features import Monomials, feature_count, multiplicities, weights

CASES = [(1, 1), (1, 5), (2, 3), (3, 1), (3, 2), (4, 4), (7, 3), (16, 2)]


def made(dim: int, degree: int, tokens: int = 9) -> tuple[Monomials, torch.Tensor, torch.Tensor]:
    x, y = torch.randn(2, 3, dim, tokens, generator=torch.Generator().manual_seed(dim), dtype=torch.float64)
    return Monomials(3, dim, tokens, degree, x), x, y


@pytest.mark.parametrize(("dim", "degree"), CASES)
def test_weighted_products_are_the_polynomial_of_products(dim, degree):
    monomials, x, y = made(dim, degree)
    coefficients = tuple(1 / math.factorial(m) - 0.3 * m for m in range(degree + 1))
    of_x = monomials(x).clone()
    assert of_x.shape[1] == feature_count(dim, degree) == math.comb(dim + degree, degree)
    weighted = (of_x * weights(dim, coefficients)[:, None]).mT @ monomials(y)
    products = x.mT @ y
    assert_close(weighted, sum(a * products**m for m, a in enumerate(coefficients)))


@pytest.mark.parametrize(("dim", "degree"), CASES)
def test_multiplicities_of_one_degree_sum_to_a_power_of_the_dimension(dim, degree):
    counts, start = multiplicities(dim, degree), 0
    for m in range(degree + 1):
        end = feature_count(dim, m)
        assert counts[start:end].sum() == dim**m
        start = end


@pytest.mark.parametrize(("dim", "degree"), CASES[:-1])
def test_the_gradient_is_that_of_autograd(dim, degree):
    monomials, x, _ = made(dim, degree)
    x.requires_grad_()
    powers = [torch.ones_like(x[:, :1]), x]
    for _ in range(degree - 1):
        powers.append((powers[-1][:, :, None] * x[:, None]).flatten(1, 2))  # all products, in no packed order
    tensor_weights = [torch.randn_like(p) for p in powers]
    loss = sum((w * p).sum() for w, p in zip(tensor_weights, powers, strict=True))
    (expected,) = torch.autograd.grad(loss, x)
    values = monomials(x.detach())
    packed = torch.stack(
        [_gathered(values, i, dim, degree, tensor_weights) for i in range(values.shape[1])], 1
    )
    assert_close(monomials.pull_back(values, packed), expected)


def _gathered(values, index, dim, degree, tensor_weights):
    """Sum of the unpacked weights of all ordered products that are monomial `index`."""
    exponents = _exponents(dim, degree)[index]
    order = int(exponents.sum())
    if order == 0:
        return tensor_weights[0][:, 0]
    rows = torch.cartesian_prod(*[torch.arange(dim)] * order).reshape(-1, order)
    counts = torch.nn.functional.one_hot(rows, dim).sum(1)
    return tensor_weights[order][:, (counts == exponents).all(1)].sum(1)


def _exponents(dim, degree):
    """Exponents of each monomial, read off its values at powers of distinct primes."""
    primes = torch.tensor([2, 3, 5, 7, 11, 13, 17][:dim], dtype=torch.float64)
    at = Monomials(1, dim, 1, degree, primes)(primes[None, :, None])[0, :, 0].round().long()
    found = torch.zeros(len(at), dim, dtype=torch.long)
    for axis, prime in enumerate(primes.long()):
        left = at.clone()
        while (divisible := left % prime == 0).any():
            found[:, axis] += divisible
            left = torch.where(divisible, left // prime, torch.ones_like(left))
    return found


def test_shorter_columns_reuse_the_memory():
    monomials, x, y = made(4, 3)
    whole = monomials(x).clone()
    assert_close(monomials(y[..., :5]), Monomials(3, 4, 5, 3, x)(y[..., :5]))
    assert_close(monomials(x), whole)
