import itertools

import numpy as np
import pytest
import torch
from tests.lab.ablation.models import decoder, examples
from tests.lab.ablation.test_heads import answering, loud_tokens

from spectrope.core.errors import ConfigError
from spectrope.core.progress import Progress
from spectrope.lab.ablation import adaptive
from spectrope.lab.ablation.adaptive import Ledger, adaptive_sweep
from spectrope.lab.ablation.protocols import Protocol
from spectrope.lab.ablation.sweep import sweep
from spectrope.stats.sequential import TargetPrecision, Threshold


def exact_drops(model, data, **protocol):
    found = sweep(model, data, protocol=Protocol(**protocol))
    return [row.drop for row in found.drops()]


def test_shares_of_right_answers_are_averaged_as_they_are():
    ledger = Ledger.blank(2, 8, Threshold(0.05), 0.05, dtype=np.float64)
    ledger.enter(np.stack([np.full(8, 1.0), np.full(8, 0.5), np.full(8, 0.25)]))
    found = ledger.summary(2, 0.95, simultaneous=False)
    assert [drop.drop.estimate for drop in found.drops] == [50.0, 75.0]


def test_heads_are_decided_rightly_with_fewer_forwards():
    """One head carries everything and eleven nothing; 3,000 examples are held out."""
    model, data = answering([1]), loud_tokens(3000)
    found = adaptive_sweep(model, data, Threshold(0.05))
    exact = exact_drops(model, data)
    for drop, true in zip(found.drops, exact, strict=True):
        assert drop.drop.low <= true <= drop.drop.high
        assert (drop.drop.low > 5) == (true > 5)
    assert found.saving > 10
    assert found.head_forwards == sum(drop.n for drop in found.drops)
    assert [(d.layer, d.head) for d in found.drops[:5]] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]


def test_precision_is_what_was_asked_for():
    model, data = decoder(), examples(300)
    found = adaptive_sweep(model, data, TargetPrecision(0.1))
    exact = exact_drops(model, data)
    for drop, true in zip(found.drops, exact, strict=True):
        assert drop.drop.high - drop.drop.low <= 20
        assert drop.drop.low <= true <= drop.drop.high
    assert max(drop.n for drop in found.drops) <= 300


@pytest.mark.parametrize("fill", ["zero", "mean", "resample", "position-only", "content-only"])
def test_run_to_the_end_it_is_the_exact_sweep(fill):
    """An aim that only the whole population reaches; every fill sees the whole data set, not one look's."""
    model, data = decoder(), examples(100)
    found = adaptive_sweep(model, data, TargetPrecision(1e-6), protocol=Protocol(fill=fill))
    exact = exact_drops(model, data, fill=fill)
    for drop, true in zip(found.drops, exact, strict=True):
        assert (drop.drop.low, drop.drop.estimate, drop.drop.high) == pytest.approx((true,) * 3)
    assert (found.saving, found.population) == (1, 100)


def test_intervals_for_all_heads_at_once_are_wider():
    model, data = decoder(), examples(150)
    both = [adaptive_sweep(model, data, TargetPrecision(0.08), simultaneous=s) for s in (True, False)]
    assert both[0].head_forwards > both[1].head_forwards
    assert (both[0].simultaneous, both[1].simultaneous) == (True, False)


def test_the_order_is_the_seeds():
    model, data = decoder(), examples(150)
    runs = [adaptive_sweep(model, data, TargetPrecision(0.2), seed=s) for s in (0, 0, 1)]
    assert runs[0] == runs[1]
    assert runs[0].drops != runs[2].drops


def test_labels_that_do_not_count_are_left_out():
    model, data = decoder(classes="vocabulary"), examples(60)
    found = adaptive_sweep(model, data, Threshold(0.05))
    assert found.population == int((data.labels != 0).sum())
    data.labels.zero_()
    with pytest.raises(ConfigError, match="an example whose label is not ignored"):
        adaptive_sweep(model, data, Threshold(0.05))


def test_progress_is_told_in_heads_decided():
    seen = []
    adaptive_sweep(answering([1]), loud_tokens(500), Threshold(0.05), watch=seen.append)
    assert seen[-1] == Progress("ablate", 12, 12)
    assert [at.done for at in seen] == sorted(at.done for at in seen)


def test_looks_grow_and_end_with_the_population():
    looks = list(adaptive.looks(1000))
    assert looks[0] == 64
    assert looks[-1] == 1000
    assert all(b > a for a, b in itertools.pairwise(looks))
    assert list(adaptive.looks(10)) == [10]
    assert list(adaptive.looks(100, 8, 30)) == [30, 60, 90, 100]


def test_simulated_sweeps_are_covered(monkeypatch):
    """Whole sweeps with true drops from 0 to 90 points, the network replaced by its correctness.

    A thousand of them passed once, in two minutes; the sequences themselves are tested so in tests/stats.
    """
    drops = np.array([0, 0, 0.01, 0.05, 0.06, 0.2, 0.3, 0.5, 0.7, 0.9, 0.04, 0.1])
    model, size, missed = decoder(), 400, 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        lost = rng.permuted(np.arange(size) < np.round(drops * size)[:, None], axis=1)
        table = torch.from_numpy(np.concatenate([np.ones((1, size), dtype=bool), ~lost]))

        def look_up(model, data, wanted, table=table, **how):
            rows = [0] + [1 + 4 * variant[0].layer + variant[0].head for variant in wanted[1:]]
            return table[rows][:, data.lengths]

        monkeypatch.setattr(adaptive, "correctness", look_up)
        data = examples(size)
        data.lengths.copy_(torch.arange(size))  # stands for the example's number
        found = adaptive_sweep(model, data, Threshold(0.05), seed=seed)
        missed += any(
            not d.drop.low - 1e-9 <= 100 * t <= d.drop.high + 1e-9
            for d, t in zip(found.drops, lost.mean(1), strict=True)
        )
    assert missed <= 3
