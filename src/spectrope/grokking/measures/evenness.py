"""Token uniformity: whether all tokens are arranged equivalently."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from spectrope.grokking.measures.base import ProgressMeasure, Snapshot


class Unevenness(ProgressMeasure, name="unevenness"):
    r"""How far embeddings are from token uniformity: :math:`\|G - \bar G\|_F / \|G\|_F`, from 0 to 1.

    Tokens are uniform if none is distinguished: all have the same distance from their mean, and the distance
    between two tokens depends only on the step from one to the other. Then the Gram matrix :math:`G_{rs} =
    \langle E_r - \bar E, E_s - \bar E\rangle` is circulant in the order of the group. :math:`\bar G` is the
    nearest circulant, the mean of G along each step. The ratio does not depend on a common factor, nor on a
    vector that all tokens share. Random tokens are more uniform in higher dimensions (0.57 for 59 tokens in
    128 dimensions), so only compare embeddings of the same width. This is our reading of the condition under
    which the paper says that weight decay is at a local minimum.

    References:
        arXiv 2504.03162, which speaks of uniformity; the measure is ours.
    """

    columns: ClassVar = {"unevenness": "distance from token uniformity, share of the Gram matrix"}

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        shares = [unevenness(of[snapshot.cycle]) for of in snapshot.operands]
        return {"unevenness": None if None in shares else sum(filter(None, shares)) / 2}


def unevenness(embeddings: Float[Tensor, "m c"]) -> float | None:
    """Share of a centred Gram matrix that is not circulant, or None where all embeddings are the same."""
    centred = embeddings - embeddings.mean(0)
    gram = centred @ centred.T
    size = gram.norm()
    if size == 0:
        return None
    m = len(gram)
    steps = gram.new_tensor([[(s - r) % m for s in range(m)] for r in range(m)]).long()
    means = gram.new_zeros(m).index_add_(0, steps.flatten(), gram.flatten()) / m
    return ((gram - means[steps]).norm() / size).item()
