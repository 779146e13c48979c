"""Rough numbers of operations, by which dry runs estimate the time of training."""

from dataclasses import replace

import pytest

from spectrope.grokking.config import GrokExperiment, GrokTraining, ShapesExperiment
from spectrope.grokking.laboratory import GrokLaboratory, ShapesLaboratory
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.tasks.modular import ModularConfig


def test_operations_on_residues_are_those_of_the_weights_and_pairs():
    training = GrokTraining(steps=100, evaluate_every=50)
    one = GrokExperiment(
        task=ModularConfig(p=11, fraction=0.5),
        model=ModularMLP.Config(d_model=8, hidden=16),
        training=training,
    )
    weights = sum(p.numel() for p in one.model.build(one.task, 0).parameters())
    n_train = len(one.task.build().split(0).train)
    assert GrokLaboratory().operations(one) == pytest.approx(2 * weights * (300 * n_train + 2 * 121))
    longer = replace(one, training=replace(training, steps=300))
    assert GrokLaboratory().operations(longer) == pytest.approx(3 * GrokLaboratory().operations(one))


def test_operations_on_images_grow_with_their_area_and_the_square_of_the_width():
    laboratory, one = ShapesLaboratory(), ShapesExperiment()
    half = replace(one, task=replace(one.task, resolution=one.task.resolution // 2))
    assert laboratory.operations(one) == pytest.approx(4 * laboratory.operations(half))
    narrow = replace(one, width=one.width // 4)
    assert laboratory.operations(one) == pytest.approx(16 * laboratory.operations(narrow))
