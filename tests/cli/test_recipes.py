"""Every recipe is read whole, and none has drifted from what the code makes of it."""

import json
from pathlib import Path

import pytest

from spectrope.cli.commands.train import read_recipe
from spectrope.core.config import to_dict
from spectrope.lab.training.scales import experiment

RECIPES = sorted((Path(__file__).parents[2] / "recipes").glob("*.json"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_reads_and_writes_back_equal(path):
    assert to_dict(read_recipe(path)) == json.loads(path.read_text())


def test_the_released_recipe_is_the_released_condition():
    (path,) = (path for path in RECIPES if path.stem == "paper-distance-rope-released")
    assert read_recipe(path) == experiment("distance", "rope", scale="paper", condition="released")
