import numpy as np
import pytest

from spectrope.core.errors import ConfigError
from spectrope.core.random import numpy_stream
from spectrope.lab.ablation.rule import drops, judge
from spectrope.lab.ablation.thresholds import Rule


def sweep(rng, true_drops, n, accuracy=0.98, overlap=0.5):
    """Correctness of an intact and an ablated model whose heads fail on partly the same examples."""
    true = np.asarray(true_drops) / (100 * accuracy)
    intact = rng.random(n) < accuracy
    common, own = rng.random(n), rng.random((*true.shape, n))
    hardness = np.where(rng.random((*true.shape, n)) < overlap, common, own)
    lucky = ~intact & (rng.random((*true.shape, n)) < 0.02)
    return intact, (intact & (hardness >= true[..., None])) | lucky


def found(true_drops, n, repeats, seed=0, **kwargs):
    """Share of simulated sweeps in which any layer has a deposit."""
    rng = np.random.default_rng(seed)
    hits = [
        any(layer.deposit for layer in judge(*sweep(rng, true_drops, n, **kwargs), seed=i))
        for i in range(repeats)
    ]
    return np.mean(hits)


EQUAL = np.full((3, 8), 12.0)
GRADED = np.array([[40, 33, 26, 19, 12, 8, 4, 1]] * 3)  # gap of 7 points, share of 0.28
NOTHING = np.zeros((3, 8))


@pytest.mark.sampled
@pytest.mark.parametrize("true", [EQUAL, GRADED, NOTHING])
@pytest.mark.parametrize("n", [200, 3000])
def test_equal_and_graded_drops_raise_no_false_deposit(true, n):
    assert found(true, n, 100) == 0


@pytest.mark.parametrize(
    "layer",
    [
        [30, 20, 1, 1, 1, 1, 1, 1],  # gap exactly 10, share 0.54
        [60, 10, 10, 10, 10, 10, 10, 0],  # share exactly 0.5, gap 50
        [20, 10, 10, 0, 0, 0, 0, 0],  # both exactly at the threshold
    ],
)
def test_false_positives_stay_below_the_level_at_the_edge_of_the_rule(layer):
    """One layer, so that Holm's correction does nothing; 3.1 standard errors of 400 repeats above 5 %."""
    assert found([layer], 2000, 400) <= 0.084


def test_false_positives_stay_below_the_level_over_many_layers_at_the_edge():
    assert found([[30, 20, 1, 1]] * 6, 1000, 300) <= 0.09


@pytest.mark.parametrize("overlap", [0.0, 0.9])
def test_a_planted_deposit_is_found(overlap):
    planted = np.full((3, 8), 1.0)
    planted[1, 5] = 40
    rng = np.random.default_rng(1)
    for seed in range(30):
        layers = judge(*sweep(rng, planted, 3000, overlap=overlap), seed=seed)
        assert [layer.deposit for layer in layers] == [False, True, False]
        assert layers[1].head == 5
        assert layers[1].gap_low < layers[1].gap


def test_power_grows_with_the_examples():
    true = [[16, 2, 1, 1], [1, 1, 1, 1]]  # a gap of 14 points
    powers = [found(true, n, 60) for n in (200, 1000, 6000)]
    assert powers[0] < powers[1] < powers[2]
    assert powers[2] > 0.95


def test_the_head_comes_from_one_half_and_the_bounds_from_the_other():
    """Examples whose drop is spread differently over the halves give a gap of the second half alone."""
    n = 400
    order = numpy_stream(7, "deposit", "halves").permutation(n)
    intact, ablated = np.ones(n, dtype=bool), np.ones((1, 3, n), dtype=bool)
    ablated[0, 2, order[: n // 2]] = False  # head 2 matters on the choosing half alone
    ablated[0, 0, order[n // 2 :]] = False  # head 0 on the judging half alone
    (layer,) = judge(intact, ablated, seed=7)
    assert layer.head == 2
    assert (layer.drop, layer.gap, layer.share) == (0, -100, 0)
    assert not layer.deposit


def test_figures_worked_by_hand():
    n = 400
    intact, ablated = np.ones(n, dtype=bool), np.ones((2, 3, n), dtype=bool)
    ablated[0, 1] = False
    layers = judge(intact, ablated)
    assert (layers[0].head, layers[0].drop, layers[0].gap, layers[0].share) == (1, 100, 100, 1)
    assert layers[0].share_low == 1
    assert 95 < layers[0].gap_low < 100
    assert layers[0].deposit
    assert (layers[1].share, layers[1].share_low, layers[1].p, layers[1].p_adjusted) == (None, 0, 1, 1)


def test_a_lone_head_is_compared_with_no_drop():
    intact = np.ones(400, dtype=bool)
    (layer,) = judge(intact, np.zeros((1, 1, 400), dtype=bool))
    assert (layer.gap, layer.share, layer.deposit) == (100, 1, True)


def test_holm_is_applied_across_layers():
    planted = np.full((5, 4), 0.5)
    planted[:, 0] = [14, 0.5, 0.5, 0.5, 40]
    layers = judge(*sweep(np.random.default_rng(3), planted, 1500))
    p = sorted(layer.p for layer in layers)
    adjusted = sorted(layer.p_adjusted for layer in layers)
    np.testing.assert_allclose(adjusted, np.maximum.accumulate(np.minimum(1, np.array(p) * [5, 4, 3, 2, 1])))


def test_thresholds_are_the_rules():
    planted = [[20, 2, 2, 2]]
    data = sweep(np.random.default_rng(4), planted, 4000)
    assert judge(*data)[0].deposit
    assert not judge(*data, rule=Rule(gap=18.0))[0].deposit
    assert not judge(*data, rule=Rule(share=0.8))[0].deposit


def test_drops_are_percentage_points():
    intact = np.array([1, 1, 1, 0], dtype=bool)
    assert drops(intact, np.array([[1, 0, 0, 0], [1, 1, 1, 1]], dtype=bool)).tolist() == [50, -25]


def test_three_examples_are_refused():
    with pytest.raises(ConfigError, match="needs at least 4 examples, two for each half; got 3"):
        judge(np.ones(3, dtype=bool), np.ones((1, 2, 3), dtype=bool))


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("gap", 100.0, "between 0 and 100 points"),
        ("share", 1.0, "a fraction below 1"),
        ("level", 0.4, "at least 0.5"),
    ],
)
def test_senseless_rules_are_refused(field, value, match):
    with pytest.raises(ConfigError, match=match):
        Rule(**{field: value})
