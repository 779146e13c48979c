"""Wavelet positions, against a loop over their definition."""

import math

import torch
from tests.encodings.sampled import D, context
from torch.testing import assert_close

from spectrope.encodings.wavelet import Wavelet


def test_the_score_of_a_lag_by_hand():
    wavelet, ctx = Wavelet(head_dim=D, scales=2), context()
    logits = wavelet.logits(ctx)
    for b, h, i, j in [(0, 0, 6, 1), (1, 3, 2, 5)]:
        score = 0.0
        for c in range(D):
            scale = 2 ** (c % 2)
            u = (i - j - (c // 2) * scale) / scale
            score += float(ctx.q[b, h, i, c]) * (1 - u * u) * math.exp(-u * u / 2)
        expected = (float(ctx.q[b, h, i] @ ctx.k[b, h, j]) + score) / math.sqrt(D)
        assert_close(float(logits[b, h, i, j]), expected)


def test_no_wavelet_has_a_mean():
    lags = torch.linspace(-200, 200, 40001, dtype=torch.float64)
    means = Wavelet(head_dim=D, scales=2).vectors(lags).sum(0) * 0.01
    assert_close(means, torch.zeros(D).double(), atol=1e-8, rtol=0)
