"""Faithful encodings, against the discrete Fourier transform."""

import math

import pytest
import torch
from tests.encodings.sampled import C
from torch.testing import assert_close

from spectrope.encodings.faithful import Faithful


@pytest.mark.parametrize("length", [7, 8, 9])
def test_coefficients_are_those_of_the_position_and_give_it_back(length):
    encoding = Faithful(d_model=C, max_length=length)
    added = encoding.embed(torch.zeros(1, length, C).double(), torch.arange(length)[None])[0]
    assert_close(added @ added.T, torch.eye(length).double())
    transform = torch.fft.rfft(torch.eye(length).double(), norm="ortho")
    scale = torch.full((length // 2 + 1,), math.sqrt(2)).double()
    scale[0] = 1
    scale[-1] = 1 if length % 2 == 0 else math.sqrt(2)
    energies = (transform.abs() * scale).square().sum(-1)
    assert_close(added.square().sum(-1), energies)
    assert_close(added[:, 1], transform[:, 1].real * math.sqrt(2))
    assert_close(added[:, 2], -transform[:, 1].imag * math.sqrt(2))


def test_a_narrow_model_takes_frequencies_from_everywhere():
    narrow = Faithful(d_model=4, max_length=64)
    frequencies = narrow.frequencies.value
    assert len(frequencies) == 4
    assert_close(frequencies[[0, -1]], torch.tensor([0.0, math.pi]).double())
