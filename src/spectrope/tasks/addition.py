"""The next digit of a sum, with position ids that say which digits belong together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from spectrope.core import indexed_integers, require, require_least
from spectrope.encodings import digit_positions
from spectrope.tasks.base import PADDING, Batch, Size, Task, TaskConfig

ZERO = 1  # Token id of the digit 0; the other digits follow.
PLUS, EQUALS = ZERO + 10, ZERO + 11


class Addition(Task, name="addition"):
    r"""Two numbers of n digits and the first k digits of their sum; the label is the next.

    All numbers are written lowest digit first: the sequence is :math:`a\,{+}\,b\,{=}\,s_0 \dots s_{k-1}` with
    digits of a and b uniform and :math:`k \sim U\{0..n\}`, and the label is :math:`s_k`, where
    :math:`a + b = \sum_k s_k 10^k`.

    The task may supply the position of each token. "coupled" gives :math:`m + 1` to the digits of weight
    :math:`10^m` of all three numbers, and 0 to both signs; "index" leaves positions to the model. The random
    offsets by which the papers below generalise to longer sums are not implemented.

    References:
        Position Coupling (Cho et al., 2024); the abacus embeddings of Transformers Can Do Arithmetic with the
        Right Embeddings (McLeish et al., 2024) number digits alike.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(TaskConfig):
        """Number of digits, and which positions the task supplies.

        Args:
            n_digits: Digits of each operand, leading zeros included.
            ids: Which positions the task supplies.
        """

        n_digits: int = 8
        ids: Literal["coupled", "index"] = "coupled"

        def __post_init__(self) -> None:
            require_least(self, 1, "n_digits")
            require(self.ids in ("coupled", "index"), self, "ids", "'coupled' or 'index'")

    sizes: ClassVar[Mapping[str, Size]] = {
        "mini": Size(config=Config(n_digits=4), epochs=8, pooling="last"),
        "small": Size(config=Config(n_digits=10), pooling="last"),
        "mid": Size(config=Config(n_digits=10), pooling="last"),
        "paper": Size(config=Config(n_digits=20), pooling="last"),
    }

    @property
    def n_classes(self) -> int:
        return 10

    @property
    def vocabulary(self) -> int:
        return EQUALS + 1

    @property
    def max_length(self) -> int:
        return 3 * self.config.n_digits + 2

    def sample(self, n: int, seed: int, start: int = 0) -> Batch:
        d, index = self.config.n_digits, np.arange(start, start + n)
        digits = indexed_integers(seed, "addition/digits", index, 2 * d, 10).reshape(n, 2, d)
        shown_digits = indexed_integers(seed, "addition/given", index, 1, d + 1)[:, 0]
        total = add(digits)
        signs = (np.full((n, 1), sign) for sign in (PLUS, EQUALS))
        parts = digits[:, 0] + ZERO, next(signs), digits[:, 1] + ZERO, next(signs), total[:, :d] + ZERO
        inputs, lengths = np.concatenate(parts, axis=1), 2 * d + 2 + shown_digits
        inputs[np.arange(self.max_length) >= lengths[:, None]] = PADDING
        labels = total[np.arange(n), shown_digits]
        shown = {"inputs": inputs, "labels": labels, "lengths": lengths}
        tensors = {name: torch.from_numpy(values) for name, values in shown.items()}
        is_digit = (tensors["inputs"] >= ZERO) & (tensors["inputs"] < PLUS)
        positions = digit_positions(is_digit) if self.config.ids == "coupled" else None
        return Batch(**tensors, positions=positions)

    def solve(self, batch: Batch, seed: int) -> Int[Tensor, " n"]:
        """The next digit of the sum of the operands that stand in each sequence."""
        d, inputs = self.config.n_digits, batch.inputs.cpu().numpy()
        digits = np.stack([inputs[:, :d], inputs[:, d + 1 : 2 * d + 1]], axis=1) - ZERO
        shown_digits = batch.lengths.cpu().numpy() - 2 * d - 2
        return torch.from_numpy(add(digits)[np.arange(len(inputs)), shown_digits])

    def bayes_accuracy(self, n: int = 8000, seed: int = 0) -> float:
        """1: the sequence decides its label."""
        return 1.0


def add(digits: Int[np.ndarray, "n 2 d"]) -> Int[np.ndarray, "n e"]:
    """Digits of sums of two numbers, lowest first, one more than the numbers have."""
    n, _, d = digits.shape
    total, carry = np.zeros((n, d + 1), np.int64), np.zeros(n, np.int64)
    for place in range(d):
        carry, total[:, place] = np.divmod(digits[:, :, place].sum(1) + carry, 10)
    total[:, d] = carry
    return total
