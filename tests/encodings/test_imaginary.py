"""RoPE++, against real and imaginary parts of one complex sum."""

import math

import pytest
import torch
from tests.encodings.sampled import D, H, built, context, pairs
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.encodings.imaginary import RoPEPlusPlus


def test_halves_of_the_heads_are_real_and_imaginary_parts_of_one_sum():
    encoding, ctx = built(RoPEPlusPlus.Config()), context()
    logits = encoding.logits(ctx)
    lag, frequencies = ctx.lag[0], 10000.0 ** -(torch.arange(0, D, 2).double() / D)
    turn = torch.exp(1j * lag[..., None] * frequencies)
    total = torch.einsum("bhim,bhjm,ijm->bhij", pairs(ctx.q), pairs(ctx.k).conj(), turn)[:, : H // 2]
    assert_close(logits[:, : H // 2], total.real / math.sqrt(D))
    # -Im of the sum with the conjugate convention of the paper, whose exponent has the other sign.
    assert_close(logits[:, H // 2 :], total.imag / math.sqrt(D))


def test_an_odd_number_of_heads_is_refused():
    with pytest.raises(ConfigError, match="n_heads must be even"):
        RoPEPlusPlus(n_heads=3)
