"""Which examples each way to ablate a run takes, and what it finds on them."""

from dataclasses import replace

import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.engines.test_local import tiny

from spectrope.lab.ablation.heads import ablated
from spectrope.lab.ablation.interventions import HeadAblation
from spectrope.lab.ablation.methods import Adaptive, Cumulative, Exact, Screen, TrainedSubject
from spectrope.lab.ablation.screening import screen
from spectrope.lab.evaluation.score import correct, predict
from spectrope.lab.job import train
from spectrope.stats.sequential import TargetPrecision, Threshold
from spectrope.tasks.base import Batch

CPU = torch.device("cpu")
TO_THE_END = TargetPrecision(1e-6)  # Nothing less than every example decides.


@pytest.fixture(scope="module")
def subject(tmp_path_factory) -> TrainedSubject:
    """A model that has learnt enough for its heads to matter, with 70 training and 30 held-out examples."""
    base = tiny(epochs=8)
    training = replace(base.training, learning_rate=2e-2, precision="float32")
    one = replace(base, training=training, seed=3)
    found = TrainedSubject.of(train(one, tmp_path_factory.mktemp("runs"), CPU), CPU)
    of_training, held_out = one.task.build().split(70, 30, 3)
    assert torch.equal(found.train.inputs, of_training.inputs)
    assert torch.equal(found.held_out.inputs, held_out.inputs)
    return found


def accuracy(subject: TrainedSubject, data: Batch, *gone: HeadAblation) -> float:
    """In percent, with some heads silenced."""
    with ablated(subject.model, *gone):
        hits = correct(subject.model, data, predict(subject.model, data))
    return 100 * hits.double().mean().item()


def drops(subject: TrainedSubject, data: Batch) -> list[float]:
    """What each head costs by itself, layer by layer."""
    heads = [HeadAblation(layer, head) for layer in range(2) for head in range(2)]
    return [accuracy(subject, data) - accuracy(subject, data, head) for head in heads]


@pytest.fixture(scope="module")
def held_out_drops(subject) -> list[float]:
    """Drops on held-out examples, which are others on examples of training and on halves."""
    found = drops(subject, subject.held_out)
    for others in (subject.train, subject.held_out[:15], subject.held_out[15:]):
        assert drops(subject, others) != pytest.approx(found, abs=0.1)
    return found


def test_the_exact_sweep_is_over_held_out_examples(subject, held_out_drops):
    assert Exact().measure(subject)["ablation"]["drop"].to_list() == pytest.approx(held_out_drops)


def test_an_adaptive_sweep_to_the_end_is_the_exact_one(subject, held_out_drops):
    (table,) = Adaptive(aim=TO_THE_END).measure(subject).values()
    assert table["n"].to_list() == [30] * 4
    for column in ("drop", "drop_low", "drop_high"):
        assert table[column].to_list() == pytest.approx(held_out_drops)
    exact = Exact().measure(subject)["ablation"]
    assert_frame_equal(table.select("layer", "head"), exact.select("layer", "head"))


@pytest.mark.parametrize(
    ("aim", "name"),
    [
        (Threshold(0.05), "adaptive"),
        (Threshold(0.005), "adaptive-above-0.5"),
        (TargetPrecision(0.07), "adaptive-within-7"),
    ],
)
def test_the_table_of_an_adaptive_sweep_is_named_by_its_aim(subject, aim, name):
    assert [*Adaptive(aim=aim).measure(subject)] == [name]


def test_an_adaptive_sweep_may_take_more_examples_than_others_do(subject, monkeypatch):
    monkeypatch.setattr("spectrope.lab.ablation.methods.EXAMPLES", 10)
    (table,) = Adaptive(aim=TO_THE_END).measure(subject).values()
    assert table["n"].to_list() == [30] * 4


def test_heads_are_ordered_on_one_half_and_measured_on_the_other(subject):
    first, second = subject.held_out[:15], subject.held_out[15:]
    singles = drops(subject, first)
    assert sorted(singles) != sorted(drops(subject, second))
    table = Cumulative().measure(subject)["cumulative"]
    assert table["single"].to_list() == pytest.approx(sorted(singles, reverse=True))
    gone: list[HeadAblation] = []
    for step in table.rows(named=True):
        layer, head = step["layer"], step["head"]
        assert step["single"] == pytest.approx(singles[2 * layer + head])
        gone.append(HeadAblation(layer, head))
        left = accuracy(subject, second, *gone)
        assert 100 * step["accuracy"] == pytest.approx(left)
        assert step["drop"] == pytest.approx(accuracy(subject, second) - left)
    assert len(set(gone)) == 4


def test_halves_of_fewer_examples_are_of_the_first(subject):
    table = Cumulative(examples=9).measure(subject)["cumulative-9-examples"]
    assert table["single"].to_list() == pytest.approx(sorted(drops(subject, subject.held_out[:5]))[::-1])
    last = accuracy(subject, subject.held_out[5:9], *(HeadAblation(i, j) for i in (0, 1) for j in (0, 1)))
    assert 100 * table["accuracy"][-1] == pytest.approx(last)


@pytest.mark.parametrize("n", [30, 12])
def test_estimates_and_drops_of_a_screen_are_of_the_same_held_out_examples(subject, n):
    data, others = subject.held_out[:n], subject.train[:n]
    (table,) = Screen(examples=n).measure(subject).values()
    estimates = [screen(subject.model, one).loss_increase_estimate.ravel().tolist() for one in (data, others)]
    assert table["loss_increase_estimate"].to_list() == pytest.approx(estimates[0])
    assert estimates[0] != pytest.approx(estimates[1], rel=1e-3)
    assert table["drop"].to_list() == pytest.approx(drops(subject, data))
    assert drops(subject, data) != pytest.approx(drops(subject, others), abs=0.1)
    assert table.select("layer", "head").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
