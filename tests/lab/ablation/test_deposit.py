import numpy as np
import pytest
from pydantic import TypeAdapter

from spectrope.lab.ablation.deposit import DepositAnalysis, analyse
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
def analysis():
    return analyse(*planted(0))


def test_every_part_agrees_with_its_own_function(analysis):
    intact, ablated = planted(0)
    assert analysis.layers == judge(intact, ablated)
    assert analysis.deposits == (1,)
    np.testing.assert_allclose([e.drop.estimate for e in analysis.effects], drops(intact, ablated).ravel())
    assert [(e.layer, e.head) for e in analysis.effects] == list(np.ndindex(3, 4))
    assert analysis.concentration[1].max_share.estimate == indices(drops(intact, ablated)[1])[0]
    assert analysis.overall.gini.estimate == indices(drops(intact, ablated).ravel())[1]
    assert (analysis.n_examples, analysis.intact_accuracy) == (1500, intact.mean())


def test_a_layer_without_drop_has_no_indices_and_no_deposit(analysis):
    first = analysis.concentration[0]
    assert first.max_share is first.gini is first.effective_entropy is first.effective_participation is None
    assert analysis.layers[0].share is None


def test_depth_profile(analysis):
    assert analysis.depth.strongest == 1
    assert analysis.depth.certainty == 1
    shares = np.array([share.estimate for share in analysis.depth.share])
    assert shares.sum() == pytest.approx(1)
    assert analysis.depth.mean_layer.estimate == pytest.approx(shares @ [0, 1, 2])
    for interval in (*analysis.depth.share, analysis.depth.mean_layer):
        assert interval.low <= interval.estimate <= interval.high


def test_where_nothing_drops_the_depth_is_undefined():
    intact = np.ones(100, dtype=bool)
    found = analyse(intact, np.ones((2, 3, 100), dtype=bool))
    assert found.depth.share == (None, None)
    assert found.depth.mean_layer is None
    assert found.deposits == ()


def test_the_same_seed_gives_the_same_analysis_and_another_splits_otherwise(analysis):
    assert analyse(*planted(0)) == analysis
    assert analyse(*planted(0), seed=1).layers != analysis.layers


def test_an_analysis_survives_json(analysis):
    adapter = TypeAdapter(DepositAnalysis)
    assert adapter.validate_json(adapter.dump_json(analysis)) == analysis
