"""What every kind of experiment says of itself."""

from dataclasses import replace

import pytest

from spectrope.core.config import with_fields
from spectrope.grokking.config import GrokExperiment, ShapesExperiment
from spectrope.lab.experiments import AnyExperiment
from spectrope.lab.training.config import Experiment
from spectrope.lab.training.scales import experiment


def test_an_experiment_is_narrowed_to_its_own_kind_alone():
    decoder, residues = experiment("distance", "rope"), GrokExperiment()
    assert Experiment.of(decoder) is decoder
    assert Experiment.of(residues) is None
    assert GrokExperiment.of(residues) is residues
    assert AnyExperiment.of(residues) is residues


@pytest.mark.parametrize(
    ("one", "precision"),
    [
        (experiment("distance", "rope"), "auto"),
        (with_fields(experiment("distance", "rope"), {"precision": "bfloat16"}), "bfloat16"),
        (replace(GrokExperiment(), training=replace(GrokExperiment().training, dtype="float64")), "float64"),
        (ShapesExperiment(), "float32"),
    ],
)
def test_every_kind_says_its_precision(one, precision):
    assert one.precision == precision
