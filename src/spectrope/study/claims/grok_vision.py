"""Claim 16: does ResNet-18 grok on images made for it?"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spectrope.core import UnknownNameError
from spectrope.grokking import Grokked, ShapesConfig, ShapesExperiment, ShapesTraining
from spectrope.study.grok_arms import ABSTRACT, GrokClaim, course, last
from spectrope.study.predictions import AtLeast
from spectrope.study.quantities import Seen
from spectrope.study.rows import StudyRow
from spectrope.study.verdict import Part

GROKKED = 95.0  # Percent of the test images.
FITTED = 0.99  # Accuracy from which on the training images are learnt by heart.
LASTING = 3  # Evaluations in a row that must reach it: batch normalisation settles late.
DELAY = 10.0  # Points of test accuracy that must be gained after that.


class Setting(NamedTuple):
    """What a scale trains, and for how long."""

    task: ShapesConfig
    training: ShapesTraining


SETTINGS: Mapping[str, Setting] = {
    "mini": Setting(
        ShapesConfig(sides=(0, 3, 4, 5), resolution=32, n_train=128),
        ShapesTraining(steps=1_000, batch_size=64, evaluate_every=20, stop=Grokked(steps=100)),
    ),
    "small": Setting(
        ShapesConfig(resolution=56),
        ShapesTraining(steps=19_000, evaluate_every=190, stop=Grokked(steps=950)),
    ),
    "mid": Setting(
        ShapesConfig(resolution=56),
        ShapesTraining(steps=19_000, evaluate_every=190, stop=Grokked(steps=950)),
    ),
    "paper": Setting(ShapesConfig(), ShapesTraining()),
}


class GrokVision(GrokClaim, name="grok-vision"):
    """ResNet-18 on images of polygons."""

    number = 16
    title = "Grokking: ResNet-18 reaches 95 % test accuracy"
    statement = "On images of four polygons whose label is the total number of sides, ResNet-18 groks."
    source = ABSTRACT
    quote = (
        "we design a dedicated dataset to validate our theory on ResNet-18, successfully showcasing the "
        "occurrence of grokking"
    )
    prediction = (
        "test accuracy ≥ 95 % at the end, ≥ 10 points of which come after three evaluations in a row have "
        "answered 99 % of the training images"
    )
    test = (
        "ResNet-18 from random weights (the paper starts from ImageNet's; `spectrope grok-shapes --source` "
        "takes a folder). Accuracies in evaluation mode, Student's t over seeds of split, order and weights. "
        "`mini` is 128 images of 32 pixels and 1,000 steps, an hour for six seeds on one core; the paper "
        "takes 380,000 steps, so that a failure here says nothing of what comes later."
    )

    def setting(self, scale: str) -> str:
        task, training = SETTINGS[scale]
        return f"{task.n_train:,} images of {task.resolution} pixels train, at most {training.steps:,} steps"

    def untestable(self, scale: str) -> str:
        steps = SETTINGS[scale].training.steps
        return "" if steps == SETTINGS["paper"].training.steps else f"{steps:,} steps of the paper's 380,000"

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, ShapesExperiment]:
        if scale not in SETTINGS:
            raise UnknownNameError("scale", scale, SETTINGS)
        return {"images": ShapesExperiment(**SETTINGS[scale]._asdict(), seed=seed)}

    def parts(self, seen: Seen) -> Iterator[Part]:
        yield Part(
            quantity="test accuracy",
            prediction=AtLeast(GROKKED, null=None),
            values=seen.values("images", last("test_accuracy", 100.0)),
        )
        yield Part(
            quantity="test accuracy gained after the training images are fitted",
            prediction=AtLeast(DELAY),
            values=seen.values("images", _gained),
        )


def _gained(row: StudyRow) -> float | None:
    """Points from where the training images have settled at being fitted to the end; None if they do not."""
    table = course(row)
    if table is None or table["train_accuracy"].has_nulls() or table["test_accuracy"].has_nulls():
        return None
    fits = (table["train_accuracy"] >= FITTED).to_list()
    settled = [place for place in range(len(fits) - LASTING + 1) if all(fits[place : place + LASTING])]
    if not settled:
        return None
    return 100 * (table["test_accuracy"][-1] - table["test_accuracy"][settled[0] + LASTING - 1])
