"""Many small logits at once agree with one at a time."""

import pytest
import torch
from torch.testing import assert_close

from spectrope.core.errors import ConfigError
from spectrope.spectral.anova import LogitSums, fit_lag_effects
from spectrope.spectral.factorisation import factorisation_residual
from spectrope.spectral.lag_design import LagDesign, separation_residuals
from spectrope.spectral.product import row_centred
from spectrope.spectral.rope import complex_pairs
from spectrope.spectral.toeplitzness import toeplitz_share_of_matrix

SIZES = pytest.mark.parametrize(("n", "causal"), [(n, c) for n in (2, 3, 7, 20) for c in (True, False)])


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@SIZES
def test_shares_and_effects_are_those_of_single_matrices(n, causal):
    logits, design = draw(3, 2, n, n), LagDesign(n, causal)
    raw, mean_removed = design.raw_shares(logits), design.mean_removed_shares(logits)
    gauge_fixed, effects = design.gauge_fixed_shares(logits), design.lag_effects(logits)
    for place in ((0, 0), (2, 1)):
        single = toeplitz_share_of_matrix(logits[place], causal)
        assert raw[place].item() == pytest.approx(single.raw, rel=1e-12)
        assert mean_removed[place].item() == pytest.approx(single.mean_removed, rel=1e-10)
        assert gauge_fixed[place].item() == pytest.approx(single.gauge_fixed, rel=1e-10)
        assert design.null == pytest.approx(single.gauge_fixed_null)
        fitted = fit_lag_effects(LogitSums.of_matrix(logits[place], causal)).lags
        assert_close(effects[place], fitted - fitted.mean(), atol=1e-8, rtol=0)


def test_toeplitz_logits_are_toeplitz_whatever_is_added_to_rows():
    n = 9
    kernel = draw(n)
    lag = torch.arange(n)[:, None] - torch.arange(n)
    logits = kernel[lag.clamp(min=0)] + draw(n, 1, seed=1)
    design = LagDesign(n, True)
    assert design.gauge_fixed_shares(logits).item() == pytest.approx(1)
    assert design.raw_shares(logits).item() < 0.9
    assert_close(design.lag_effects(logits), kernel - kernel.mean())


def test_what_lies_above_the_diagonal_is_never_read():
    logits, design = draw(8, 8), LagDesign(8, True)
    spoilt = torch.where(design.allowed, logits, torch.inf)
    for measure in (design.raw_shares, design.gauge_fixed_shares, design.lag_effects, design.centred):
        assert_close(measure(spoilt), measure(logits))


def test_centred_logits_are_row_centred_factors():
    q, k = draw(7, 3), draw(7, 3, seed=1)
    for causal in (True, False):
        left, right = row_centred(q, k, causal)
        design = LagDesign(7, causal)
        assert_close(design.centred(q @ k.T), design.seen(left @ right.T))


def test_rows_that_explain_all_leave_no_share():
    design = LagDesign(6, True)
    assert design.gauge_fixed_shares(draw(6, 1).expand(6, 6)).isnan()
    assert design.mean_removed_shares(torch.ones(6, 6, dtype=torch.float64)).isnan()


def test_one_position_is_refused():
    with pytest.raises(ConfigError, match="need at least two positions; got 1"):
        LagDesign(1, True)


@SIZES
def test_separation_residuals_are_those_of_single_heads(n, causal):
    q, k, theta = draw(4, n, 6), draw(4, n, 6, seed=1), torch.tensor([1.0, 0.3, 0.01], dtype=torch.float64)
    pairs = (complex_pairs(x.flatten(0, 1)).unflatten(0, (4, n)) for x in (q, k))
    found = separation_residuals(*pairs, theta, LagDesign(n, causal))
    single = [factorisation_residual(*pair, theta, causal=causal).residual for pair in zip(q, k, strict=True)]
    assert_close(found, torch.tensor(single, dtype=torch.float64), atol=1e-12, rtol=1e-9)
