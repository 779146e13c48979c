"""Configuration of a language model that is trained on repeated random tokens."""

from dataclasses import dataclass
from math import inf

from spectrope.core import SEEDS, require, require_least
from spectrope.lab import AnyExperiment


@dataclass(frozen=True, kw_only=True)
class RepeatedTokens(AnyExperiment):
    """One run: a Llama, trained until it predicts random tokens that repeat with a period of their own.

    No fixed lag predicts the next token of such a sequence, so that the model has to look up what followed
    the same token before, as induction heads do. Weights and tokens are drawn from the seed.
    """

    laboratory = "repeated-tokens"

    base: float = 100.0  # Of the rotation; with 100, the slowest pair turns by 0.84 radians over 63 lags.
    n_layers: int = 4
    n_heads: int = 4
    d_model: int = 128
    feed_forward: int = 256
    vocabulary: int = 64
    length: int = 64  # Tokens of a sequence.
    batch_size: int = 64
    steps: int = 6000  # At most.
    warmup: int = 100  # Steps.
    learning_rate: float = 1e-3
    enough: float = 0.96  # Accuracy on repeated tokens at which training stops.
    evaluate_every: int = 100  # Steps.
    seed: int = 0

    def __post_init__(self) -> None:
        require_least(self, 1, "n_layers", "n_heads", "feed_forward", "batch_size", "steps", "evaluate_every")
        require_least(self, 0, "seed", "warmup")
        require(self.seed < SEEDS, self, "seed", "below 2**63")
        require_least(self, 2, "vocabulary")
        require_least(self, 8, "length")
        require(self.d_model % (2 * self.n_heads) == 0, self, "d_model", "a multiple of twice n_heads")
        require(1 < self.base < inf, self, "base", "above 1 and finite")
        require(0 < self.learning_rate < inf, self, "learning_rate", "positive and finite")
        require(0 < self.enough <= 1, self, "enough", "a share in (0, 1]")

    @property
    def label(self) -> str:
        """A short name for progress bars and messages."""
        return f"repeated tokens/rope, base {self.base:g}/seed {self.seed}"

    @property
    def precision(self) -> str:
        """float32, in which it is trained."""
        return "float32"

    def rate(self, step: int) -> float:
        """Learning rate of a step, the first being 1."""
        return self.learning_rate * min(1.0, step / max(1, self.warmup))
