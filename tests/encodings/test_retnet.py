"""The decays of retention, by hand."""

import torch
from torch.testing import assert_close

from spectrope.encodings.retnet import RetNet


def test_the_decays_of_retention():
    bias = RetNet(n_heads=3).lag_bias(torch.tensor([1, 2]))
    assert_close(bias.exp()[0], torch.tensor([31 / 32, 63 / 64, 127 / 128]))
    assert_close(bias[1], 2 * bias[0])
