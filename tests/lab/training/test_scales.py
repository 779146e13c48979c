"""Experiments by name: those of the paper's tasks never change, and any other task has one at every scale."""

from dataclasses import dataclass

import pytest

from spectrope.core.errors import ConfigError, UnknownNameError
from spectrope.encodings import (
    ENCODINGS,
    NAMED,
    POSITIONS,
    SCHEDULES,
    Proportional,
    RandomSubset,
    Shifted,
    parse_encoding,
)
from spectrope.lab.training.scales import SCALES, experiment
from spectrope.study.rows import run_name
from spectrope.tasks.base import TASKS, Size, Task, TaskConfig

IDS = {  # Of RoPE, seed 3: controlled, described, released.
    ("distance", "mini"): ("f8909c452778", "be8a2c96c761", "38313dad1a92"),
    ("distance", "small"): ("7bbfac136262", "eabae80021eb", "278ecf5aefd8"),
    ("distance", "paper"): ("e2ab1da6eb68", "32b69c33aa67", "ed809f9c0044"),
    ("counting", "mini"): ("627f3be611e9", "b105f179d6b1", "91340d9c9a99"),
    ("counting", "small"): ("7708ff920963", "8fdaac886728", "ee1928e822ee"),
    ("counting", "paper"): ("fa3ab3bec10b", "613156147e23", "0a78c311f1f3"),
    ("addition", "mini"): ("fa9de0cde341", "da4af628a317", "ca426fee8eac"),
    ("addition", "small"): ("e491e2a8d8ca", "81e7af89159c", "e62ddb797f6b"),
    ("addition", "paper"): ("adca59adc1e6", "238718dc0837", "5016130ebb2b"),
}


@pytest.mark.parametrize(("task", "scale"), IDS)
def test_experiments_keep_their_runs(task, scale):
    conditions = ("controlled", "described", "released")
    found = [run_name(experiment(task, "rope", scale=scale, condition=c, seed=3)) for c in conditions]
    assert tuple(found) == IDS[task, scale]


@pytest.mark.parametrize("scale", list(SCALES))
def test_every_registered_task_has_an_experiment_at_every_scale(scale):
    assert list(SCALES[scale]) == list(TASKS)
    assert len(SCALES[scale]) == len(TASKS)
    for task in TASKS:
        assert experiment(task, "rope", scale=scale).task.kind == task


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    words: int = 9


class Words(Task):
    """As many classes as words."""

    n_classes = property(lambda self: self.config.words)
    vocabulary = property(lambda self: self.config.words + 1)
    max_length = property(lambda self: 5)


def registered(monkeypatch, **sizes):
    """A task that declares these sizes, for the time of a test."""
    monkeypatch.setattr(TASKS, "_members", {name: TASKS[name] for name in TASKS})
    return type("Mine", (Words,), {"Config": Config, "sizes": sizes}, name="mine")


def test_a_task_that_declares_nothing_takes_the_defaults(monkeypatch):
    registered(monkeypatch)
    for name, scale in SCALES.items():
        one, other = experiment("mine", "rope", scale=name), experiment("distance", "rope", scale=name)
        assert (one.task.words, one.model.vocabulary, one.model.n_labels, one.model.max_length) == (
            9,
            10,
            9,
            5,
        )
        assert one.training == other.training
        assert one.n_train + one.n_test == scale["mine"].n_examples == scale["distance"].n_examples
        assert one.model.pooling == "mean"


def test_a_task_declares_its_sizes_by_scale(monkeypatch):
    registered(
        monkeypatch, mini=Size(config=Config(words=4), epochs=7), paper=Size(n_examples=50, pooling="last")
    )
    mini, small, paper = (experiment("mine", "rope", scale=scale) for scale in ("mini", "small", "paper"))
    assert [one.task.words for one in (mini, small, paper)] == [4, 9, 9]
    assert (mini.training.epochs, small.training.epochs, paper.training.epochs) == (7, 20, 100)
    assert (paper.n_train, paper.n_test) == (35, 15)
    assert [one.model.pooling for one in (mini, small, paper)] == ["mean", "mean", "last"]


def test_a_scale_that_is_none_is_refused(monkeypatch):
    registered(monkeypatch, mnii=Size(epochs=2))
    with pytest.raises(UnknownNameError, match="unknown scale 'mnii'; did you mean mini"):
        experiment("mine", "rope")


def test_a_task_without_a_configuration_of_its_own_is_refused():
    with pytest.raises(TypeError, match="Mine needs a Config of its own to be registered"):
        type("Mine", (Words,), {}, name="mine")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("distanc", "rope"), "unknown task 'distanc'; did you mean distance"),
        (("distance", "rpe"), "unknown encoding 'rpe'; did you mean rope"),
        (("none.py:Mine", "rope"), r"none\.py is not a file"),
        (("distance", "none.py:Mine"), r"none\.py is not a file"),
        (("distance", "mla+none.py:Mine"), r"none\.py is not a file"),
    ],
)
def test_other_names_are_refused(names, told):
    with pytest.raises(ConfigError, match=told):
        experiment(*names)


def test_a_name_may_ask_for_a_position_rule():
    one = experiment("distance", "rope@random_subset,longest=64")
    assert one.model.positions == RandomSubset(longest=64)
    assert (one.model.encoding.kind, one.encoding_name) == ("rope", "rope@random_subset,longest=64")
    latent = experiment("distance", "mla+alibi@shifted,max_shift=3")
    assert (latent.model.attention.kind, latent.model.encoding.kind) == ("mla", "alibi")
    assert latent.model.positions == Shifted(max_shift=3)
    with pytest.raises(UnknownNameError, match="unknown positions 'shiftd'; did you mean shifted"):
        experiment("distance", "rope@shiftd")
    with pytest.raises(ConfigError, match="'longest' is no setting; write it as field=value"):
        experiment("distance", "rope@random_subset,longest")


def test_combinations_have_names_of_their_own():
    shape = experiment("distance", "shape")
    assert (shape.encoding_name, shape.label) == ("shape", "distance/shape/seed 0")
    assert (shape.model.encoding.kind, shape.model.positions) == ("sinusoidal", Shifted())
    assert experiment("distance", "randomised").model.positions == RandomSubset()
    assert experiment("distance", "p_rope").model.encoding.schedule == Proportional()
    assert parse_encoding("p_rope").schedule == Proportional()
    with pytest.raises(ConfigError, match="'sinusoidal@shifted' names a position rule"):
        parse_encoding("shape")
    assert not set(NAMED) & {*ENCODINGS, *POSITIONS, *SCHEDULES}


@pytest.mark.parametrize("condition", ["controlled", "described", "released"])
def test_latent_attention_takes_the_batch_of_table_4_at_the_scale_of_the_paper(condition):
    sizes = {
        (scale, name): experiment("counting", name, scale=scale, condition=condition).training.batch_size
        for scale in ("mini", "paper")
        for name in ("mla", "mla+alibi", "rope")
    }
    assert sizes["paper", "mla"] == sizes["paper", "mla+alibi"] == 1024
    assert sizes["paper", "rope"] == 512
    assert sizes["mini", "mla"] == sizes["mini", "rope"]
