"""Calls of heads whose costs are known, of a null model, and of simulated scores."""

from typing import get_args

import numpy as np
import pytest
import torch
from tests.checkpoints.ablation.planted import HEADS, LAYERS, NEEDED, costs, kinds, planted
from tests.checkpoints.ablation.test_bands import data, llama

from spectrope.checkpoints.ablation import calls as module
from spectrope.checkpoints.ablation.calls import Caller, CallMethod
from spectrope.checkpoints.ablation.sources import FillSources
from spectrope.checkpoints.ablation.subject import CheckpointSubject
from spectrope.checkpoints.ablation.sweep import checkpoint_sweep
from spectrope.checkpoints.sequences import predicting
from spectrope.lab import HeadAblation

METHODS = get_args(CallMethod)
SHARES = (0.67, 0.3, 0.03)  # Of kinds: one head costs 30 points and one 3.
ALL = [HeadAblation(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


def caller(model, sequences, threshold=5.0, fill="zero", **options):
    subject = CheckpointSubject.of(model)
    changes = [HeadAblation(layer, head, fill) for layer in range(LAYERS) for head in range(HEADS)]
    sources = FillSources.over(subject, sequences, [fill])
    return Caller(subject, sequences, changes, threshold, sources, **options)


@pytest.mark.parametrize("method", METHODS)
def test_planted_heads_are_called_by_their_known_costs(method):
    model, sequences = planted(), kinds(SHARES, 200)
    found, known = caller(model, sequences).calls(method), costs(sequences)
    assert known[NEEDED[1]] > 25
    assert 2 < known[NEEDED[2]] < 4
    for change, row in zip(ALL, found.table.iter_rows(named=True), strict=True):
        true = known[change.layer, change.head]
        assert row["call"] == ("costs" if true > 5 else "does not")
        assert row["low"] - 1e-4 <= true <= row["high"] + 1e-4
        assert row["n"] == 200 or method.endswith("adaptive")
    if method.endswith("adaptive"):
        assert found.table["n"].mean() < 180
        assert len(found.intact) == found.table["n"].max()
    else:
        drops = [known[change.layer, change.head] for change in ALL]
        assert found.table["drop"].to_list() == pytest.approx(drops, abs=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_no_head_of_a_null_model_is_called(method):
    model, sequences = planted({}), kinds((1.0, 0.0, 0.0), 150)
    sequences.targets[:, ::2] = 1  # Half of the answers are wrong.
    found = caller(model, sequences).calls(method)
    assert found.intact[:, 1].mean() == 0.5
    assert set(found.table["call"]) == {"does not"}
    assert found.table["drop"].abs().max() == 0
    assert (found.table["n"] < 150).all() == method.endswith("adaptive")


@pytest.mark.parametrize("fill", ["zero", "mean", "resample", "content-only"])
def test_run_to_the_end_adaptive_calls_are_the_exact_sweep(fill):
    """A threshold that only the whole population decides; means and donors are those of all sequences."""
    model = llama()
    ids = torch.randint(5, 60, (12, 9), generator=torch.Generator().manual_seed(1))
    sequences = predicting(ids, torch.ones_like(ids, dtype=torch.bool), torch.full((12,), 9))
    found = caller(model, sequences, threshold=1e-3, fill=fill).calls("adaptive").table
    exact = checkpoint_sweep(model, sequences, fill=fill).costs()
    assert set(found["n"]) == {12}
    for row, cost in zip(found.iter_rows(named=True), exact, strict=True):
        assert (row["low"], row["drop"], row["high"]) == pytest.approx((cost.drop,) * 3, abs=1e-6)
        assert row["loss_increase"] == pytest.approx(cost.loss_increase, abs=1e-6)


def test_exact_calls_have_the_intervals_of_the_sweep():
    model, sequences = llama(), data(n=6)
    found, exact = caller(model, sequences).calls("exact").table, checkpoint_sweep(model, sequences).costs()
    for row, cost in zip(found.iter_rows(named=True), exact, strict=True):
        assert (row["low"], row["high"]) == pytest.approx((cost.drop_low, cost.drop_high), abs=1e-6)
        assert row["call"] == (
            "costs" if cost.drop_low > 5 else "does not" if cost.drop_high <= 5 else "undecided"
        )


def test_a_costly_head_that_gradients_rank_last_is_found_by_the_controls(monkeypatch):
    model, sequences = planted(), kinds(SHARES, 40)
    last = np.array([(change.layer, change.head) != NEEDED[1] for change in ALL], dtype=float)
    monkeypatch.setattr(module, "first_order_effects", lambda *args, **options: last)
    found = caller(model, sequences).calls("screened")
    assert found.table["call"].to_list()[ALL.index(HeadAblation(*NEEDED[1]))] == "costs"
    assert found.controls is None


def test_screening_leaves_out_heads_whose_effects_are_small(monkeypatch):
    monkeypatch.setattr(module, "CONTROLS", 3)
    model, sequences = planted(), kinds(SHARES, 200)
    found = caller(model, sequences).calls("screened")
    unmeasured = found.table["n"] == 0
    assert unmeasured.sum() == found.controls.left == 8 - 2 - 3
    assert set(found.table.filter(unmeasured)["call"]) == {"not measured"}
    assert found.table.filter(unmeasured)["drop"].null_count() == 3
    assert found.effects.argsort()[-2:].tolist() == [
        ALL.index(HeadAblation(*NEEDED[kind])) for kind in (2, 1)
    ]
    assert found.controls.n == 3


@pytest.mark.parametrize("method", METHODS)
def test_progress_only_grows_and_ends_with_all_heads(method):
    told = []
    caller(planted(), kinds(SHARES, 20), tokens=40, watch=told.append).calls(method)
    assert [at.done for at in told] == sorted(at.done for at in told)
    assert {at.total for at in told} == {8}
    assert told[-1].done == 8
    assert len({at.done for at in told}) > 2


@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_leaves_the_model_as_it_was(method):
    model, sequences = planted(), kinds(SHARES, 40)

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        caller(model, sequences, watch=stop).calls(method)
    assert not any("forward" in part.__dict__ for part in model.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("method", "size", "repeats"), [("adaptive", 300, 20), ("screened-adaptive", 150, 9)]
)
def test_simulated_calls_are_right(monkeypatch, method, size, repeats):
    """Whole sweeps with true drops from 0 to 90 points, the network replaced by its scores, in random order.

    Accuracies of a sequence are shares, as those of several tokens are.
    """
    model, drops, missed = planted(), np.array([0, 0, 0.01, 0.04, 0.06, 0.2, 0.5, 0.9]), 0
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        kept = 1 - rng.binomial(5, drops[:, None], (8, size)) / 5
        table = torch.from_numpy(np.stack([np.concatenate([np.ones((1, size)), kept])] * 2, -1))

        def look_up(subject, sequences, variants, table=table, **options):
            rows = [0, *(1 + ALL.index(variant[0]) for variant in variants[1:])]
            return table[rows][:, sequences.lengths]

        monkeypatch.setattr(module, "checkpoint_scores", look_up)
        ranks = rng.random(8)
        monkeypatch.setattr(module, "first_order_effects", lambda *args, ranks=ranks, **options: ranks)
        numbered = kinds((1.0, 0.0, 0.0), size)
        numbered.lengths.copy_(torch.arange(size))  # Stands for the sequence's number.
        found = Caller(CheckpointSubject.of(model), numbered, ALL, 5.0, FillSources()).calls(method).table
        true = 100 * (1 - kept.mean(1))
        inside = [
            row["low"] - 1e-9 <= drop <= row["high"] + 1e-9 and (row["call"] == "costs") == (drop > 5)
            for row, drop in zip(found.iter_rows(named=True), true, strict=True)
        ]
        missed += not all(inside)
    assert missed <= 0.05 * repeats
