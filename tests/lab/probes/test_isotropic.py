"""What encodings make of equal content by lag, against formulas and against random content."""

import pytest
import torch
from torch.testing import assert_close

from spectrope.encodings import ENCODINGS, Context
from spectrope.front.spectrum import spectrum_of_encoding
from spectrope.lab.probes.isotropic import input_lags, product_lags
from spectrope.lab.training.scales import experiment
from spectrope.spectral import rope_kernel

N, D = 12, 8


def built(name, **fields):
    return ENCODINGS.config(name)(**fields).build().double()


def cosines(width, n=N):
    frequencies = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) * 2 / width)
    return rope_kernel(frequencies, n).lags[n - 1 :]


def test_a_blend_is_its_share_of_the_rotation_and_all_ones():
    lags = product_lags(built("blend", n_heads=1, head_dim=D, alpha=0.4), N, D)
    assert_close(lags, 1 + 0.4 * cosines(D))


def test_a_partial_rotation_is_a_mean_over_coordinates():
    lags = product_lags(built("partial_dims", head_dim=16, fraction=0.5), N, 16)
    assert_close(lags, 0.5 + 0.5 * cosines(8), atol=1e-7, rtol=1e-6)


def test_latent_attention_is_a_blend_of_content_and_rotary_parts():
    (kernel,) = spectrum_of_encoding("mla", N, 2).kernels
    assert (kernel.kind, kernel.heads) == ("product", (0, 1))
    attention = experiment("distance", "mla").model.attention
    share = attention.rotary_dim / (16 + attention.rotary_dim)
    assert_close(kernel.values, 1 - share + share * cosines(attention.rotary_dim), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("name", ["xpos", "harope", "grape"])
def test_it_is_the_mean_logit_of_random_equal_content(name):
    encoding = built(name)
    width = getattr(encoding.config, "head_dim", 16)
    x = torch.randn(20_000, 1, 1, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    heads = getattr(encoding.config, "n_heads", 1)
    x = x.expand(-1, heads, -1, -1)
    position = torch.tensor([[5]])
    logits = encoding.logits(Context(x, x, position, torch.tensor([[0]])))[:, 0].mean() / width**0.5
    assert logits.item() == pytest.approx(product_lags(encoding, N, width)[5].item(), abs=0.02)


def test_sinusoids_are_a_kernel_of_the_lag_and_learned_positions_are_none():
    lags = input_lags(built("sinusoidal", d_model=16), N)
    assert_close(lags, cosines(16), atol=1e-7, rtol=1e-6)
    assert "nearest Toeplitz matrix has" in input_lags(built("learned", d_model=16, max_length=N), N)
    assert input_lags(built("rope", head_dim=D), N) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("path", "computes whole logits or outputs"),
        ("cable", "depends on content"),
        ("axial_rope", "on 2 axes"),
        ("shaw", "not bilinear"),
        ("nope", "does not change the products"),
        ("fope", "depend on more than the lag"),
    ],
)
def test_the_others_say_why_they_have_none(name, reason):
    encoding = built(name)
    assert reason in product_lags(encoding, N, getattr(encoding.config, "head_dim", 16))
