"""Which pairs of operands may train a model, as objects."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from spectrope.core import Configured, Registered, Registry, require, require_least

DISTRIBUTIONS: Registry[type["Distribution"]] = Registry("data distribution", "spectrope.grokking.tasks")

Operands = Int[np.ndarray, " n"]
Held = Bool[np.ndarray, " n"]


class Distribution(Registered, Configured):
    """Base of the rules that hold pairs out of training; each is a frozen dataclass known by its name."""

    registry = DISTRIBUTIONS
    kind: ClassVar[str]

    def held_out(self, a: Operands, b: Operands) -> Held:
        """Whether each pair of operands is held out of training whatever the seed."""
        raise NotImplementedError

    def check(self, p: int) -> None:
        """Refuse a modulus that leaves nothing to train on.

        Raises:
            ConfigError: If so.
        """


@dataclass(frozen=True, kw_only=True)
class Random(Distribution, name="random"):
    """Every pair may train."""

    def held_out(self, a: Operands, b: Operands) -> Held:
        return np.zeros(len(a), bool)


@dataclass(frozen=True, kw_only=True)
class Square(Distribution, name="square"):
    """Holds out the pairs both of whose operands are at most k ("rec" in the public code of the paper)."""

    k: int = 50  # Largest operand of the square; its side is k + 1.

    def __post_init__(self) -> None:
        require_least(self, 0, "k")

    def held_out(self, a: Operands, b: Operands) -> Held:
        return (a <= self.k) & (b <= self.k)

    def check(self, p: int) -> None:
        require(self.k < p - 1, self, "k", f"below p - 1, {p - 1}", "No pair would be left to train on.")


@dataclass(frozen=True, kw_only=True)
class Strip(Distribution, name="strip"):
    """Holds out the pairs whose first operand is at most k ("str" in the public code of the paper)."""

    k: int = 50  # Largest first operand of the strip.

    def __post_init__(self) -> None:
        require_least(self, 0, "k")

    def held_out(self, a: Operands, b: Operands) -> Held:
        return a <= self.k

    def check(self, p: int) -> None:
        require(self.k < p - 1, self, "k", f"below p - 1, {p - 1}", "No pair would be left to train on.")
