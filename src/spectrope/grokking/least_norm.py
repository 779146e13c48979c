"""A small norm at which a model still solves the training pairs, and the embeddings reached."""

import math
from dataclasses import dataclass

import polars as pl
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.core import Configured, require, require_least
from spectrope.grokking.measures.base import on_sphere
from spectrope.grokking.measures.evenness import unevenness
from spectrope.grokking.models.base import ModularModel
from spectrope.grokking.tasks.modular import Pairs, Split

MARGIN = 1.0  # By which the right logit must exceed every other one.


@dataclass(frozen=True, kw_only=True)
class NormDescent(Configured):
    r"""Lowers :math:`\tfrac12\|\theta\|^2` near the set where every training pair has a margin of 1.

    That set is where a squared hinge loss vanishes; cross-entropy vanishes nowhere. It is approached by
    :math:`\ell(\theta) + \tfrac\lambda2\|\theta\|^2` with :math:`\lambda\to0` in stages (a penalty method):
    what is left of the loss is of order :math:`\lambda^2`, so that margins end a little below 1. Adam, full
    batch. The norm reached is neither feasible nor certified as the smallest.
    """

    fit: int = 600  # Steps that fit the training pairs first, without any decay.
    stages: int = 8
    steps: int = 400  # Of each stage.
    decay: float = 1e-2  # The first stage's lambda.
    ratio: float = 0.7  # Of each lambda to the one before.
    rate: float = 1e-3

    def __post_init__(self) -> None:
        require_least(self, 1, "fit", "stages", "steps")
        require(0 < self.decay < math.inf, self, "decay", "positive and finite")
        require(0 < self.ratio < 1, self, "ratio", "between 0 and 1")
        require(0 < self.rate < math.inf, self, "rate", "positive and finite")

    def __call__(self, model: ModularModel, split: Split, cycle: Int[Tensor, " m"]) -> pl.DataFrame:
        """Change a model in place, and return its scores after the fit and after each stage.

        Columns: `decay`, the stage's lambda; `norm` of all parameters; `loss`, the mean squared hinge;
        accuracies as fractions; `unevenness` and `med_unit` of the first operands' embeddings.
        """
        adam, train = torch.optim.Adam(model.parameters(), lr=self.rate), split.train
        rows, decays = [], [0.0, *(self.decay * self.ratio**stage for stage in range(self.stages))]
        for decay in decays:
            for _ in range(self.steps if decay else self.fit):
                adam.zero_grad()
                loss = hinge(model(train.a, train.b), train.labels) + 0.5 * decay * squared_norm(model)
                loss.backward()
                adam.step()
            rows.append({"decay": decay, **_told(model, split, cycle)})
        return pl.DataFrame(rows)


def hinge(logits: Float[Tensor, "n p"], labels: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Squared shortfalls of the margins over all wrong results, summed over these, mean over pairs."""
    gaps = logits.gather(1, labels[:, None]) - logits
    short = F.relu(MARGIN - gaps).scatter(1, labels[:, None], 0.0)
    return short.square().sum(1).mean()


def squared_norm(model: ModularModel) -> Float[Tensor, ""]:
    """Sum of the squares of all trained parameters."""
    return torch.stack([p.square().sum() for p in model.parameters() if p.requires_grad]).sum()


@torch.no_grad()
def _told(model: ModularModel, split: Split, cycle: Int[Tensor, " m"]) -> dict[str, float | None]:
    of_a = model.operands()[0].double()
    steps = on_sphere(of_a).diff(dim=0).norm(dim=1)
    return {
        "norm": squared_norm(model).sqrt().item(),
        "loss": hinge(model(split.train.a, split.train.b), split.train.labels).item(),
        "train_accuracy": _accuracy(model, split.train),
        "test_accuracy": _accuracy(model, split.test),
        "unevenness": unevenness(of_a[cycle]),
        "med_unit": steps.mean().item(),
    }


def _accuracy(model: ModularModel, pairs: Pairs) -> float:
    return (model(pairs.a, pairs.b).argmax(1) == pairs.labels).double().mean().item()
