"""Distributions: rules that determine which pairs of operands may be used for training."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int

from spectrope.core import (
    ConfigError,
    Configured,
    Registered,
    Registry,
    from_dict,
    require,
    require_least,
)

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
        """Check the modulus.

        Raises:
            ConfigError: If it leaves no training pairs.
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


def distribution_of(name: str, k: int | None, default: int) -> Distribution:
    """The distribution of a name and a k, as commands take them.

    Args:
        name: A registered name.
        k: Its k; None takes the default where there is one.
        default: Of k; a negative one counts as 0.

    Raises:
        ConfigError: If the name is unknown, or a k is given where nothing is held out.
    """
    kind = DISTRIBUTIONS[name]
    if name != "random":
        return from_dict(kind, {"k": max(0, default) if k is None else k})
    if k is not None:
        raise ConfigError("--k goes with --distribution square or strip; random holds nothing out.")
    return kind()
