import pytest
import torch
from scipy.stats import binomtest

from spectrope.core.noise import Noise, maybe_drop

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_elements_are_dropped_with_the_asked_probability(p, dtype):
    keep = Noise(p, 0, CPU).keep(torch.Size((1000, 1000)), dtype)
    assert set(keep.unique().tolist()) == {0.0, 1.0}
    dropped = int((keep == 0).sum())
    assert binomtest(dropped, keep.numel(), p).pvalue > 1e-4


def test_neighbouring_elements_are_independent():
    keep = Noise(0.3, 1, CPU).keep(torch.Size((1_000_000,)), torch.float64)
    centred = keep - keep.mean()
    for lag in (1, 2, 3, 4, 8):
        correlation = (centred[lag:] * centred[:-lag]).mean() / centred.var()
        assert abs(correlation) < 4.5e-3  # 4.5 standard errors


def test_what_is_kept_is_scaled_so_that_the_mean_stays():
    out = Noise(0.25, 2, CPU).drop(torch.ones(400_000, dtype=torch.float64))
    assert abs(out.mean() - 1) < 5e-3
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])


@pytest.mark.parametrize("p", [1e-9, 1 - 1e-9])
def test_extreme_probabilities_stay_finite_and_unbiased(p):
    out = Noise(p, 0, CPU).drop(torch.ones(3 * 2**22, dtype=torch.float64))
    assert out.isfinite().all()
    assert out.unique().numel() == 2
    assert abs(out.mean() - 1) < 0.4  # 4.5 standard errors at the upper end


def test_a_seed_names_its_masks():
    size = torch.Size((5, 7))
    first, again, other = (Noise(0.5, seed, CPU).keep(size, torch.float32) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_without_noise_nothing_is_dropped():
    x = torch.randn(3)
    assert maybe_drop(x, None) is x
