"""What is measured of a run's beginning after its end."""

import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from tests.lab.training.test_loop import CPU, tiny

from spectrope.core.errors import ConfigError
from spectrope.lab.job import train
from spectrope.lab.measures import head_gradients
from spectrope.lab.measures.base import Measure
from spectrope.lab.measures.head_gradients import FactorProbe, HeadGradients
from spectrope.lab.measures.head_growth import HeadGrowth
from spectrope.lab.measures.start import KERNELS, Start
from spectrope.lab.probes.head_factors import factor_growth
from spectrope.lab.runs import build_model, load_model
from spectrope.lab.training.learning import LearningProbe
from spectrope.store import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tiny(), tmp_path_factory.mktemp("runs"), CPU)


def taken(measure: Measure, run: Run) -> pl.DataFrame:
    """The table that a measure leaves with a run."""
    measure.take(run, CPU)
    return run.frame(measure.kind)


def test_its_first_steps_are_taken_again_as_they_were(run, tmp_path, monkeypatch):
    monkeypatch.setattr(head_gradients, "EVERY", 2)
    monkeypatch.setattr(head_gradients, "STEPS", 6)
    again = taken(HeadGradients(), run)
    watched = train(tiny(), tmp_path, CPU, probe=FactorProbe(every=2)).frame("head_gradients")
    assert_frame_equal(again, watched.filter(pl.col("step") <= 6))
    assert sorted(set(again["step"])) == [0, 2, 4, 6]
    assert again.height == 4 * tiny().model.n_layers * tiny().model.n_heads


def test_its_first_steps_are_taken_again_in_its_precision(tmp_path, monkeypatch):
    own = train(tiny(), tmp_path / "own", CPU, precision="bfloat16")
    watched = train(
        tiny(), tmp_path / "watched", CPU, probe=FactorProbe(every=head_gradients.EVERY), precision="bfloat16"
    )
    again = taken(HeadGradients(), own)
    assert_frame_equal(again, watched.frame("head_gradients").filter(pl.col("step") <= head_gradients.STEPS))


def test_a_run_of_few_steps_is_taken_again_whole(run):
    assert sorted(set(taken(HeadGradients(), run)["step"])) == [0]


def test_kernels_before_training_are_those_of_the_probe(run, tmp_path):
    kernels = taken(Start(), run)
    watched = train(tiny(), tmp_path, CPU, probe=LearningProbe(every=100)).frame("learning")
    assert_frame_equal(kernels, watched.select("layer", "head", *KERNELS))


def test_growth_is_from_the_untrained_weights_to_the_trained(run):
    table = taken(HeadGrowth(), run)
    expected = factor_growth(build_model(tiny(), CPU), load_model(run, CPU))
    assert table["energy"].to_list() == pytest.approx(torch.cat(expected).tolist())
    assert table["energy"].min() > 0


def test_the_probe_takes_the_first_examples():
    data, _ = tiny().task.build().split(40, 10, 0)
    chosen = FactorProbe(examples=7).choose(data)
    assert len(chosen.inputs) == 7
    assert torch.equal(chosen.labels, data.labels[:7])
    with pytest.raises(ConfigError, match=r"FactorProbe\.examples must be at least 1; got 0"):
        FactorProbe(examples=0)
