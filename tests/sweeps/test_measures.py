"""What a job measures beside ablation: each table by its name, and accuracy on longer sequences."""

from dataclasses import replace

import pytest
import torch

from spectrope.core.errors import ConfigError, UnknownNameError, UnsupportedError
from spectrope.sweeps.job import Job, complete
from spectrope.sweeps.lengths import lengthened, lengths
from spectrope.sweeps.measures import MEASURES
from spectrope.tasks.base import TASKS, TaskConfig
from spectrope.training.config import Experiment
from spectrope.training.scales import SCALES, experiment

CPU = torch.device("cpu")


def tiny(encoding: str = "rope", task: str = "distance") -> Experiment:
    base = experiment(task, encoding, epochs=1, n_examples=200)
    model = replace(base.model, d_model=16, n_heads=2, n_layers=2, d_ff=16)
    return replace(base, model=model, training=replace(base.training, batch_size=32))


BY_HEAD = ("start", "head_gradients", "head_growth")  # Of multi-head attention alone.


def test_every_measure_leaves_the_table_of_its_name(tmp_path):
    stages: list[str] = []
    others = tuple(name for name in MEASURES if name not in BY_HEAD)
    for job in (Job(tiny("mla"), others), Job(tiny(), BY_HEAD)):
        run = complete(job, tmp_path, CPU, lambda event: stages.append(event.stage))
        assert job.is_done(run)
        assert not Job(tiny("alibi")).is_done(replace(run, path=tmp_path))
        assert Job.from_dict(job.to_dict()) == job
    assert set(stages) == {"train", "ablate", "lengths", "spectrum", "learning", "done"}


def test_an_unknown_measure_is_refused():
    with pytest.raises(UnknownNameError, match="unknown measure 'length'; did you mean lengths"):
        Job(tiny(), ("length",))


@pytest.mark.parametrize("scale", list(SCALES))
@pytest.mark.parametrize("task", ["distance", "counting"])
@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 4.0])
def test_longer_tasks_keep_their_labels(scale, task, factor):
    config = SCALES[scale][task].task
    longer = lengthened(config, factor).build()
    assert longer.max_length == factor * config.build().max_length
    assert longer.n_classes == config.build().n_classes
    batch = longer.sample(300, seed=1)
    assert torch.equal(longer.solve(batch, seed=1), batch.labels)
    assert int(batch.lengths.max()) > 0.75 * longer.max_length


def test_the_first_length_is_that_of_the_held_out_examples(tmp_path):
    run = complete(Job(tiny(task="counting"), ("lengths",)), tmp_path, CPU)
    table = run.frame("lengths")
    assert table.select("factor", "length").rows() == [(1.0, 32), (1.5, 48), (2.0, 64), (4.0, 128)]
    first = lengths(run, CPU, factors=(1.0,), examples=60)
    assert first["accuracy"][0] == pytest.approx(run.manifest["test_accuracy"])
    assert first["loss"][0] == pytest.approx(run.manifest["test_loss"], rel=1e-5)


def test_a_table_of_positions_ends(tmp_path):
    with pytest.raises(UnsupportedError):
        complete(Job(tiny("learned"), ("lengths",)), tmp_path, CPU)


def test_another_task_has_no_longer_form():
    class Other(TaskConfig):
        kind = "other"

    assert "other" not in TASKS
    with pytest.raises(ConfigError, match="task 'other' has no longer form"):
        lengthened(Other(), 2.0)
