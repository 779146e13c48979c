"""A training step of the paper's model under each kind of encoding, against the same model without one."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from benchmarks.harness import Case, run
from benchmarks.training import DEVICE, DTYPE, LENGTH, PAPER, decoder, examples
from torch.testing import assert_close

from spectrope.core.noise import Noise
from spectrope.encodings.base import ENCODINGS
from spectrope.lab.training.config import TrainingConfig
from spectrope.lab.training.loop import accumulate, make_optimiser
from spectrope.models.decoder import DecoderConfig

BATCH, MICRO_BATCH, DROPOUT = 64, 32, 0.1
GOALS = {"rope": "<= 1.10 of nope", "alibi": "<= 1.15", "t5": "<= 1.15", "relative": "<= 1.15"}


def step(config: DecoderConfig) -> Callable[[], None]:
    """One optimiser step on fixed examples."""
    model = decoder(config)
    optimiser, data = make_optimiser(model, TrainingConfig()), examples(BATCH)

    def call() -> None:
        optimiser.zero_grad(set_to_none=True)
        accumulate(model, data, Noise(DROPOUT, 0, DEVICE), MICRO_BATCH, DTYPE)
        optimiser.step()

    return call


def case(name: str, goal: str) -> Case:
    """An encoding beside none; the ratio above 1 would mean that it is cheaper than none."""
    config = replace(PAPER, dropout=DROPOUT, encoding=ENCODINGS.config(name)())

    def gate() -> None:
        few = examples(4)
        with torch.no_grad():
            assert_close(decoder(config)(few), decoder(config, "reference")(few), rtol=1e-4, atol=1e-4)

    without = replace(config, encoding=ENCODINGS.config("nope")())
    return Case(f"{name}, {BATCH} x {LENGTH}", gate, step(config), step(without), goal)


def cases() -> Iterator[Case]:
    """The paper's encodings."""
    for name in ("sinusoidal", "learned", "random", "t5", "relative", "alibi", "rope"):
        yield case(name, GOALS.get(name, ""))


if __name__ == "__main__":
    run("encodings", cases(), threads=2, repeats=7)
