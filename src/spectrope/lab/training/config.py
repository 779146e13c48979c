"""Configuration of training and of a whole run."""

from dataclasses import dataclass, replace
from math import inf
from typing import Annotated, Any, Literal

from spectrope.attention import IMPLEMENTATIONS
from spectrope.core import (
    SEEDS,
    ConfigError,
    Configured,
    OneOf,
    Precision,
    require,
    require_least,
    with_fields,
)
from spectrope.encodings import Arange
from spectrope.lab.experiments import AnyExperiment
from spectrope.lab.manifest import DECODER
from spectrope.models import DecoderConfig
from spectrope.tasks import TASKS, TaskConfig


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Configured):
    """AdamW with linear warm-up and cosine decay; defaults as in Tables 3 and 4 of the paper.

    Stochastic gradient descent can be used as a control; its momentum is then the first of `betas`.
    """

    epochs: int = 100
    batch_size: int = 512  # Examples per step of the optimiser.
    micro_batch: int = 64  # Examples per forward pass; gradients add up to the batch's.
    learning_rate: float = 1e-4  # Peak, after warm-up.
    betas: tuple[float, float] = (0.98, 0.9)  # R15. As printed in the paper, larger first.
    weight_decay: float = 1e-5
    warmup: float = 0.06  # Share of all steps.
    clip: float | None = None  # Largest norm of the gradient, or None.
    precision: Precision = "auto"  # Of matrix products.
    eval_examples: int = 2000  # Of each split, scored after every epoch.
    optimiser: Literal["adamw", "sgd"] = "adamw"
    # Share of all steps, at the end, that are trained without positions; None keeps them.
    drop_positions: float | None = None
    impl: str = "fastest"  # Exact implementation of attention; "fastest" never takes "compiled".

    added_later = frozenset({"optimiser", "drop_positions", "impl"})

    def __post_init__(self) -> None:
        require_least(self, 1, "epochs", "batch_size", "micro_batch", "eval_examples")
        require(0 < self.learning_rate < inf, self, "learning_rate", "positive and finite")
        require(all(0 <= b < 1 for b in self.betas), self, "betas", "two numbers in [0, 1)")
        require_least(self, 0, "weight_decay")
        require(0 <= self.warmup < 1, self, "warmup", "a share of the steps in [0, 1)")
        require(self.clip is None or self.clip > 0, self, "clip", "positive or None")
        share = self.drop_positions
        require(share is None or 0 < share < 1, self, "drop_positions", "a share of the steps, or None")
        exact = self.impl == "fastest" or IMPLEMENTATIONS[self.impl].exact
        require(exact, self, "impl", "an exact implementation of attention, or 'fastest'")


DECIDING = frozenset(
    {"condition", "edition", "encoding", "encoding_name", "scale", "task", "tuning"}
)  # Fields from which others follow.
ANEW = "build the experiment anew, such as sp.experiment(task, encoding, scale=..., condition=...)"


@dataclass(frozen=True, kw_only=True)
class Experiment(AnyExperiment):
    """One run: task, model, training, and a seed for data, initial weights, batch order and dropout."""

    laboratory = DECODER

    encoding_name: str  # The encoding requested; a condition may have changed `model.encoding`.
    task: Annotated[TaskConfig, OneOf(TASKS)]
    model: DecoderConfig
    training: TrainingConfig
    n_train: int
    n_test: int  # Held-out examples.
    scale: str
    condition: str
    seed: int = 0
    tuning: Literal["none", "trial", "chosen"] = "none"  # A rate of a grid; the rate chosen from it.
    edition: int = 1  # Edition of the condition, increased by corrections to distinguish earlier results.

    added_later = frozenset({"tuning", "edition"})

    def __post_init__(self) -> None:
        require_least(self, 1, "n_train", "n_test", "edition")
        require_least(self, 0, "seed")
        require(self.seed < SEEDS, self, "seed", "below 2**63")
        self._require_room()

    def _require_room(self) -> None:
        """Check that the model supports all tokens, labels and lengths of the task."""
        task = self.task.build()
        needed = {"vocabulary": task.vocabulary, "n_labels": task.n_classes, "max_length": task.max_length}
        for field, least in needed.items():
            ok = getattr(self.model, field) >= least
            require(ok, self.model, field, f"at least {least}", f"Task {self.task.kind!r} has as many.")
        if self.model.ignored_label is not None and task.n_classes < 3:
            raise ConfigError(
                f"task {self.task.kind!r} has {task.n_classes} labels, and classes='vocabulary' leaves label "
                "0 out of loss and accuracy, so that one would be left; take classes='labels', as condition "
                "'controlled' does."
            )
        if self.model.positions != Arange() and task.sample(1, self.seed).positions is not None:
            raise ConfigError(
                f"task {self.task.kind!r} numbers its tokens itself, so that the position rule "
                f"{self.model.positions.kind!r} would not be used; leave it out, or take another encoding."
            )

    def with_(self, **changes: Any) -> "Experiment":
        """Return this experiment with some fields changed, each found by its name at any depth.

            >>> one = sp.experiment("distance", "rope").with_(learning_rate=1e-3, n_layers=4)
            >>> one.training.learning_rate, one.model.n_layers
            (0.001, 4)

        Args:
            changes: New values by name. If several fields have the name, the least nested one is changed; a
                path, as in `with_(**{"model.encoding.schedule": "yarn"})`, is unambiguous.

        Raises:
            ConfigError: If no field has the name, the name is ambiguous, a value breaks a rule, or other
                fields depend on the field, such as the condition.
        """
        if fixed := sorted(DECIDING & changes.keys()):
            raise ConfigError(f"with_ cannot change {fixed[0]}, on which other fields depend; {ANEW}.")
        changed = with_fields(self, changes)
        encoding = changed.model.encoding.fitted(seed=changed.seed)
        return replace(changed, model=replace(changed.model, encoding=encoding))

    @property
    def label(self) -> str:
        """A short name for progress bars and messages."""
        rate = f"rate {self.training.learning_rate:.2g}/" if self.tuning == "trial" else ""
        return f"{self.task.kind}/{self.encoding_name}/{rate}seed {self.seed}"

    @property
    def precision(self) -> Precision:
        """Precision of matrix products."""
        return self.training.precision
