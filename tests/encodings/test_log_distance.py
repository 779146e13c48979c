"""Logarithms of the distance, by hand."""

import torch

from spectrope.encodings.log_distance import LogDistance


def test_logarithms_of_the_distance_by_hand():
    bias = LogDistance(n_heads=2, max_length=32, amplitude=2.0).lag_bias(torch.tensor([0, 1, 3, 4, 31, 500]))
    assert bias[:, 1].tolist() == [10.0, 8.0, 6.0, 4.0, 0.0, 0.0]
