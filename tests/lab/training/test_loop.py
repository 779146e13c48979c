"""Training stops anywhere and goes on as if it had not, learns, and refuses nothing silently."""

import itertools
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.training.killed import kill
from torch.testing import assert_close

from spectrope.core.config import from_dict, to_dict
from spectrope.core.errors import ConfigError, Interrupted
from spectrope.core.noise import Noise
from spectrope.core.progress import stop_on_signal
from spectrope.encodings.positions.random_subset import RandomSubset
from spectrope.encodings.positions.shifted import Shifted
from spectrope.encodings.relative import RelativeTable
from spectrope.encodings.sum import Sum
from spectrope.encodings.t5 import T5
from spectrope.lab.job import train
from spectrope.lab.runs import build_model
from spectrope.lab.training import state as sitting
from spectrope.lab.training.config import Experiment, TrainingConfig
from spectrope.lab.training.learning import LearningProbe
from spectrope.lab.training.loop import Trainer, accumulate, learning_rate
from spectrope.lab.training.scales import experiment
from spectrope.lab.training.state import CHECKPOINT, WEIGHTS
from spectrope.store import Run, open_run
from spectrope.tasks.base import Batch

CPU = torch.device("cpu")


def tiny(**changes: object) -> Experiment:
    base = experiment("distance", "rope", epochs=2, n_examples=200)
    model = replace(base.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    training = replace(base.training, batch_size=32, micro_batch=16, eval_examples=50)
    return replace(base, model=model, training=training, **changes)


def run_at(root: Path, one: Experiment) -> Run:
    return open_run(root, to_dict(one), 1)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return run.read_tensors(WEIGHTS)[0]


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    run = run_at(tmp_path / "whole", tiny())
    Trainer(tiny(), run, CPU).fit()
    return run


@pytest.mark.parametrize("after", [1, 5, 6, 9])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, whole, after):
    run = run_at(tmp_path, tiny())
    asked = itertools.count(1)
    with pytest.raises(Interrupted, match=rf"stopped at step {after} of 10, saved in .*{run.id}"):
        Trainer(tiny(), run, CPU).fit(stop=lambda: next(asked) == after)
    Trainer(tiny(), run, CPU).fit()
    assert_frame_equal(run.frame("metrics"), whole.frame("metrics"))
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(run)[name], tensor), name


