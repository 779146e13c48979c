"""How few frequencies carry the embeddings."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.grokking.measures.base import ProgressMeasure, Snapshot
from spectrope.stats import gini


class FourierSparsity(ProgressMeasure, name="fourier"):
    r"""Gini index of the power of embeddings over frequencies: 0 for a flat spectrum, near 1 for one wave.

    The power of frequency k is :math:`\sum_c |\hat E_{kc}|^2` for the discrete Fourier transform over
    residues in the order of the group, k from 1 to half their number. Values of both operands are averaged.

    References:
        Progress Measures for Grokking via Mechanistic Interpretability (Nanda et al., 2023), Sec. 5.1.
    """

    columns: ClassVar = {"fourier_gini": "Gini index of the embeddings' power over frequencies"}

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        power = [spectrum(of[snapshot.cycle]) for of in snapshot.operands]
        if any(one.sum() == 0 for one in power):
            return {"fourier_gini": None}
        return {"fourier_gini": sum(float(gini((one / one.sum()).numpy())) for one in power) / 2}


def spectrum(x: Float[Tensor, "m c"]) -> Float[Tensor, " k"]:
    """Power of each frequency but 0 of a signal over a cycle."""
    return torch.fft.rfft(x, dim=0)[1:].abs().square().sum(1)
