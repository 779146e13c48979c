import numpy as np
import pytest

from spectrope.lab.ablation.deposit import concentrations, deposit_table
from spectrope.lab.ablation.rule import drops, judge
from spectrope.stats.concentration import indices


def planted(seed, n=1500, deep=40.0, n_layers=3):
    rng = np.random.default_rng(seed)
    true = np.full((n_layers, 4), 1.5)
    true[0] = 0.0
    true[1, 2] = deep
    intact = rng.random(n) < 0.97
    return intact, intact & (rng.random((n_layers, 4, n)) >= true[..., None] / 97)


@pytest.fixture(scope="module")
def table():
    return deposit_table(*planted(0))


def test_every_column_agrees_with_its_own_function(table):
    intact, ablated = planted(0)
    rule = judge(intact, ablated)
    assert table["deposit"].to_list() == [layer.deposit for layer in rule] == [False, True, False]
    assert table.select("layer", "head").rows() == [(layer.layer, layer.head) for layer in rule]
    expected = indices(drops(intact, ablated)[1])
    estimates = table.select("max_share", "gini", "effective_participation", "effective_entropy").row(1)
    np.testing.assert_array_equal(estimates, expected)


def test_intervals_hold_their_estimates():
    for layer in concentrations(*planted(0))[1:]:
        for interval in vars(layer).values():
            assert interval.low <= interval.estimate <= interval.high


def test_a_layer_without_drop_has_no_indices_and_no_deposit(table):
    first = concentrations(*planted(0))[0]
    assert first.max_share is first.gini is first.effective_entropy is first.effective_participation is None
    assert table.row(0, named=True)["share"] is None
    assert table.row(0, named=True)["gini"] is None


def test_the_same_seed_gives_the_same_table_and_another_splits_otherwise(table):
    assert deposit_table(*planted(0)).equals(table)
    other = deposit_table(*planted(0), seed=1)
    assert not other.select("gap", "gini_low").equals(table.select("gap", "gini_low"))