@pytest.mark.parametrize("after", [7, 8, 10])
def test_a_run_that_drops_positions_goes_on_without_them(tmp_path, monkeypatch, after):
    one = replace(tiny(), training=replace(tiny().training, drop_positions=0.3))
    probe = LearningProbe(every=1, examples=4)
    whole = train(one, tmp_path / "whole", CPU, probe=probe)
    asked = itertools.count(1)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "write", _interrupt)
        patched.setattr(sitting, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
        with pytest.raises(Interrupted):
            train(one, tmp_path, CPU, stop=lambda: next(asked) == after, probe=probe)
    run = train(one, tmp_path, CPU, probe=probe)
    for name in ("metrics", "learning", "gradients"):
        assert_frame_equal(run.frame(name), whole.frame(name))
    assert run.manifest["test_loss"] == whole.manifest["test_loss"]


def _interrupt(trainer: Trainer) -> None:
    raise Interrupted("as by a kill before the scores are written.")


def test_a_stopped_run_goes_on_in_its_precision(tmp_path):
    whole, run = run_at(tmp_path / "whole", tiny()), run_at(tmp_path, tiny())
    Trainer(tiny(), whole, CPU, precision="bfloat16").fit()
    asked = itertools.count(1)
    with pytest.raises(Interrupted):
        Trainer(tiny(), run, CPU, precision="bfloat16").fit(stop=lambda: next(asked) == 4)
    resumed = Trainer(tiny(), run, CPU, precision="float32")
    resumed.fit()
    assert resumed.state.dtype is torch.bfloat16
    assert all(torch.equal(weights(run)[name], tensor) for name, tensor in weights(whole).items())


def by_descent() -> Experiment:
    return replace(tiny(), training=replace(tiny().training, optimiser="sgd", learning_rate=0.1))


def test_gradient_descent_goes_on_bit_for_bit_too(tmp_path):
    whole, run = run_at(tmp_path / "whole", by_descent()), run_at(tmp_path, by_descent())
    Trainer(by_descent(), whole, CPU).fit()
    asked = itertools.count(1)
    with pytest.raises(Interrupted):
        Trainer(by_descent(), run, CPU).fit(stop=lambda: next(asked) == 6)
    Trainer(by_descent(), run, CPU).fit()
    for name, tensor in weights(whole).items():
        assert torch.equal(weights(run)[name], tensor), name


def test_gradient_descent_has_the_first_beta_for_its_momentum(tmp_path):
    one = by_descent()
    trainer = Trainer(one, run_at(tmp_path, one), CPU)
    (first, *_), moved = trainer.state.model.parameters(), None
    for step in range(3):
        before = first.detach().clone()
        trainer.step(trainer.train_data[:32])
        assert first.grad is not None
        push = first.grad + one.training.weight_decay * before
        moved = push if moved is None else one.training.betas[0] * moved + push
        assert_close(first.detach(), before - learning_rate(step, trainer.steps, one.training) * moved)


def drawn(one: Experiment, root: Path, epoch: int) -> Batch:
    """All that the steps of an epoch see, in their order."""
    trainer = Trainer(one, run_at(root, one), CPU)
    assert trainer.steps_per_epoch == 5
    batches = [trainer.batch(epoch, within) for within in range(5)]
    assert [len(batch) for batch in batches] == [32, 32, 32, 32, 12]
    return Batch(
        *(torch.cat([getattr(b, name) for b in batches]) for name in ("inputs", "labels", "lengths"))
    )


def test_an_epoch_is_every_training_example_once(tmp_path):
    one = tiny()
    data, _ = one.task.build().split(one.n_train, one.n_test, one.seed)
    assert len(data) == 140
    pairs = [
        (example.tolist(), label) for example, label in zip(data.inputs, data.labels.tolist(), strict=True)
    ]
    for epoch in (0, 1):
        seen = drawn(one, tmp_path, epoch)
        found = zip(seen.inputs, seen.labels.tolist(), strict=True)
        assert sorted((example.tolist(), label) for example, label in found) == sorted(pairs)
        assert torch.equal(seen.lengths, (seen.inputs != 0).sum(1))
    assert len({tuple(example) for example, _ in pairs}) == 140


def test_every_epoch_and_seed_has_an_order_of_its_own(tmp_path, monkeypatch):
    data, _ = tiny().task.build().split(140, 60, 0)
    monkeypatch.setattr(
        type(tiny().task.build()), "split", lambda task, n_train, n_test, seed: (data, data[:1])
    )
    first, later = (drawn(tiny(), tmp_path, epoch).inputs for epoch in (0, 1))
    other = drawn(tiny(seed=1), tmp_path, 0).inputs
    again = drawn(tiny(), tmp_path, 0).inputs
    assert torch.equal(first, again)
    for one, another in itertools.combinations((data.inputs, first, later, other), 2):
        assert not torch.equal(one, another)


@pytest.mark.parametrize("clip", [None, 0.05])
def test_steps_are_those_of_a_plain_loop(tmp_path, clip):
    base = tiny()
    training = replace(base.training, weight_decay=0.3, betas=(0.8, 0.7), learning_rate=1e-2, clip=clip)
    training = replace(training, precision="float32")
    one = replace(base, training=training, model=replace(base.model, dropout=0.0))
    ours = Trainer(one, run_at(tmp_path, one), CPU)
    ours.state.model.double()
    model = build_model(one, CPU).double()
    adam = torch.optim.AdamW(model.parameters(), weight_decay=0.3, betas=(0.8, 0.7), eps=1e-8, fused=False)
    for step in range(4):
        batch = ours.batch(0, step)
        adam.param_groups[0]["lr"] = learning_rate(step, 10, training)
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), batch.labels).backward()
        if clip is not None:
            norm = math.sqrt(sum(p.grad.square().sum() for p in model.parameters() if p.grad is not None))
            assert norm > clip
            for p in model.parameters():
                p.grad = None if p.grad is None else p.grad * clip / norm
        adam.step()
        ours.step(batch)
    for name, parameter in ours.state.model.named_parameters():
        assert_close(parameter, model.get_parameter(name), rtol=1e-4, atol=1e-6, msg=name)


