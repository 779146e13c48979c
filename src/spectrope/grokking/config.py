"""Configurations of grokking runs."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal

from spectrope.core import SEEDS, Configured, OneOf, require, require_least
from spectrope.grokking.models.base import MODULAR_MODELS, ModularModelConfig
from spectrope.grokking.models.transformer import ModularTransformer
from spectrope.grokking.models.vision import FULL_WIDTH
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.grokking.tasks.shapes import ShapesConfig
from spectrope.lab import AnyExperiment

LONE = "One image alone has no variance to normalise by."


@dataclass(frozen=True, kw_only=True)
class Grokked(Configured):
    """Early stopping: training ends when the test set has been solved for some steps."""

    accuracy: float = 0.99  # Least test accuracy.
    steps: int = 500  # Over which no evaluation may fall below it.

    def __post_init__(self) -> None:
        require(0 < self.accuracy <= 1, self, "accuracy", "a share in (0, 1]")
        require_least(self, 0, "steps")


@dataclass(frozen=True, kw_only=True)
class Budget(Configured):
    """Length of training, and evaluation interval."""

    steps: int  # Most steps of the optimiser.
    evaluate_every: int  # Steps between two evaluations of everything.
    stop: Grokked | None = field(default_factory=Grokked)  # None spends all steps.

    def __post_init__(self) -> None:
        require_least(self, 1, "steps", "evaluate_every")


@dataclass(frozen=True, kw_only=True)
class GrokTraining(Budget):
    """Full-batch AdamW with a linear warm-up; defaults as in arXiv 2504.03162."""

    steps: int = 30_000
    learning_rate: float = 1e-3
    weight_decay: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: int = 10  # Steps.
    loss: Literal["cross_entropy", "mse"] = "cross_entropy"  # mse: to one-hot labels, mean over classes.
    evaluate_every: int = 50
    dtype: Literal["float32", "float64"] = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_least(self, 0, "warmup")
        require(0 < self.learning_rate < math.inf, self, "learning_rate", "positive and finite")
        require(0 <= self.weight_decay < math.inf, self, "weight_decay", "at least 0 and finite")
        require(all(0 <= b < 1 for b in self.betas), self, "betas", "two numbers in [0, 1)")

    def rate(self, step: int) -> float:
        """Learning rate of a step, the first being 0."""
        return self.learning_rate * min(1.0, (step + 1) / max(1, self.warmup))


@dataclass(frozen=True, kw_only=True)
class GrokExperiment(AnyExperiment):
    """One run: a task, a model, a way to train it, and a seed for the split and the weights."""

    laboratory = "grokking"

    task: ModularConfig = field(default_factory=ModularConfig)
    model: Annotated[ModularModelConfig, OneOf(MODULAR_MODELS)] = field(
        default_factory=ModularTransformer.Config
    )
    training: GrokTraining = field(default_factory=GrokTraining)
    seed: int = 0

    def __post_init__(self) -> None:
        require_least(self, 0, "seed")
        require(self.seed < SEEDS, self, "seed", "below 2**63")

    @property
    def label(self) -> str:
        """A short name for progress and messages."""
        task = self.task
        return f"{task.operation} mod {task.p}, {task.distribution.kind}, {self.model.kind}, seed {self.seed}"

    @property
    def precision(self) -> str:
        """As its training says."""
        return self.training.dtype


@dataclass(frozen=True, kw_only=True)
class ShapesTraining(Budget):
    """Adam in mini-batches; defaults as in arXiv 2504.03162, 20,000 epochs of 19 steps."""

    steps: int = 380_000
    batch_size: int = 200
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    decay: Literal["l2", "decoupled"] = "l2"  # Added to Adam's gradient, or subtracted as AdamW does.
    evaluate_every: int = 1_900
    stop: Grokked | None = field(default_factory=lambda: Grokked(steps=1_900))

    added_later = frozenset({"decay"})

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.batch_size >= 2, self, "batch_size", "at least 2", LONE)
        require(0 < self.learning_rate < math.inf, self, "learning_rate", "positive and finite")
        require(0 <= self.weight_decay < math.inf, self, "weight_decay", "at least 0 and finite")


@dataclass(frozen=True, kw_only=True)
class ShapesExperiment(AnyExperiment):
    """One run: images, how ResNet-18 is trained on them, and a seed for split, order and weights."""

    laboratory = "shapes"

    task: ShapesConfig = field(default_factory=ShapesConfig)
    training: ShapesTraining = field(default_factory=ShapesTraining)
    source: str | None = None  # Folder of a ResNet to start from; None draws all weights.
    width: int = FULL_WIDTH  # Channels of the first stage; 64 is ResNet-18.
    seed: int = 0

    added_later = frozenset({"width"})

    def __post_init__(self) -> None:
        require_least(self, 0, "seed")
        require(self.seed < SEEDS, self, "seed", "below 2**63")
        require_least(self, 1, "width")
        drawn = self.source is None or self.width == FULL_WIDTH
        require(drawn, self, "width", f"{FULL_WIDTH} with `source`", "A checkpoint has its own width.")
        left = self.task.n_train % self.training.batch_size
        rule = f"such that {self.task.n_train} training images leave no batch of one"
        require(left != 1, self.training, "batch_size", rule, LONE)

    @property
    def label(self) -> str:
        """A short name for progress and messages."""
        start = "random" if self.source is None else "given"
        network = network_name(self.width)
        return f"shapes, {self.task.resolution} px, {network}, {start} weights, seed {self.seed}"

    @property
    def precision(self) -> str:
        """float32, in which ResNet-18 is trained."""
        return "float32"


def network_name(width: int) -> str:
    """ResNet-18, or what share of its width a network has."""
    return "ResNet-18" if width == FULL_WIDTH else f"ResNet-18 of {width / FULL_WIDTH:.3g} of the width"
