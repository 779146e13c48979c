"""Two checkpoints are kept; training goes on from the last good one, and a damaged one is moved aside."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.training.test_loop import CPU, run_at, tiny, weights

from spectrope.core.errors import Interrupted, SpectropeWarning, StoreError
from spectrope.lab.training import state as sitting
from spectrope.lab.training.loop import Trainer
from spectrope.lab.training.state import CHECKPOINTS
from spectrope.store import Run

Damage = Callable[[dict[str, torch.Tensor], dict[str, object]], object]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Run:
    run = run_at(tmp_path_factory.mktemp("whole"), tiny())
    Trainer(tiny(), run, CPU).fit()
    return run


@pytest.fixture
def stopped(tmp_path, monkeypatch) -> Run:
    """A run that was stopped after its fifth step; its checkpoints are of steps 5 and 4."""
    run, asked = run_at(tmp_path, tiny()), itertools.count(1)
    monkeypatch.setattr(sitting, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with pytest.raises(Interrupted):
        Trainer(tiny(), run, CPU).fit(stop=lambda: next(asked) == 5)
    return run


def assert_ends_like(run: Run, whole: Run) -> None:
    Trainer(tiny(), run, CPU).fit()
    assert_frame_equal(run.frame("metrics"), whole.frame("metrics"))
    assert all(torch.equal(weights(run)[name], tensor) for name, tensor in weights(whole).items())


def files(run: Run) -> list[Path]:
    """Its checkpoint files, the newest first."""
    steps = {name: json.loads(run.read_tensors(name)[1]["progress"])["step"] for name in CHECKPOINTS}
    return [run.path / f"{name}.safetensors" for name in sorted(steps, key=lambda name: -steps[name])]


def test_each_checkpoint_takes_the_place_of_the_older(stopped, whole):
    newest, older = files(stopped)
    assert (newest.stem, older.stem) == (CHECKPOINTS[0], CHECKPOINTS[1])
    trainer = Trainer(tiny(), stopped, CPU)
    assert trainer.state.step == 5
    before = newest.read_bytes()
    trainer.state.save(stopped)
    assert newest.read_bytes() == before
    assert files(stopped)[0] in (newest, older)
    assert_ends_like(stopped, whole)


def test_a_bit_that_turns_costs_the_steps_since_the_checkpoint_before(stopped, whole):
    newest, _ = files(stopped)
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    told = (
        rf"run {stopped.id}: a damaged checkpoint is now .*\.damaged/{stopped.id}-checkpoint\.safetensors; "
    )
    with pytest.warns(SpectropeWarning, match=told + r"training goes on from step 4\. \(.*does not match"):
        assert Trainer(tiny(), stopped, CPU).state.step == 4
    moved = stopped.path.parent / ".damaged" / f"{stopped.id}-checkpoint.safetensors"
    assert moved.read_bytes() == content
    assert not newest.exists()
    assert_ends_like(stopped, whole)


def test_without_a_good_one_training_starts_again(stopped, whole):
    for path in files(stopped):
        path.write_bytes(b"no tensors")
    with pytest.warns(SpectropeWarning, match="training goes on from step 0") as warned:
        assert_ends_like(stopped, whole)
    assert len(warned) == 2


def renamed(tensors: dict[str, torch.Tensor], old: str, new: str) -> None:
    for name in [name for name in tensors if name.startswith(old)]:
        tensors[name.replace(old, new)] = tensors.pop(name)


DAMAGES: dict[str, Damage] = {
    "no progress": lambda tensors, progress: progress.clear(),
    "a missing step": lambda tensors, progress: progress.pop("step"),
    "a step of null": lambda tensors, progress: progress.update(step=None),
    "a step of text": lambda tensors, progress: progress.update(step="5"),
    "a step that is true": lambda tensors, progress: progress.update(step=True),
    "a negative step": lambda tensors, progress: progress.update(step=-1, rows=[]),
    "a step before the scores": lambda tensors, progress: progress.update(step=2),
    "no time": lambda tensors, progress: progress.update(seconds=math.nan),
    "an unknown precision": lambda tensors, progress: progress.update(dtype="int8"),
    "an unknown field": lambda tensors, progress: progress.update(more=1),
    "scores of another kind": lambda tensors, progress: progress.update(rows=[{"epoch": 1}]),
    "scores that are none": lambda tensors, progress: progress.update(rows=7),
    "renamed weights": lambda tensors, progress: renamed(tensors, "model.", "models."),
    "renamed moments": lambda tensors, progress: renamed(tensors, "adam.0.exp_avg", "adam.0.mean"),
    "moments without a number": lambda tensors, progress: renamed(tensors, "adam.0.", "adam."),
    "moments of another shape": lambda tensors, progress: tensors.update({"adam.0.exp_avg": torch.ones(3)}),
    "a lost moment": lambda tensors, progress: tensors.pop("adam.1.step"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_checkpoint_of_another_form_is_moved_aside(stopped, damage):
    newest, _ = files(stopped)
    tensors, metadata = stopped.read_tensors(newest.stem)
    progress = json.loads(metadata["progress"])
    damage(tensors, progress)
    stopped.write_tensors(newest.stem, tensors, {"progress": json.dumps(progress)} if progress else {})
    with pytest.warns(SpectropeWarning, match=r"training goes on from step 4\. \("):
        assert Trainer(tiny(), stopped, CPU).state.step == 4


def test_a_run_whose_loss_is_no_number_goes_on(stopped):
    newest, _ = files(stopped)
    tensors, metadata = stopped.read_tensors(newest.stem)
    progress = json.loads(metadata["progress"])
    progress["rows"][0]["loss"] = math.nan
    stopped.write_tensors(newest.stem, tensors, {"progress": json.dumps(progress)})
    assert Trainer(tiny(), stopped, CPU).state.step == 5


def test_a_checkpoint_of_an_earlier_version_is_read(stopped):
    newest, older = files(stopped)
    older.unlink()
    tensors, metadata = stopped.read_tensors(newest.stem)
    progress = {key: json.loads(metadata["progress"])[key] for key in ("step", "seconds", "rows")}
    stopped.write_tensors(newest.stem, tensors, {"progress": json.dumps(progress)})
    assert Trainer(tiny(), stopped, CPU).state.step == 5


def test_a_checkpoint_that_cannot_be_read_now_stays_where_it_is(stopped, monkeypatch):
    newest, _ = files(stopped)
    read = Path.open

    def fails(path, *arguments, **options):
        if path == newest:
            raise OSError(5, "Input/output error")
        return read(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", fails)
        with pytest.raises(StoreError, match=r"cannot read .*checkpoint\.safetensors: Input/output error"):
            Trainer(tiny(), stopped, CPU)
    assert Trainer(tiny(), stopped, CPU).state.step == 5


def test_a_parameter_without_a_gradient_has_no_moments(stopped):
    newest, _ = files(stopped)
    tensors, metadata = stopped.read_tensors(newest.stem)
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith("adam.1.")}
    assert len(kept) == len(tensors) - 3
    stopped.write_tensors(newest.stem, kept, metadata)
    assert Trainer(tiny(), stopped, CPU).state.step == 5
