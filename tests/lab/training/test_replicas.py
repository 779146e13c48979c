"""Many seeds trained as one are the runs that each seed gives alone."""

from dataclasses import replace

import pytest
import torch

from spectrope.core.autocast import in_precision
from spectrope.core.device import Precision
from spectrope.core.errors import ConfigError, Interrupted
from spectrope.core.noise import Noise, StackedNoise
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.runs import run_for
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.loop import Trainer, build_model
from spectrope.lab.training.replicas import Replicas, ReplicaTrainer, clip_each
from spectrope.lab.training.scales import experiment
from spectrope.store import Run

CPU = torch.device("cpu")
SEEDS = (0, 1, 5)


def small(encoding: str, *, dropout: float = 0.0, **training: object) -> list[Experiment]:
    """The same tiny experiment under every seed; its lengths vary."""
    one = experiment("distance", encoding)
    model = replace(one.model, d_model=32, n_layers=2, n_heads=2, dropout=dropout)
    chosen = {"epochs": 2, "batch_size": 24, "micro_batch": 8, "eval_examples": 32, "precision": "float32"}
    recipe = replace(one.training, **(chosen | training))
    whole = replace(one, model=model, training=recipe, n_train=72, n_test=40)
    return [replace(whole, seed=seed) for seed in SEEDS]


def trainers(experiments: list[Experiment], root) -> list[Trainer]:
    return [Trainer(one, run_for(one, root), CPU) for one in experiments]


def runs(found: list[Trainer]) -> list[Run]:
    return [trainer.run for trainer in found]


@pytest.mark.parametrize("encoding", list(ENCODINGS))
def test_every_encoding_gives_the_logits_of_separate_models(encoding):
    experiments = small(encoding)
    models = [build_model(one, CPU) for one in experiments]
    batches = [one.task.build().sample(6, seed=one.seed) for one in experiments]
    replicas = Replicas(models)
    first, together = replicas(batches), replicas(batches)
    torch.testing.assert_close(together, first)  # Nothing of a call stays behind.
    for logits, model, batch in zip(together, models, batches, strict=True):
        torch.testing.assert_close(logits, model(batch), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("encoding", list(ENCODINGS))
def test_every_encoding_gives_them_in_bfloat16(encoding):
    experiments = small(encoding)[:2]
    models = [build_model(one, CPU) for one in experiments]
    batches = [one.task.build().sample(6, seed=one.seed) for one in experiments]
    exact = [model(batch) for model, batch in zip(models, batches, strict=True)]
    with in_precision(CPU, torch.bfloat16):
        together = Replicas(models)(batches)
    for logits, expected in zip(together, exact, strict=True):
        assert logits.dtype is torch.float32
        torch.testing.assert_close(logits, expected, rtol=0, atol=0.02 * expected.abs().max().item())


def test_dropout_draws_the_masks_of_separate_models():
    experiments = small("rope", dropout=0.3)
    models = [build_model(one, CPU) for one in experiments]
    batch = experiments[0].task.build().sample(6, seed=0)
    noises = [[Noise(0.3, one.seed, CPU) for one in experiments] for _ in range(2)]
    together = Replicas(models)([batch] * len(models), StackedNoise(noises[0]))
    for logits, model, noise in zip(together, models, noises[1], strict=True):
        model.impl = "reference"
        torch.testing.assert_close(logits, model(batch, noise), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together, Replicas(models)([batch] * len(models)))


@pytest.mark.parametrize("options", [{}, {"clip": 0.05}], ids=["plain", "clipped"])
@pytest.mark.parametrize("encoding", ["rope", "t5", "random", "sum"])
def test_training_together_is_training_apart(tmp_path, encoding, options):
    experiments = small(encoding, **options)
    apart, together = (trainers(experiments, tmp_path / name) for name in ("apart", "together"))
    for trainer in apart:
        trainer.fit()
    ReplicaTrainer(together).fit()
    for one, other in zip(runs(apart), runs(together), strict=True):
        for column in ("epoch", "step", "split"):
            assert one.frame("metrics")[column].equals(other.frame("metrics")[column])
        losses = [run.frame("metrics")["loss"].to_torch() for run in (one, other)]
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        # Adam magnifies rounding where gradients vanish, as of the biases of T5's keys.
        torch.testing.assert_close(
            one.read_tensors("weights")[0], other.read_tensors("weights")[0], rtol=1e-3, atol=1e-3
        )


def test_an_interrupted_group_ends_as_an_undisturbed_one(tmp_path):
    experiments = small("rope", dropout=0.1)
    whole, first, second = (trainers(experiments, tmp_path / name) for name in ("whole", "cut", "cut"))
    ReplicaTrainer(whole).fit()
    asked = iter([False, False, True])
    with pytest.raises(Interrupted, match="stopped at step 3 of 6"):
        ReplicaTrainer(first).fit(stop=lambda: next(asked))
    assert first[0].run.has_tensors("replicas-0-1-5")
    resumed = ReplicaTrainer(second)
    assert (resumed.state.step, second[2].state.step, len(second[2].state.rows)) == (3, 3, 4)
    resumed.fit()
    for one, other in zip(runs(whole), runs(second), strict=True):
        assert one.frame("metrics").equals(other.frame("metrics"))
        weights = [run.read_tensors("weights")[0] for run in (one, other)]
        assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_an_interrupted_group_goes_on_in_its_precision(tmp_path):
    low = [replace(one, training=replace(one.training, precision="auto")) for one in small("rope")]

    def group(precision: Precision) -> ReplicaTrainer:
        begun = [Trainer(one, run_for(one, tmp_path), CPU, precision=precision) for one in low]
        return ReplicaTrainer(begun)

    with pytest.raises(Interrupted):
        group("bfloat16").fit(stop=lambda: True)
    resumed = group("float32")
    assert {resumed.state.dtype, *(one.state.dtype for one in resumed.trainers)} == {torch.bfloat16}


def test_progress_is_told_before_every_step_and_at_the_end(tmp_path):
    told = []
    ReplicaTrainer(trainers(small("nope"), tmp_path)).fit(watch=lambda progress: told.append(progress.step))
    assert told == [0, 1, 2, 3, 4, 5, 6]


def test_each_gradient_is_clipped_alone():
    parameters = [torch.zeros(2, 3), torch.zeros(2)]
    parameters[0].grad = torch.tensor([[3.0, 0.0, 0.0], [0.1, 0.0, 0.0]])
    parameters[1].grad = torch.tensor([4.0, 0.0])
    clip_each(parameters, 1.0)
    torch.testing.assert_close(parameters[0].grad, torch.tensor([[0.6, 0, 0], [0.1, 0, 0]]))
    torch.testing.assert_close(parameters[1].grad, torch.tensor([0.8, 0.0]))


def test_replicas_that_differ_in_more_than_seeds_are_refused(tmp_path):
    rope, nope = small("rope"), small("nope")
    with pytest.raises(ConfigError, match="must differ in their seeds alone"):
        ReplicaTrainer(trainers([rope[0], nope[1]], tmp_path))
    with pytest.raises(ConfigError, match="need seeds of their own"):
        ReplicaTrainer(trainers([rope[0], rope[0]], tmp_path))
