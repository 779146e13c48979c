"""The main embedding difference."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from spectrope.grokking.measures.base import ProgressMeasure, Snapshot, on_sphere


class MainEmbeddingDifference(ProgressMeasure, name="med"):
    r"""Mean distance of neighbours: :math:`\tfrac12\sum_{o\in\{a,b\}}\mathrm{mean}_r\|E^o_{r+1} - E^o_r\|`.

    Where embeddings are fixed, what the first hidden layer is given for an operand takes their place. Weight
    decay alone shrinks embeddings, and the measure with them; `med_unit` has every embedding scaled to norm
    1 first, so that it tells directions apart from norms.

    References:
        arXiv 2504.03162. Its public code adds both operands instead of averaging them in some scripts, leaves
        the last residue out, and in one script multiplies by p - 1.
    """

    columns: ClassVar = {
        "med": "MED: mean distance of neighbouring embeddings",
        "med_unit": "MED of embeddings scaled to norm 1",
    }

    def __call__(self, snapshot: Snapshot) -> dict[str, float | None]:
        both = snapshot.operands
        return {
            "med": sum(map(neighbour_distance, both)) / 2,
            "med_unit": sum(neighbour_distance(on_sphere(of)) for of in both) / 2,
        }


def neighbour_distance(embeddings: Float[Tensor, "p c"]) -> float:
    """Mean distance of each embedding from the next."""
    return embeddings[1:].sub(embeddings[:-1]).norm(dim=-1).mean().item()
