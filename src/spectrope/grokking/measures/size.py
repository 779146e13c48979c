"""How large the weights are, and how many dimensions the embeddings fill."""

from typing import ClassVar

import torch

from spectrope.grokking.measures.base import ProgressMeasure, Snapshot
from spectrope.spectral import effective_ranks


class WeightNorm(ProgressMeasure, name="weight_norm"):
    r"""Euclidean norm :math:`\|\theta\|_2` of all trained parameters.

    References:
        Omnigrok: Grokking Beyond Algorithmic Data (Liu et al., 2023), Sec. 2.
    """

    columns: ClassVar = {"weight_norm": "norm of all weights"}

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        squares = [weight.square().sum() for weight in snapshot.weights.values()]
        return {"weight_norm": torch.stack(squares).sum().sqrt().item()}


class EffectiveRank(ProgressMeasure, name="effective_rank"):
    r"""Effective rank :math:`\exp(-\sum p\ln p)` of centred embeddings, p the singular values' shares.

    Values of both operands are averaged.

    References:
        The Effective Rank: A Measure of Effective Dimensionality (Roy and Vetterli, 2007), Eq. 5.
    """

    columns: ClassVar = {"effective_rank": "effective rank of the embeddings, dimensions"}

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        values = [torch.linalg.svdvals(of - of.mean(0)) for of in snapshot.operands]
        if any(one.max() == 0 for one in values):
            return {"effective_rank": None}
        return {"effective_rank": sum(effective_ranks(one).entropy.item() for one in values) / 2}
