"""Measurements on the way leave training as it is, and their tables survive a crash."""

import itertools
from dataclasses import replace

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.training.test_loop import CPU, run_at, tiny, weights
from tests.store.old import make_old

from spectrope.core.errors import ConfigError, Interrupted, UnsupportedError
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.job import train
from spectrope.lab.runs import build_model
from spectrope.lab.training.learning import LearningProbe
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.probe import Recorder
from spectrope.store import Run

TABLES = ("learning", "gradients", "participation")
OFTEN = LearningProbe(every=3, examples=4)  # at steps 0, 3, 6 and 9 of 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = run_at(tmp_path_factory.mktemp("whole"), tiny())
    Trainer(tiny(), run, CPU, OFTEN).fit()
    return run


def encoded(name):
    base = tiny()
    encoding = ENCODINGS.config(name)().fitted(**base.model.sizes)
    return replace(base, model=replace(base.model, encoding=encoding))


def test_weights_and_scores_are_the_same_bit_for_bit_and_so_is_the_folder(tmp_path, whole):
    plain = run_at(tmp_path, tiny())
    Trainer(tiny(), plain, CPU).fit()
    assert plain.id == whole.id
    assert_frame_equal(plain.frame("metrics"), whole.frame("metrics"))
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(plain)[name], tensor), name
    assert not any(plain.has_frame(name) for name in TABLES)


def test_every_step_that_is_due_has_its_rows_once(whole):
    keys = {
        "learning": ("layer", "head"),
        "gradients": ("layer", "head", "pair"),
        "participation": ("layer",),
    }
    sizes = {"learning": 4 * 4, "gradients": 4 * 4 * 8, "participation": 4 * 2}
    for name in TABLES:
        table = whole.frame(name)
        assert sorted(set(table["step"])) == [0, 3, 6, 9]
        assert table.height == sizes[name] == table.select("step", *keys[name]).n_unique()


def test_the_last_step_is_measured_where_it_is_due(tmp_path):
    run = run_at(tmp_path, tiny())
    Trainer(tiny(), run, CPU, LearningProbe(every=5, examples=4)).fit()
    assert sorted(set(run.frame("learning")["step"])) == [0, 5, 10]


@pytest.mark.sampled
@pytest.mark.parametrize("after", [1, 3, 4, 7])
def test_a_stopped_run_goes_on_with_its_tables(tmp_path, whole, after):
    run = run_at(tmp_path, tiny())
    asked = itertools.count(1)
    with pytest.raises(Interrupted):
        Trainer(tiny(), run, CPU, OFTEN).fit(stop=lambda: next(asked) == after)
    Trainer(tiny(), run, CPU, OFTEN).fit()
    assert_same(run, whole)


def test_a_stopped_run_whose_tables_count_from_one_goes_on_from_zero(tmp_path, whole):
    run = run_at(tmp_path, tiny())
    asked = itertools.count(1)
    with pytest.raises(Interrupted):
        Trainer(tiny(), run, CPU, OFTEN).fit(stop=lambda: next(asked) == 4)
    make_old(run)
    assert pl.read_parquet(run.path / "learning.parquet")["layer"].min() == 1
    Trainer(tiny(), run, CPU, OFTEN).fit()
    assert_same(run, whole)


@pytest.mark.parametrize("moment", [4, 5, 6])
def test_rows_behind_the_checkpoint_are_measured_anew(tmp_path, whole, monkeypatch, moment):
    """A crash between two tables of step 3, or after them, with the checkpoint of step 2."""
    run = run_at(tmp_path, tiny())
    asked, written, write = itertools.count(1), itertools.count(1), Run.write_frame
    with pytest.raises(Interrupted):
        Trainer(tiny(), run, CPU, OFTEN).fit(stop=lambda: next(asked) == 2)

    def failing(self, name, frame):
        write(self, name, frame)
        if next(written) == moment - 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "write_frame", failing)
    with pytest.raises(KeyboardInterrupt):
        Trainer(tiny(), run, CPU, OFTEN).fit()
    monkeypatch.undo()
    assert 3 in run.frame("learning")["step"]
    Trainer(tiny(), run, CPU, OFTEN).fit()
    assert_same(run, whole)


def assert_same(run, whole):
    for name in TABLES:
        assert_frame_equal(run.frame(name), whole.frame(name))
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(run)[name], tensor), name


