"""Operations on residues: the finite data set of all pairs, exactly split."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from spectrope.core import Configured, OneOf, numpy_stream, require
from spectrope.grokking.tasks.arithmetic import Expression, Residues
from spectrope.grokking.tasks.distributions import DISTRIBUTIONS, Distribution, Random

LARGEST = 512  # Modulus of which all logits of all pairs, in float64, take 1 GiB.
MULTIPLICATIVE = ("a * b", "a / b", "b / a")  # However they are written, these multiply in a cyclic group.


@dataclass(frozen=True)
class Pairs:
    """Pairs of operands with their results.

    Args:
        a: First operands, from 0 to p - 1, with shape (n,).
        b: Second operands, likewise.
        labels: Results, likewise.
    """

    a: Int[Tensor, " n"]
    b: Int[Tensor, " n"]
    labels: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: Tensor) -> "Pairs":
        """The pairs that an index tensor or a mask selects."""
        return Pairs(self.a[index], self.b[index], self.labels[index])

    def to(self, device: torch.device) -> "Pairs":
        """These pairs on another device."""
        return Pairs(self.a.to(device), self.b.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Split:
    """All pairs for which the operation is defined, and what each is for.

    Args:
        pairs: Every one, ordered by a, then b.
        trains: Whether a pair is trained on; the others are the test set.
        held_out: Whether the distribution keeps a pair out of training whatever the seed.
    """

    pairs: Pairs
    trains: Bool[Tensor, " n"]
    held_out: Bool[Tensor, " n"]

    @property
    def train(self) -> Pairs:
        """The training pairs."""
        return self.pairs[self.trains]

    @property
    def test(self) -> Pairs:
        """The test pairs: what is held out, and what the fraction leaves."""
        return self.pairs[~self.trains]


@dataclass(frozen=True, kw_only=True)
class ModularConfig(Configured):
    """An operation on residues, and the pairs used for training.

    Operand a is token a, operand b token b + offset and "=" the last token: offset 0 is one vocabulary for
    both operands, offset p (or more) two that are disjoint, and what lies between two that overlap.
    """

    p: int = 97  # Modulus.
    operation: str = "add"  # add, sub, quadratic, mul, div, or arithmetic in a and b.
    distribution: Annotated[Distribution, OneOf(DISTRIBUTIONS)] = field(default_factory=Random)
    fraction: float = 0.5  # Of all pairs that train, as far as the distribution lets them.
    offset: int = 0  # Tokens between the two operands' vocabularies.
    allow_composite: bool = False  # Whether p need not be prime.

    def __post_init__(self) -> None:
        require(2 <= self.p <= LARGEST, self, "p", f"between 2 and {LARGEST}")
        way_out = "Residues modulo a composite number do not form a field; use allow_composite to allow them."
        require(self.allow_composite or is_prime(self.p), self, "p", "prime", way_out)
        Expression(self.operation)
        require(0 < self.fraction < 1, self, "fraction", "a share of all pairs strictly between 0 and 1")
        require(0 <= self.offset <= LARGEST, self, "offset", f"between 0 and {LARGEST}")
        self.distribution.check(self.p)

    @property
    def vocabulary(self) -> int:
        """Number of token ids, "=" included."""
        return self.p + self.offset + 1

    def build(self) -> "Modular":
        """The task that this configuration describes."""
        return Modular(self)


class Modular:
    r"""All pairs of residues under an operation: :math:`(a, b) \mapsto a \circ b \bmod p`.

    Args:
        config: The operation and what trains.

    References:
        Grokking (Power et al., 2022), Sec. 2; arXiv 2504.03162 for the distributions.
    """

    def __init__(self, config: ModularConfig) -> None:
        self.config, self._expression = config, Expression(config.operation)

    def pairs(self) -> Pairs:
        """Every pair for which the operation is defined, ordered by a, then b."""
        a, b = (side.ravel() for side in np.indices((self.config.p, self.config.p)))
        labels, defined = self._expression(a, b, self.config.p)
        return Pairs(*(torch.from_numpy(values[defined]) for values in (a, b, labels)))

    def solve(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
        """The operation's own results: the oracle. Pairs for which it is undefined give 0."""
        return torch.from_numpy(self._expression(a.cpu().numpy(), b.cpu().numpy(), self.config.p)[0])

    def cycle(self) -> Int[Tensor, " m"]:
        """Residues in the order of the operation's cyclic group, over which frequencies are defined.

        That is 0, ..., p - 1, and for multiplication and division by a prime the powers of a primitive root,
        which leave 0 out.
        """
        p = self.config.p
        a, b = (side.ravel() for side in np.indices((p, p)))
        results = [Expression(text)(a, b, p) for text in MULTIPLICATIVE]
        result = self._expression(a, b, p)
        if not is_prime(p) or not any(all(map(np.array_equal, result, one)) for one in results):
            return torch.arange(p)
        return torch.tensor(_powers_of_a_primitive_root(p))

    def split(self, seed: int) -> Split:
        """The exact split that a seed names, on whatever machine.

        round(fraction * number of pairs) of the pairs that the distribution lets train are drawn without
        replacement, or all of them where there are fewer. If a result is missing from the draw, such as 0
        under `quadratic`, which only (0, 0) gives for many p, its next pair in the order of the draw replaces
        the last drawn pair whose result has other pairs.

        Raises:
            ConfigError: If nothing would be left to test on, or some result cannot have a pair to learn it
                from.
        """
        pairs, config = self.pairs(), self.config
        require(len(pairs) > 0, config, "operation", "defined for some pair")
        held_out = config.distribution.held_out(pairs.a.numpy(), pairs.b.numpy())
        allowed = np.flatnonzero(~held_out)
        size = min(round(config.fraction * len(pairs)), len(allowed))
        order = numpy_stream(seed, "modular/split").permutation(allowed)
        drawn = _with_every_result(order, size, pairs.labels.numpy())
        trains = torch.zeros(len(pairs), dtype=torch.bool)
        trains[torch.from_numpy(drawn)] = True
        split = Split(pairs, trains, torch.from_numpy(held_out))
        self._check(split)
        return split

    def _check(self, split: Split) -> None:
        tests = len(split.test) > 0
        require(tests, self.config, "fraction", "small enough to leave a pair to test on")
        results = set(split.pairs.labels.tolist())
        hidden = min(results - set(split.pairs.labels[~split.held_out].tolist()), default=None)
        rule = "lenient enough for every result to have a training pair"
        way_out = f"Every pair with result {hidden} is held out; choose another k, p or operation."
        require(hidden is None, self.config, "distribution", rule, way_out)
        rule = "large enough for every result to be trained on"
        way_out = f"There are {len(results)} results, and {len(split.train)} training pairs."
        require(results == set(split.train.labels.tolist()), self.config, "fraction", rule, way_out)


