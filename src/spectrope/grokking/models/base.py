"""Base class of models of operations on residues: two operands in, a score per result out."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core import Registered, Registry, SeededModule, initial_weights
from spectrope.encodings import Sized
from spectrope.grokking.tasks.modular import ModularConfig

MODULAR_MODELS: Registry[type["ModularModel"]] = Registry("model", "spectrope.grokking.models")


@dataclass(frozen=True, kw_only=True)
class ModularModelConfig(Sized):
    """Base of the models' configurations; modulus and vocabulary come from the task."""

    kind: ClassVar[str]

    def build(self, task: ModularConfig, seed: int) -> "ModularModel":
        """The untrained model; its weights depend on the seed alone.

        Args:
            task: Whose operands it reads.
            seed: Of its weights.
        """
        with initial_weights(seed):
            return MODULAR_MODELS[self.kind](self, task)


class ModularModel(Registered, SeededModule, ABC):
    """Base of the models of an operation on residues.

    Args:
        config: The model's own configuration.
        task: Whose operands it reads.
    """

    registry = MODULAR_MODELS

    Config: ClassVar[type[ModularModelConfig]] = ModularModelConfig

    def __init__(self, config: ModularModelConfig, task: ModularConfig) -> None:
        super().__init__()
        self.config, self.p, self.offset = config, task.p, task.offset

    def forward(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n p"]:
        """Logits of the p results for pairs of operands."""
        return self.read_out(self.represent(a, b))

    @abstractmethod
    def represent(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """What the last, linear map reads."""

    @abstractmethod
    def read_out(self, x: Float[Tensor, "n c"]) -> Float[Tensor, "n p"]:
        """Logits from a representation."""

    @abstractmethod
    def operands(self) -> tuple[Float[Tensor, "p c"], Float[Tensor, "p c"]]:
        """A vector per first and per second operand: its embedding, or what takes its place."""
