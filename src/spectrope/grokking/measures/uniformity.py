"""How evenly embeddings lie on the sphere, and how closely outputs of one label."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.grokking.measures.base import ProgressMeasure, Snapshot, on_sphere

TEMPERATURE = 2.0  # Of the Gaussian potential, as in the source.


class Uniformity(ProgressMeasure, name="uniformity"):
    r"""Uniformity and alignment on the sphere, whatever the norms, and the distance to the regular simplex.

    With :math:`u = E/\|E\|`, uniformity is :math:`\ln\,\mathrm{mean}_{r\ne s}\,e^{-2\|u_r-u_s\|^2}`, lower
    where embeddings are spread more evenly. Alignment is the mean of :math:`\|z - z'\|^2` over pairs of
    examples with the same label, z being what the last linear map reads, scaled to norm 1 unless it is zero.
    The distance to the simplex, which spreads p points as evenly as can be, is the root mean square of
    :math:`\cos(c_r, c_s) + 1/(p-1)` over :math:`r \ne s`, with c the embeddings less their mean; since
    single norms change that mean, it is independent of a common factor alone. Values of both operands are
    averaged.

    References:
        Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere
        (Wang and Isola, 2020), Eqs. 1 and 2.
    """

    columns: ClassVar = {
        "uniformity": "uniformity on the sphere, ln of a mean potential",
        "alignment": "alignment of representations with the same label, squared distance",
        "simplex_distance": "distance to the regular simplex, in cosines",
    }

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        both = snapshot.operands
        return {
            "uniformity": sum(map(uniformity, both)) / 2,
            "alignment": alignment(snapshot),
            "simplex_distance": sum(map(simplex_distance, both)) / 2,
        }


def uniformity(embeddings: Float[Tensor, "p c"]) -> float:
    """Log of the mean Gaussian potential of two different points."""
    potential = (-TEMPERATURE * torch.pdist(on_sphere(embeddings)).square()).exp()
    return potential.mean().log().item()


def simplex_distance(embeddings: Float[Tensor, "p c"]) -> float:
    """Root mean square deviation of cosines from those of a regular simplex."""
    p = len(embeddings)
    unit = on_sphere(embeddings - embeddings.mean(0))
    excess = unit @ unit.T + 1 / (p - 1)
    return excess[~torch.eye(p, dtype=torch.bool)].square().mean().sqrt().item()


def alignment(snapshot: Snapshot) -> float | None:
    r"""Mean squared distance of unit representations over pairs of different examples with one label.

    The m examples of a label with sum s, of which k are on the sphere and the others zero, have
    :math:`\sum_{i\ne j}\|u_i-u_j\|^2 = 2(mk - \|s\|^2)`.
    """
    unit, labels = on_sphere(snapshot.representations), snapshot.split.pairs.labels
    n_labels = snapshot.logits.shape[1]
    counts = torch.bincount(labels, minlength=n_labels).double()
    on = torch.bincount(labels[unit.any(1)], minlength=n_labels)
    sums = unit.new_zeros(len(counts), unit.shape[1]).index_add_(0, labels, unit)
    pairs = (counts * (counts - 1)).sum().item()
    apart = 2 * (counts * on - sums.square().sum(1)).sum().item()
    return apart / pairs if pairs else None
