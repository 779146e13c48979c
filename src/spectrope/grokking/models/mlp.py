"""A multi-layer perceptron on the concatenated embeddings of both operands."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.core import require_least
from spectrope.grokking.models.base import ModularModel, ModularModelConfig
from spectrope.grokking.models.layer import pick
from spectrope.grokking.tasks.modular import ModularConfig


class ModularMLP(ModularModel, name="mlp"):
    r"""Two hidden ReLU layers, with biases: :math:`W_3\,\sigma(W_2\,\sigma(W_1[E_a; E_b]))`.

    Since :math:`W_1[E_a; E_b] = W_{1a}E_a + W_{1b}E_b`, each half is made once per residue and added up per
    pair. One-hot embeddings are not trained, and :math:`W_{1a}e_a` is a column of the weights: what the first
    hidden layer is given for an operand takes the place of its embedding.

    References:
        arXiv 2504.03162, whose public code has a third embedding, of "=", which acts as one more bias.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModularModelConfig):
        """Sizes, and whether embeddings are trained."""

        d_model: int = 128  # Width of a learned embedding.
        hidden: int = 512  # Width of both hidden layers.
        embedding: Literal["learned", "one_hot"] = "learned"

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "hidden")

    def __init__(self, config: "ModularMLP.Config", task: ModularConfig) -> None:
        super().__init__(config, task)
        self.learned = config.embedding == "learned"
        width = config.d_model if self.learned else task.p
        if self.learned:
            self.tokens = nn.Parameter(torch.randn(task.offset + task.p, width) * width**-0.5)
        self.first = nn.Linear(2 * width, config.hidden)
        self.second = nn.Linear(config.hidden, config.hidden)
        self.last = nn.Linear(config.hidden, task.p)

    def represent(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        of_a, of_b = self._halves()
        return self.second((pick(of_a, a) + pick(of_b, b)).relu_()).relu_()

    def read_out(self, x: Float[Tensor, "n c"]) -> Float[Tensor, "n p"]:
        return self.last(x)

    def operands(self) -> tuple[Float[Tensor, "p c"], Float[Tensor, "p c"]]:
        return self._embeddings() if self.learned else self._halves(bias=False)

    def _embeddings(self) -> tuple[Tensor, Tensor]:
        return self.tokens[: self.p], self.tokens[self.offset : self.offset + self.p]

    def _halves(self, *, bias: bool = True) -> tuple[Tensor, Tensor]:
        """What the first layer makes of each operand, the bias with the first one, each (p, hidden)."""
        to_a, to_b = self.first.weight.chunk(2, 1)
        offset = self.first.bias if bias else None
        if not self.learned:
            return (to_a.T if offset is None else to_a.T + offset), to_b.T
        e_a, e_b = self._embeddings()
        return F.linear(e_a, to_a, offset), F.linear(e_b, to_b)