def test_a_control_that_came_later_leaves_the_names_of_runs_as_they_were():
    assert "optimiser" not in to_dict(tiny())["training"]
    assert from_dict(Experiment, to_dict(by_descent())) == by_descent()


def train_at(root: Path) -> None:
    Trainer(tiny(), run_at(root, tiny()), CPU).fit()


@pytest.mark.sampled("kill")
def test_killed_while_writing_a_checkpoint_it_goes_on_bit_for_bit(tmp_path, whole):
    roots = {moment: tmp_path / str(moment) for moment in (1, 4)}
    kill("tests.lab.training.test_loop", roots)
    for moment, root in roots.items():
        run = run_at(root, tiny())
        assert run.has_tensors(CHECKPOINT) == (moment > 1)
        train_at(root)
        assert_frame_equal(run.frame("metrics"), whole.frame("metrics"))
        for name, tensor in weights(whole).items():
            assert torch.equal(weights(run)[name], tensor), name


def test_the_first_signal_asks_and_the_second_insists():
    before = signal.getsignal(signal.SIGINT)  # Ignored where the tests themselves run in the background.
    with stop_on_signal() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_it_learns(tmp_path):
    one = tiny()
    one = replace(one, n_train=64, training=replace(one.training, epochs=40, learning_rate=1e-2))
    run = run_at(tmp_path, one)
    Trainer(one, run, CPU).fit()
    rows = run.frame("metrics").filter(pl.col("split") == "train")
    assert rows["epoch"].to_list() == list(range(41))
    assert rows["accuracy"][-1] > 0.9 > 0.3 > rows["accuracy"][0]


def test_micro_batches_and_trimming_leave_the_gradient_as_it_is():
    one = tiny()
    data, _ = one.task.build().split(one.n_train, one.n_test, 0)
    grads = []
    for micro in (7, 32):
        model = build_model(one, CPU).double()
        accumulate(model, data[:32], None, micro, torch.float32)
        grads.append([p.grad for p in model.parameters()])
    model = build_model(one, CPU).double()
    torch.nn.functional.cross_entropy(model(data[:32]), data.labels[:32]).backward()
    for first, second, plain in zip(*grads, (p.grad for p in model.parameters()), strict=True):
        assert_close(first, plain)
        assert_close(second, plain)


def test_labels_that_do_not_count_change_neither_loss_nor_gradient():
    one = tiny()
    one = replace(one, model=replace(one.model, classes="vocabulary"))
    data, _ = one.task.build().split(40, 10, 0)
    mixed = replace(data, labels=data.labels.clone())
    mixed.labels[20:] = 0
    outcomes = []
    for batch in (data[:20], mixed):
        model = build_model(one, CPU).double()
        loss = accumulate(model, batch, None, 10, torch.float32)
        outcomes.append((loss, model.classifier.weight.grad))
    assert_close(outcomes[0], outcomes[1])


def test_dropout_is_drawn_anew_at_every_step(tmp_path):
    trainer = Trainer(tiny(), run_at(tmp_path, tiny()), CPU)
    size = torch.Size((64,))
    first = trainer.noise().keep(size, torch.float32)
    assert torch.equal(first, trainer.noise().keep(size, torch.float32))
    trainer.state.step += 1
    assert not torch.equal(first, trainer.noise().keep(size, torch.float32))


@pytest.mark.parametrize("rule", [Shifted(), RandomSubset(longest=64)])
def test_positions_are_drawn_anew_at_every_step(tmp_path, rule):
    one = tiny()
    one = replace(one, model=replace(one.model, positions=rule))
    trainer = Trainer(one, run_at(tmp_path, one), CPU)
    draws = [trainer.batch(0, 0).positions for _ in range(2)]
    trainer.state.step += 1
    draws.append(trainer.batch(0, 0).positions)
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    trainer.step(trainer.batch(0, 0))


