"""Runs that several claims share: built in one way, so that they are the same runs."""

from collections.abc import Iterable

from spectrope.training.config import Experiment
from spectrope.training.scales import experiment

# The paper's six encodings, in the digest's names. Its "relative" is T5's in the text, a learned table in its
# code; switch R4 turns the one into the other, so both stand under the same name.
NAMES = {
    "rope": "RoPE",
    "sinusoidal": "absolute",
    "random": "random",
    "alibi": "ALiBi",
    "nope": "NoPE",
    "t5": "relative",
}
NAMES_AND_MLA = NAMES | {"mla": "MLA"}
TASKS = {"distance": "Task 1", "counting": "Task 2"}
RIVALS = tuple(name for name in NAMES if name != "rope")
ACCURACY = 2.0  # Smallest difference in accuracy of interest, in points.


def by_encoding(
    task: str, condition: str, scale: str, seed: int, encodings: Iterable[str] = NAMES
) -> dict[str, Experiment]:
    """One run per encoding on a task: what `spectrope compare` makes, under the encodings' names."""
    return {name: experiment(task, name, scale=scale, condition=condition, seed=seed) for name in encodings}
