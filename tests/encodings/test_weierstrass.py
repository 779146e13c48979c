"""Weierstrass's elliptic function, against its differential equation, its lattice and its periods."""

import math

import torch
from tests.encodings.sampled import C, draw
from torch.testing import assert_close

from spectrope.encodings.weierstrass import Weierstrass, weierstrass

Z = torch.complex(torch.tensor([0.1, 0.3, 0.45, 0.2]).double(), torch.tensor([0.2, 0.05, 0.4, 0.49]).double())


def test_the_function_solves_its_differential_equation():
    value, slope = weierstrass(Z)
    g2 = math.gamma(0.25) ** 8 / (16 * math.pi**2)
    assert_close(slope**2, 4 * value**3 - g2 * value)


def test_the_function_is_the_sum_over_its_lattice():
    value, slope = weierstrass(Z)
    side = torch.arange(-200, 201).double()
    lattice = torch.complex(*torch.meshgrid(side, side, indexing="ij")).flatten()
    away = lattice[lattice != 0]
    total = 1 / Z**2 + (1 / (Z[:, None] - away) ** 2 - 1 / away**2).sum(-1)
    assert_close(value, total, atol=2e-3, rtol=1e-4)
    assert_close(slope, -2 * (1 / (Z[:, None] - lattice) ** 3).sum(-1), atol=2e-3, rtol=1e-4)


def test_the_function_is_doubly_periodic_and_even():
    value, slope = weierstrass(Z)
    for period in (1, 1j, 3 - 2j):
        assert_close(weierstrass(Z + period), (value, slope))
    assert_close(weierstrass(-Z), (value, -slope))


def test_features_differ_all_over_the_plane():
    encoding = Weierstrass(d_model=C, side=12)
    rows, columns = torch.meshgrid(torch.arange(12), torch.arange(12), indexing="ij")
    pos = torch.stack([rows.flatten() * 12 + columns.flatten(), rows.flatten(), columns.flatten()], -1)[None]
    features = encoding.features(pos)[0]
    distances = torch.cdist(features, features) + torch.eye(144).double()
    assert float(distances.min()) > 0.01
    x = draw(1, 144, C)
    assert_close(encoding.embed(x, pos), x + features @ encoding.map.double())