def test_shares_add_up_and_agree_with_each_other(whole):
    heads = whole.frame("learning")
    sums = heads.group_by("step", "layer").agg(pl.col("gradient_share").sum())["gradient_share"]
    assert sums.to_list() == pytest.approx([1.0] * 8)
    gradients = whole.frame("gradients")
    assert gradients["share"].is_between(0, 1).all()
    sums = gradients.group_by("step", "layer", "pair").agg(pl.col("head_share").sum())["head_share"]
    assert sums.to_list() == pytest.approx([1.0] * 64)
    energies = gradients.group_by("step", "layer", "head", maintain_order=True).agg(pl.col("energy").sum())
    assert energies["energy"].to_list() == pytest.approx(heads["gradient_energy"].to_list())
    assert whole.frame("participation")["gradient"].is_between(0.5, 1).all()
    assert whole.frame("participation")["weight"].is_between(0.5, 1).all()
    assert (heads["tangent_trace"] / heads["tangent_plain_trace"]).to_list() == pytest.approx([1.0] * 16)


@pytest.mark.parametrize(("name", "defined"), [("nope", True), ("xpos", False)])
def test_encodings_without_a_steady_rotation(tmp_path, name, defined):
    one = encoded(name)
    run = run_at(tmp_path, one)
    Trainer(one, run, CPU, LearningProbe(every=10, examples=4)).fit()
    heads, gradients = run.frame("learning"), run.frame("gradients")
    assert (heads["gradient_energy"].null_count() == 0) == defined
    assert (run.frame("participation")["gradient"].null_count() == 0) == defined
    assert gradients["frequency"].to_list() == [0.0] * (8 if defined else 0)
    assert heads["positional_share"].is_between(0, 1).all()


def test_a_run_finished_without_it_is_refused(tmp_path, whole):
    train(tiny(), tmp_path, CPU)
    with pytest.raises(UnsupportedError, match=f"run {whole.id} is finished and was trained without this"):
        train(tiny(), tmp_path, CPU, probe=OFTEN)
    run = train(tiny(), tmp_path / "other", CPU, probe=OFTEN)
    assert train(tiny(), tmp_path / "other", CPU, probe=OFTEN).frame("learning").equals(run.frame("learning"))


@pytest.mark.parametrize("other", [replace(OFTEN, every=5), replace(OFTEN, examples=2)])
def test_a_run_with_other_settings_of_the_probe_is_refused(tmp_path, whole, other):
    run = train(tiny(), tmp_path, CPU, probe=OFTEN)
    with pytest.raises(UnsupportedError, match="with every=3, examples=4, and not with every=") as refusal:
        train(tiny(), tmp_path, CPU, probe=other)
    assert f"and not with every={other.every}, examples={other.examples}; use" in str(refusal.value)
    assert_same(run, whole)


def test_an_interrupted_run_is_not_resumed_with_other_settings(tmp_path):
    run = run_at(tmp_path, tiny())
    trainer = Trainer(tiny(), run, CPU, OFTEN)
    with pytest.raises(Interrupted):
        trainer.fit(stop=lambda: trainer.state.step >= 4)
    with pytest.raises(UnsupportedError, match="with every=3, examples=4, and not with every=5"):
        Trainer(tiny(), run, CPU, replace(OFTEN, every=5))
    Trainer(tiny(), run, CPU, OFTEN).fit()
    assert sorted(set(run.frame("learning")["step"])) == [0, 3, 6, 9]


def test_no_step_is_missing_from_a_probe_that_comes_or_goes(tmp_path):
    run, stop = run_at(tmp_path, tiny()), itertools.count(1)
    with pytest.raises(Interrupted):
        Trainer(tiny(), run, CPU).fit(stop=lambda: next(stop) == 4)
    with pytest.raises(UnsupportedError, match="was begun without this probe, and is at step"):
        Trainer(tiny(), run, CPU, OFTEN)
    other, stop = run_at(tmp_path / "other", tiny()), itertools.count(1)
    with pytest.raises(Interrupted):
        Trainer(tiny(), other, CPU, OFTEN).fit(stop=lambda: next(stop) == 4)
    with pytest.raises(UnsupportedError, match="was begun with a probe, which keeps table 'learning'"):
        Trainer(tiny(), other, CPU)


def test_what_a_probe_has_measured_before_the_first_checkpoint_is_not_kept_without_it(tmp_path):
    run = run_at(tmp_path, tiny())
    Recorder(OFTEN, run, Trainer(tiny(), run, CPU).train_data, 0).record(build_model(tiny(), CPU), 0)
    assert {*TABLES, "learning-settings"} <= set(run.frames)
    Trainer(tiny(), run, CPU).fit()
    assert not {*TABLES, "learning-settings"} & set(run.frames)


@pytest.mark.parametrize("field", ["every", "examples"])
def test_sizes_are_checked(field):
    with pytest.raises(ConfigError, match=f"LearningProbe.{field} must be at least 1; got 0"):
        LearningProbe(**{field: 0})
