"""Learning rates from a grid: on whose examples, the same for all, chosen by what, run once."""

import math
from dataclasses import replace

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from spectrope.core.config import config_hash, from_dict, to_dict
from spectrope.core.errors import StoreError
from spectrope.encodings.base import ENCODINGS
from spectrope.figures.names import name_runs
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job, train
from spectrope.lab.runs import experiment_of, run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.scales import experiment
from spectrope.lab.trials import FACTORS, Trial, Tuning, grid, trials_of, tuned
from spectrope.lab.tune import run_tuned, tune
from spectrope.store import find_runs


def tiny(encoding: str = "rope", seed: int = 0) -> Experiment:
    base = experiment("distance", encoding, epochs=1, n_examples=100, seed=seed)
    model = replace(base.model, d_model=16, n_heads=2, n_layers=1, d_ff=16)
    return replace(base, model=model, training=replace(base.training, batch_size=32))


def trial(rate: float, accuracy: float, loss: float = 1.0) -> Trial:
    return Trial(float(rate), accuracy, loss, 2.0, "0")


def test_rates_are_judged_on_training_examples_that_trials_do_not_train_on():
    one = tiny()
    data, held_out = one.task.build().split(one.n_train, one.n_test, one.seed)
    for part in grid(one):
        fitted, judged = part.task.build().split(part.n_train, part.n_test, part.seed)
        assert (part.n_train, part.n_test) == (56, 14)
        assert torch.equal(torch.cat([fitted.inputs, judged.inputs]), data.inputs)
        assert not any(torch.equal(row, other) for row in judged.inputs for other in held_out.inputs)


def test_every_encoding_gets_the_same_grid_in_its_first_seed_alone():
    plan, each = [tiny("rope"), tiny("nope"), tiny("rope", seed=1)], len(FACTORS)
    trials = trials_of(plan)
    assert [(t.encoding_name, t.seed) for t in trials] == [("rope", 0)] * each + [("nope", 0)] * each
    rates = [t.training.learning_rate / plan[0].training.learning_rate for t in trials]
    assert rates == pytest.approx(FACTORS * 2)
    assert grid(plan[0], (2.0, 1.0, 2.0)) == grid(plan[0], (1.0, 2.0))


@pytest.mark.parametrize(
    ("trials", "rate", "at_edge"),
    [
        ((trial(1, 0.2), trial(2, 0.5), trial(3, 0.4)), 2, False),
        ((trial(1, 0.5, 3.0), trial(2, 0.5, 2.0), trial(3, 0.5, 2.5)), 2, False),
        ((trial(1, 0.5, 3.0), trial(2, 0.5, float("nan"))), 1, True),
        ((trial(1, 0.1), trial(2, 0.2), trial(3, 0.3)), 3, True),
    ],
)
def test_accuracy_decides_and_loss_between_equals(trials, rate, at_edge):
    found = Tuning(tiny(), trials)
    assert (found.chosen.rate, found.at_edge, found.seconds) == (rate, at_edge, 2.0 * len(trials))
    assert found.table().filter("chosen")["rate"].to_list() == [rate]


def test_a_rate_that_diverged_is_never_chosen(tmp_path, monkeypatch):
    manifest = Trainer.manifest

    def diverging(trainer):
        loss = math.nan if trainer.config.learning_rate > tiny().training.learning_rate else 1.0
        return manifest(trainer) | {"test_accuracy": 0.5, "test_loss": loss}

    monkeypatch.setattr(Trainer, "manifest", diverging)
    (found,) = tune([tiny()], tmp_path, device="cpu")
    assert math.isnan(found.trials[-1].loss)
    assert found.chosen is found.trials[0]
    assert found.table()["chosen"].to_list() == [True, *[False] * (len(FACTORS) - 1)]


def test_a_tuned_experiment_has_another_name_and_untuned_ones_keep_theirs():
    one = tiny()
    found = Tuning(one, (trial(one.training.learning_rate, 0.5),))
    other = tuned(one, [found])
    assert replace(other, tuning="none") == one
    assert "tuning" not in to_dict(one)
    assert config_hash(other) != config_hash(one)
    assert from_dict(Experiment, to_dict(other)) == other


