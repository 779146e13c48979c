import numpy as np
import pytest
from scipy.stats import norm

from spectrope.core.errors import ConfigError
from spectrope.stats.interval import holm


@pytest.mark.parametrize(
    ("p", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # Wikipedia's worked example
        ([0.01, 0.02, 0.03, 0.04, 0.05], [0.05, 0.08, 0.09, 0.09, 0.09]),  # R: p.adjust(1:5/100, "holm")
        ([0.5, 0.6, 1.0], [1.0, 1.0, 1.0]),
        ([0.2], [0.2]),
        ([], []),
    ],
)
def test_known_tables(p, adjusted):
    np.testing.assert_allclose(holm(np.array(p, dtype=float)), adjusted, rtol=1e-14)


def test_it_lies_between_the_raw_p_values_and_bonferroni():
    p = np.random.default_rng(0).random(50) ** 4
    assert (holm(p) >= p).all()
    assert (holm(p) <= np.minimum(1, 50 * p)).all()


@pytest.mark.parametrize("p", [[-0.1, 0.5], [0.5, 1.5], [np.nan]])
def test_what_is_no_probability_is_refused(p):
    with pytest.raises(ConfigError, match="p-values must lie between 0 and 1"):
        holm(np.array(p))


def test_family_wise_error_under_dependence():
    rng = np.random.default_rng(1)
    common = rng.normal(size=(4000, 1))
    z = 0.6 * common + 0.8 * rng.normal(size=(4000, 6))
    errors = np.mean([(holm(row) <= 0.05).any() for row in norm.sf(z)])
    assert 0.03 < errors < 0.055