def _with_every_result(order: Residues, size: int, labels: Int[np.ndarray, " m"]) -> Int[np.ndarray, " k"]:
    """The first `size` pairs of an order, with as few exchanged as it takes for every result to occur."""
    drawn, rest = list(order[:size]), order[size:]
    results, first = np.unique(labels[rest], return_index=True)
    counts = np.bincount(labels[drawn], minlength=int(labels.max()) + 1)
    for newcomer in rest[first[counts[results] == 0]]:
        leaver = next((n for n in reversed(range(size)) if counts[labels[drawn[n]]] > 1), None)
        if leaver is None:
            break
        counts[labels[drawn[leaver]]] -= 1
        drawn[leaver] = newcomer
        counts[labels[newcomer]] += 1
    return np.array(drawn, dtype=np.int64)


def is_prime(n: int) -> bool:
    """Whether a whole number is prime, by trial division."""
    return n >= 2 and all(n % divisor for divisor in range(2, int(n**0.5) + 1))


def _powers_of_a_primitive_root(p: int) -> list[int]:
    """1, g, g**2, ... modulo a prime, for the least g whose powers are all residues but 0."""
    for root in range(1, p):
        powers = [1]
        while (power := powers[-1] * root % p) != 1:
            powers.append(power)
        if len(powers) == p - 1:
            return powers
    raise AssertionError("every prime has a primitive root")
