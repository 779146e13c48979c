"""Runs of configurations that exist keep their names: long studies go on under them."""

import hashlib
import json

from spectrope.core.config import config_hash
from spectrope.lab import DATA_VERSION, experiment, written
from spectrope.store import RESULTS_VERSION

ENCODINGS = (
    "alibi blend cable cope deberta factorised fire fope fox harope kerple_log kerple_power learned "
    "misread_rope nope partial_dims path per_head per_layer random relative rope sandwich shaw sinusoidal "
    "sum t5 transformer_xl tupe xpos mla mla+alibi rope:yarn,factor=8"
)
TASKS = ("distance", "counting", "addition")


def identities() -> dict[str, str]:
    """Names of run folders by encoding, task and scale, under seed 1."""
    return {
        f"{encoding}/{task}/{scale}": config_hash(
            written(experiment(task, encoding, scale=scale, seed=1)), DATA_VERSION, RESULTS_VERSION
        )
        for encoding in ENCODINGS.split()
        for task in TASKS
        for scale in ("mini", "paper")
    }


def test_names_of_runs_are_those_of_the_study():
    """A change here abandons finished runs: leave new fields out of what is written (`added_later`)."""
    names = identities()
    assert names["rope/distance/mini"] == "d5f8ab2bf8de"
    assert names["mla/counting/paper"] == "3f9eff148c60"
    digest = hashlib.sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()
    assert digest.startswith("f9bfa3ba73b2bf2e")
