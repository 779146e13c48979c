"""Full-batch training: right, resumable bit for bit, and stopped by a stated rule."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from polars.testing import assert_frame_equal
from tests.lab.training.killed import kill
from torch.testing import assert_close

from spectrope.core.config import from_dict, to_dict
from spectrope.core.errors import ConfigError, Interrupted, SpectropeWarning
from spectrope.encodings.cope import CoPE
from spectrope.encodings.rope import RoPE
from spectrope.grokking.config import GrokExperiment, Grokked, GrokTraining
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.models.transformer import ModularTransformer
from spectrope.grokking.record import MOST_MOMENTS, Evaluation, moments, stable_steps, with_moment
from spectrope.grokking.steps import PROGRESS
from spectrope.grokking.tasks.distributions import Square
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.grokking.trainer import MOMENTS, PAIRS, GrokTrainer
from spectrope.lab.engines.local import execute
from spectrope.lab.experiments import read_experiment
from spectrope.lab.job import Job, complete
from spectrope.lab.job import train as grok
from spectrope.lab.training import state as sitting
from spectrope.lab.training.state import CHECKPOINT, CHECKPOINTS, WEIGHTS
from spectrope.store import Run, open_run

CPU = torch.device("cpu")
SMALL = ModularTransformer.Config(d_model=16, n_heads=2, head_dim=8, d_mlp=16)


def tiny(seed: int = 0, **changes: object) -> GrokExperiment:
    training = replace(GrokTraining(steps=12, evaluate_every=5, dtype="float64"), **changes)
    task = ModularConfig(p=11, fraction=0.6)
    return GrokExperiment(task=task, model=SMALL, training=training, seed=seed)


def trainer_at(root: Path, one: GrokExperiment) -> GrokTrainer:
    return GrokTrainer(one, open_run(root, to_dict(one), 1), CPU)


def assert_same(run: Run, other: Run) -> None:
    for table in (PROGRESS, PAIRS):
        assert_frame_equal(run.frame(table), other.frame(table))
    for tensors in (MOMENTS, WEIGHTS):
        mine, theirs = run.read_tensors(tensors)[0], other.read_tensors(tensors)[0]
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    return grok(tiny(), tmp_path / "whole", CPU)


@pytest.mark.parametrize("after", [1, 5, 7, 11])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, whole, after):
    asked = itertools.count(1)
    with pytest.raises(Interrupted, match=rf"stopped at step {after} of at most 12, saved in .*{whole.id}"):
        grok(tiny(), tmp_path, CPU, stop=lambda: next(asked) == after)
    assert_same(grok(tiny(), tmp_path, CPU), whole)


@pytest.mark.parametrize(
    "model",
    [
        replace(SMALL, n_layers=2),
        replace(SMALL, encoding=RoPE.Config()),
        replace(SMALL, encoding=CoPE.Config()),
        ModularMLP.Config(d_model=8, hidden=16, embedding="one_hot"),
    ],
)
def test_every_kind_of_model_goes_on_bit_for_bit_in_the_usual_precision(tmp_path, model):
    one = replace(tiny(dtype="float32"), model=model)
    asked = itertools.count(1)
    with pytest.raises(Interrupted):
        grok(one, tmp_path, CPU, stop=lambda: next(asked) == 7)
    assert_same(grok(one, tmp_path, CPU), grok(one, tmp_path / "whole", CPU))


def train_at(root: Path) -> None:
    grok(tiny(), root, CPU)


@pytest.mark.sampled("kill")
def test_killed_while_writing_a_checkpoint_it_goes_on_bit_for_bit(tmp_path, whole):
    roots = {moment: tmp_path / str(moment) for moment in (1, 4)}
    kill("tests.grokking.test_training", roots)
    for moment, root in roots.items():
        run = Run(root / whole.id)
        assert run.has_tensors(CHECKPOINT) == run.has_frame(PROGRESS) == (moment > 1)
        assert_same(grok(tiny(), root, CPU), whole)
        assert not run.has_tensors(CHECKPOINT)


def test_the_table_of_evaluations_goes_back_with_a_damaged_checkpoint(tmp_path, whole, monkeypatch):
    monkeypatch.setattr(sitting, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    asked = itertools.count(1)
    with pytest.raises(Interrupted):
        grok(tiny(), tmp_path, CPU, stop=lambda: next(asked) == 10)
    run, seen = Run(tmp_path / whole.id), []
    assert run.frame(PROGRESS)["step"].to_list() == [0, 5, 10]
    newest = max(CHECKPOINTS, key=lambda name: json.loads(run.read_tensors(name)[1]["progress"])["step"])
    (run.path / f"{newest}.safetensors").write_bytes(b"no tensors")
    with pytest.warns(SpectropeWarning, match="training goes on from step 9"):
        grok(tiny(), tmp_path, CPU, lambda progress: seen.append(run.frame(PROGRESS)["step"].to_list()))
    assert seen[0] == [0, 5]
    assert_same(run, whole)


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_steps_are_those_of_a_plain_loop(tmp_path, loss):
    ours = trainer_at(tmp_path, tiny(loss=loss, warmup=3))
    model = ours.experiment.model.build(ours.experiment.task, 0).double()
    adam = torch.optim.AdamW(model.parameters(), weight_decay=1.0, betas=(0.9, 0.98), fused=False)
    train = ours.split.train
    for step in range(4):
        logits = model(train.a, train.b)
        wrong = F.mse_loss(logits, F.one_hot(train.labels, 11).double())
        adam.param_groups[0]["lr"] = 1e-3 * min(1, (step + 1) / 3)
        adam.zero_grad()
        (wrong if loss == "mse" else F.cross_entropy(logits, train.labels)).backward()
        adam.step()
        ours.step()
    for name, parameter in ours.state.model.named_parameters():
        assert_close(parameter, model.get_parameter(name), rtol=1e-9, atol=1e-12, msg=name)


def test_evaluations_are_those_of_the_model_at_their_step(whole):
    progress = whole.frame(PROGRESS)
    assert progress["step"].to_list() == [0, 5, 10, 12]
    trained = tiny().model.build(tiny().task, 0).double()
    trained.load_state_dict(whole.read_tensors(WEIGHTS)[0])
    split = tiny().task.build().split(0)
    for part, pairs in (("train", split.train), ("test", split.test)):
        logits = trained(pairs.a, pairs.b)
        assert progress[f"{part}_loss"][-1] == pytest.approx(F.cross_entropy(logits, pairs.labels).item())
        accuracy = (logits.argmax(1) == pairs.labels).double().mean().item()
        assert progress[f"{part}_accuracy"][-1] == pytest.approx(accuracy)
    assert progress["held_out_loss"].null_count() == 4


def test_a_run_keeps_every_pair_with_its_answer_and_embeddings_of_some_moments(whole):
    pairs, kept = whole.frame(PAIRS), whole.read_tensors(MOMENTS)[0]
    split = tiny().task.build().split(0)
    assert pairs["trains"].to_list() == split.trains.tolist()
    assert (pairs["label"] == (pairs["a"] + pairs["b"]) % 11).all()
    assert moments(kept) == [0, 5, 10, 12]
    right = (pairs["answer"] == pairs["label"]).to_list()
    assert kept["12.right"].tolist() == right
    weights = whole.read_tensors(WEIGHTS)[0]
    assert_close(kept["12.of_a"], weights["tokens"][:11].float())


def test_what_a_distribution_holds_out_is_scored_by_itself(tmp_path):
    one = tiny(steps=1)
    one = replace(one, task=replace(one.task, distribution=Square(k=4)))
    last = grok(one, tmp_path, CPU).frame(PROGRESS)[-1]
    ours = trainer_at(tmp_path / "again", one)
    ours.step()
    held = ours.split.pairs[ours.split.held_out]
    assert len(held) == 25
    expected = F.cross_entropy(ours.state.model(held.a, held.b), held.labels).item()
    assert last["held_out_loss"].item() == pytest.approx(expected)


def test_it_groks_and_stops_once_that_is_stable(tmp_path):
    # Squared error on a perceptron: the quickest of all to generalise at this size.
    task = ModularConfig(p=11, fraction=0.8)
    model = ModularMLP.Config(d_model=32, hidden=64)
    training = GrokTraining(
        steps=3000,
        evaluate_every=25,
        learning_rate=1e-2,
        weight_decay=1.0,
        stop=Grokked(accuracy=0.9, steps=50),
    )
    run = grok(GrokExperiment(task=task, model=model, training=training), tmp_path, CPU)
    progress = run.frame(PROGRESS)
    assert run.manifest["steps"] == progress["step"][-1] < 3000
    assert run.manifest["grokked_at"] == run.manifest["steps"] - 50
    assert (progress["test_accuracy"][-3:] >= 0.9).all()
    assert progress["test_accuracy"][-4] < 0.9
    assert progress["test_accuracy"][0] < 0.4


def test_without_a_rule_the_whole_budget_is_spent(tmp_path):
    run = grok(tiny(stop=None), tmp_path, CPU)
    assert run.manifest["steps"] == 12
    assert run.manifest["grokked_at"] is None
    assert set(run.manifest["columns"]) | {"step"} == set(run.frame(PROGRESS).columns)


def rows(*accuracies: float) -> list[Evaluation]:
    return [Evaluation(10 * i, {"test_accuracy": value}) for i, value in enumerate(accuracies)]


def test_stability_counts_from_the_last_evaluation_below():
    assert stable_steps(rows(1.0, 0.5, 0.9, 1.0, 0.95), 0.9) == 20
    assert stable_steps(rows(0.5, 0.9), 0.9) == 0
    assert stable_steps(rows(1.0, 0.89), 0.9) is None


def test_moments_are_thinned_evenly_and_keep_both_ends(tmp_path):
    snapshot, kept = trainer_at(tmp_path, tiny()).snapshot(), {}
    for step in range(0, 1000, 10):
        kept = with_moment(kept, step, snapshot)
        assert len(moments(kept)) <= MOST_MOMENTS
    steps = moments(kept)
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert (steps[0], steps[-1]) == (0, 990)
    assert max(gaps) <= 4 * min(gaps[:-1])
    assert len(kept) == 3 * MOST_MOMENTS


def test_float32_stays_close_to_float64(tmp_path):
    losses = [
        grok(tiny(dtype=dtype), tmp_path, CPU).frame(PROGRESS)["train_loss"].to_list()
        for dtype in ("float32", "float64")
    ]
    assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-4, atol=1e-4)


def test_several_runs_follow_each_other_and_finished_ones_are_not_run_again(tmp_path):
    plan, seen = [tiny(seed) for seed in (0, 1)], []
    jobs = [Job(one, tables=()) for one in plan]
    runs = execute(jobs, tmp_path, device="cpu", watch=seen.append)
    assert [read_experiment(run.config) for run in runs] == plan
    assert [progress.job for progress in seen] == sorted(progress.job for progress in seen)
    assert {progress.stage for progress in seen} == {"train", "done"}
    seen.clear()
    assert execute(jobs, tmp_path, device="cpu", watch=seen.append) == runs
    assert [progress.stage for progress in seen] == ["done", "done"]
    with pytest.raises(Interrupted, match="stopped between two runs"):
        complete(jobs[0], tmp_path, CPU, stop=lambda: True)


def test_a_task_that_cannot_be_is_refused_before_a_folder_is_made(tmp_path):
    few = replace(tiny(), task=ModularConfig(p=31, fraction=0.01))
    with pytest.raises(ConfigError, match="every result to be trained on"):
        grok(few, tmp_path / "none", CPU)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, r"GrokTraining\.steps must be at least 1; got 0"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1"),
        ({"warmup": -1}, "warmup must be at least 0"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers in \[0, 1\)"),
    ],
)
def test_impossible_settings_get_one_line(change, message):
    with pytest.raises(ConfigError, match=message):
        GrokTraining(**change)


def test_impossible_rules_and_seeds_get_one_line():
    with pytest.raises(ConfigError, match=r"Grokked\.accuracy must be a share in \(0, 1\]; got 0.0"):
        Grokked(accuracy=0.0)
    with pytest.raises(ConfigError, match=r"Grokked\.steps must be at least 0"):
        Grokked(steps=-1)
    with pytest.raises(ConfigError, match="seed must be at least 0; got -1"):
        tiny(seed=-1)


def test_experiments_round_trip():
    one = replace(tiny(), model=ModularMLP.Config())
    assert from_dict(GrokExperiment, to_dict(one)) == one
    assert one.label == "add mod 11, random, mlp, seed 0"
    assert math.isclose(GrokTraining(warmup=0).rate(0), 1e-3)