def test_positions_that_are_not_drawn_are_left_to_the_model(tmp_path):
    assert Trainer(tiny(), run_at(tmp_path, tiny()), CPU).batch(0, 0).positions is None


def test_layers_may_share_a_part_of_a_mixture(tmp_path):
    base = tiny()
    mixture = Sum.Config(parts=(T5.Config(), RelativeTable.Config()))
    one = replace(
        base, model=replace(base.model, encoding=mixture), training=replace(base.training, epochs=1)
    )
    run = run_at(tmp_path, one)
    trained = Trainer(one, run, CPU).fit()
    again = build_model(one, CPU)
    again.load_state_dict(weights(run))
    assert torch.equal(again(trained_batch(one)), trained(trained_batch(one)))


def trained_batch(one: Experiment) -> Batch:
    return one.task.build().sample(5, 3)


def test_weights_depend_on_the_seed_alone():
    torch.manual_seed(5)
    first = build_model(tiny(), CPU).classifier.weight
    torch.rand(3)
    assert torch.equal(first, build_model(tiny(), CPU).classifier.weight)
    assert not torch.equal(first, build_model(tiny(seed=1), CPU).classifier.weight)


def test_the_schedule_warms_up_and_decays_to_nothing():
    config = TrainingConfig(learning_rate=2.0, warmup=0.1)
    rates = [learning_rate(step, 100, config) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * (i + 1) for i in range(10)])
    assert max(rates) == rates[9] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 1e-3
    assert learning_rate(0, 1, replace(config, warmup=0.0)) == 2.0


def test_clipping_bounds_the_gradient(tmp_path):
    norms = []
    for clip in (None, 1e-3):
        one = tiny()
        one = replace(one, training=replace(one.training, clip=clip))
        trainer = Trainer(one, run_at(tmp_path, one), CPU)
        trainer.step(trainer.batch(0, 0))
        norms.append(math.sqrt(sum(p.grad.square().sum() for p in trainer.state.model.parameters())))
    assert norms[0] > 1e-2
    assert norms[1] == pytest.approx(1e-3, rel=1e-3)


def test_bfloat16_stays_close_to_float32(tmp_path):
    losses = []
    for dtype in (torch.float32, torch.bfloat16):
        model = build_model(tiny(), CPU)
        data, _ = tiny().task.build().split(32, 8, 0)
        losses.append(accumulate(model, data, Noise(0.1, 0, CPU), 32, dtype))
    assert_close(losses[1], losses[0], rtol=0.02, atol=0)


def test_checkpoints_are_written_while_it_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(sitting, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    run, seen = run_at(tmp_path, tiny()), []
    Trainer(tiny(), run, CPU).fit(watch=lambda progress: seen.append(run.has_tensors(CHECKPOINT)))
    assert seen[0] is False
    assert all(seen[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, r"TrainingConfig.epochs must be at least 1; got 0\."),
        ({"learning_rate": 0.0}, r"learning_rate must be positive and finite; got 0\.0"),
        ({"learning_rate": float("inf")}, "learning_rate must be positive and finite; got inf"),
        ({"betas": (0.9, 1.0)}, r"betas must be two numbers in \[0, 1\)"),
        ({"weight_decay": -1.0}, "weight_decay must be at least 0"),
        ({"warmup": 1.0}, r"warmup must be a share of the steps in \[0, 1\)"),
        ({"clip": 0.0}, "clip must be positive or None"),
    ],
)
def test_impossible_settings_get_one_line(change, message):
    with pytest.raises(ConfigError, match=message):
        TrainingConfig(**change)


def test_impossible_experiments_get_one_line():
    with pytest.raises(ConfigError, match="edition must be at least 1; got 0"):
        replace(tiny(), edition=0)
    with pytest.raises(ConfigError, match="n_test must be at least 1; got 0"):
        tiny(n_test=0)
    with pytest.raises(ConfigError, match="seed must be at least 0; got -1"):
        tiny(seed=-1)
    with pytest.raises(ConfigError, match=r"Experiment has no field .learning_rate."):
        from_dict(Experiment, to_dict(tiny()) | {"learning_rate": 1})
