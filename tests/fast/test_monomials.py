"""Monomials: their number, their products, their gradient."""

import math

import pytest
import torch
from torch.testing import assert_close

from spectrope.fast.monomials import (
    MonomialFeatures,
    exponents,
    feature_count,
    feature_weights,
    multiplicities,
    raised_index,
)

CASES = [(1, 1), (1, 5), (2, 3), (3, 1), (3, 2), (4, 4), (7, 3), (16, 2), (37, 2)]


def made(dim: int, degree: int, tokens: int = 9) -> tuple[MonomialFeatures, torch.Tensor, torch.Tensor]:
    x, y = torch.randn(2, 3, dim, tokens, generator=torch.Generator().manual_seed(dim), dtype=torch.float64)
    return MonomialFeatures(3, dim, tokens, degree, x), x, y


@pytest.mark.parametrize(("dim", "degree"), CASES)
def test_weighted_products_are_the_polynomial_of_products(dim, degree):
    monomials, x, y = made(dim, degree)
    coefficients = tuple(1 / math.factorial(m) - 0.3 * m for m in range(degree + 1))
    of_x = monomials(x).clone()
    assert of_x.shape[1] == feature_count(dim, degree)
    weighted = (of_x * feature_weights(dim, coefficients)[:, None]).mT @ monomials(y)
    products = x.mT @ y
    assert_close(weighted, sum(a * products**m for m, a in enumerate(coefficients)))


@pytest.mark.parametrize(("dim", "degree"), CASES)
def test_multiplicities_of_one_degree_sum_to_a_power_of_the_dimension(dim, degree):
    counts, start = multiplicities(dim, degree), 0
    for m in range(degree + 1):
        end = feature_count(dim, m)
        assert counts[start:end].sum() == dim**m
        start = end


@pytest.mark.parametrize(("dim", "degree"), CASES)
def test_features_are_monomials_and_few(dim, degree):
    monomials, x, _ = made(dim, degree)
    powers = exponents(dim, degree)
    assert_close(monomials(x), (x.mT[:, :, None] ** powers).prod(-1).mT)
    assert len(powers.unique(dim=0)) == math.comb(dim + degree, degree)
    assert len(powers) <= 1.2 * math.comb(dim + degree, degree)


@pytest.mark.parametrize(("dim", "degree"), CASES)
def test_gradients_are_products_with_raised_features(dim, degree):
    monomials, x, y = made(dim, degree)
    x.requires_grad_()
    coefficients = tuple(1 / math.factorial(m) - 0.3 * m for m in range(degree + 1))
    products = x.mT @ y
    value = sum(a * products**m for m, a in enumerate(coefficients))
    (expected,) = torch.autograd.grad(value.sum(), x)
    slopes = feature_weights(dim, tuple(m * a for m, a in enumerate(coefficients) if m))
    below = MonomialFeatures(3, dim, 9, degree - 1, x)(x.detach()) * slopes[:, None]
    sums = monomials(y).sum(-1)[:, raised_index(dim, degree)]
    assert_close(sums @ below, expected)


def test_shorter_columns_reuse_the_memory():
    monomials, x, y = made(4, 3)
    whole = monomials(x).clone()
    assert_close(monomials(y[..., :5]), MonomialFeatures(3, 4, 5, 3, x)(y[..., :5]))
    assert_close(monomials(x), whole)