def test_tuning_runs_are_ordinary_runs_and_nothing_runs_twice(tmp_path):
    plan = [tiny("rope"), tiny("nope"), tiny("rope", seed=1)]
    stages = []
    tunings = tune(
        plan, tmp_path, device="cpu", watch=lambda progress: stages.append((progress.job, progress.stage))
    )
    assert {number for number, stage in stages if stage == "done"} == set(range(2 * len(FACTORS)))
    assert {experiment_of(run) for run in find_runs(tmp_path)} == set(trials_of(plan))
    assert [(t.task, t.encoding, len(t.trials)) for t in tunings] == [
        ("distance", "rope", len(FACTORS)),
        ("distance", "nope", len(FACTORS)),
    ]
    for found in tunings:
        for one in found.trials:
            assert (
                one.accuracy
                == next(r for r in find_runs(tmp_path) if r.id == one.run).manifest["test_accuracy"]
            )
    again = []
    assert tune(plan, tmp_path, device="cpu", watch=lambda progress: again.append(progress.stage)) == tunings
    assert set(again) == {"done"}


def test_two_configurations_of_one_encoding_have_grids_of_their_own(tmp_path):
    base = tiny("rope")
    halves = replace(base.model.encoding, pairs="halves")
    other = replace(base, model=replace(base.model, encoding=halves))
    plan = [base, other, replace(base, seed=1)]
    tunings = tune(plan, tmp_path, factors=(1.0,), device="cpu")
    assert [one.of for one in tunings] == [base, other]
    rates = [replace(one, trials=(trial(rate, 0.5),)) for one, rate in zip(tunings, (0.5, 0.25), strict=True)]
    assert [tuned(one, rates).training.learning_rate for one in plan] == [0.5, 0.25, 0.5]


def test_a_run_that_has_the_chosen_rate_is_copied_and_others_are_trained(tmp_path):
    plan = [tiny("rope"), tiny("nope")]
    own = plan[0].training.learning_rate
    tunings = [
        Tuning(plan[0], (trial(own, 0.5),)),
        Tuning(plan[1], (trial(own, 0.1), trial(3 * own, 0.5))),
    ]
    untuned = execute(plan, tmp_path, device="cpu")
    stages = {0: set(), 1: set()}

    def watch(progress):
        stages[progress.job].add(progress.stage)

    same, other = run_tuned(plan, tunings, tmp_path, untuned=untuned, device="cpu", watch=watch)
    assert stages == {0: {"done"}, 1: {"train", "ablate", "done"}}
    assert same.manifest == {**untuned[0].manifest, "run": same.id, "copied_from": untuned[0].id}
    for name in ("metrics", "ablation", "deposit"):
        assert_frame_equal(same.frame(name), untuned[0].frame(name))
    alone = run_tuned(plan[:1], tunings, tmp_path / "elsewhere", device="cpu")[0]
    assert_frame_equal(alone.frame("metrics"), same.frame("metrics"))  # a copy is what training would give
    assert experiment_of(other).training.learning_rate == 3 * own
    assert other.frame("tuning")["chosen"].to_list() == [False, True]
    assert len(find_runs(tmp_path)) == 4


def test_an_unfinished_run_is_not_copied(tmp_path):
    one = tiny()
    unfinished = run_for(one, tmp_path)
    with pytest.raises(StoreError, match="is unfinished; the command that started it resumes it"):
        run_for(replace(one, tuning="chosen"), tmp_path).take_over(unfinished)
    assert (
        train(one, tmp_path, torch.device("cpu"))
        .frame("metrics")
        .equals(train(replace(one, tuning="chosen"), tmp_path, torch.device("cpu")).frame("metrics"))
    )
    assert Job(one, tables=()).is_done(unfinished)
    assert isinstance(unfinished.frame("metrics"), pl.DataFrame)


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_seeds_of_any_encoding_share_one_grid_and_one_name(encoding):
    plan = [experiment("distance", encoding, seed=seed) for seed in range(3)]
    assert len(trials_of(plan, (1.0, 2.0))) == 2
    assert {name for _, name in name_runs([to_dict(one) for one in plan])} == {encoding}
