"""Training on repeated tokens: results, interruption, and rows of the study."""

import dataclasses

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal

from spectrope.checkpoints import RepeatedTokens
from spectrope.checkpoints.repeated.groups import INDUCTION, PREVIOUS
from spectrope.checkpoints.repeated.trainer import CHOOSING, SCORING, repeats, token_scores, untrained_model
from spectrope.core import ConfigError, Interrupted, UnsupportedError
from spectrope.lab import LearningProbe, read_experiment, run_for, train, written
from spectrope.lab.experiments import laboratory_of
from spectrope.lab.job import Job, complete
from spectrope.study.rows import StudyRow

CPU = torch.device("cpu")
SMALL = RepeatedTokens(
    n_layers=2,
    n_heads=2,
    d_model=32,
    feed_forward=32,
    vocabulary=12,
    length=16,
    batch_size=8,
    steps=6,
    evaluate_every=2,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return complete(Job(SMALL, ()), tmp_path_factory.mktemp("runs"), CPU)


def test_a_finished_run_is_a_row_with_both_groups(finished):
    row = StudyRow.read(StudyRow.of(finished).record())
    assert row.experiment == SMALL
    assert read_experiment(written(SMALL)) == SMALL
    assert set(row.tables) == {"metrics", "atlas-heads", "head-groups"}
    assert row.tables["metrics"]["step"].to_list() == [2, 4, 6]
    assert row.tables["atlas-heads"].columns == ["layer", "head", "reach", "previous", "induction"]
    groups = row.tables["head-groups"]
    assert groups["group"].to_list() == [PREVIOUS] * 10 + [INDUCTION] * 10


def test_scores_are_those_of_the_stored_weights_on_new_sequences(finished):
    model = untrained_model(SMALL)
    model.load_state_dict(finished.read_tensors("weights")[0])
    data = repeats(SMALL, 512, SCORING)
    loss, accuracy = token_scores(model.eval(), data)
    assert finished.manifest["test_loss"] == pytest.approx(loss, rel=1e-5)
    assert finished.manifest["test_accuracy"] == pytest.approx(accuracy, rel=1e-5)
    (place,) = (data.scored[0] & (torch.arange(16) == 14)).nonzero()
    assert data.targets[0, place] == data.ids[0, place + 1]


def test_no_sequence_serves_two_purposes_and_every_seed_has_its_own():
    other = dataclasses.replace(SMALL, seed=1)
    streams = [(SMALL, 0), (SMALL, 1), (SMALL, CHOOSING), (SMALL, SCORING), (other, 0), (other, 1)]
    drawn = [tuple(repeats(one, 8, stream).ids.flatten().tolist()) for one, stream in streams]
    assert len(set(drawn)) == len(drawn)
    first, second = (untrained_model(one).state_dict()["lm_head.weight"] for one in (SMALL, other))
    assert not torch.equal(first, second)


def test_a_resumed_run_ends_like_one_that_was_not_interrupted(finished, tmp_path):
    seen = iter(range(100))
    with pytest.raises(Interrupted, match="stopped at step 3 of at most 6"):
        train(SMALL, tmp_path, CPU, stop=lambda: next(seen) == 2)
    assert not run_for(SMALL, tmp_path).finished
    resumed = train(SMALL, tmp_path, CPU)
    for name in ("metrics", "head-groups"):
        assert_frame_equal(resumed.frame(name), finished.frame(name))


def test_training_stops_once_it_is_good_enough(tmp_path):
    run = train(dataclasses.replace(SMALL, enough=1e-9), tmp_path, CPU)
    assert run.manifest["steps"] == 2
    assert isinstance(run.frame("metrics"), pl.DataFrame)


def test_the_laboratory_estimates_time_and_refuses_probes(tmp_path):
    laboratory = laboratory_of(SMALL)
    assert laboratory.time(SMALL, CPU, "float32").training > 0
    weights = 2 * (4 * 32**2 + 3 * 32 * 32) + 12 * 32
    assert laboratory.operations(SMALL) == 6 * weights * 6 * 8 * 16
    with pytest.raises(UnsupportedError, match="measures itself"):
        train(SMALL, tmp_path, CPU, probe=LearningProbe())
    with pytest.raises(UnsupportedError, match="measures itself while it trains"):
        Job(SMALL, ("ablation",))


def test_divergence_is_told(tmp_path):
    with pytest.raises(ConfigError, match="training has diverged at step"):
        train(dataclasses.replace(SMALL, learning_rate=1e30, warmup=0), tmp_path, CPU)


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("d_model", 30, "a multiple of twice n_heads"),
        ("base", 1.0, "above 1 and finite"),
        ("length", 7, "at least 8"),
        ("enough", 0.0, "a share in"),
        ("learning_rate", 0.0, "positive and finite"),
    ],
)
def test_impossible_fields(field, value, rule):
    with pytest.raises(ConfigError, match=rule):
        dataclasses.replace(SMALL, **{field: value})
