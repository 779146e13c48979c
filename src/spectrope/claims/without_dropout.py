"""Runs without dropout: where, at the scale of minutes, RoPE has a deposit in layer 1 at all."""

from dataclasses import replace

from spectrope.encodings.base import EncodingConfig
from spectrope.training.config import Experiment
from spectrope.training.scales import experiment

EXPLORED = 6  # Seeds 0 to 5 of RoPE at three rates were looked at before claims about deposits were planned.
WHY = (
    "Without dropout and on seeds from 6 on: of seeds 0 to 5 at `mini`, 4 gave RoPE a deposit in layer 1 "
    "without dropout and none at the paper's rate, 0.1."
)


def distance_at(
    dropout: float, encoding: str | EncodingConfig, condition: str, scale: str, seed: int
) -> Experiment:
    """Task 1 at a rate of dropout."""
    one = experiment("distance", encoding, scale=scale, condition=condition, seed=seed)
    return replace(one, model=replace(one.model, dropout=dropout))
