"""Whether a projection can separate two sets of vectors, such as embeddings of words and of positions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import check, real_matrix, rounding


@dataclass(frozen=True)
class SpanOverlap:
    r"""How the spans of two sets of vectors lie to each other.

    Args:
        first_rank: Dimension of the first span.
        second_rank: Dimension of the second.
        common: Dimension of their intersection. A linear map that keeps the first and removes the second
            exists if and only if it is 0.
        largest_cosine: Cosine of the smallest angle between the spans: 0 for orthogonal spans, 1 for spans
            that have a direction in common. The norm of the projection is :math:`1/\sqrt{1 - c^2}`.
    """

    first_rank: int
    second_rank: int
    common: int
    largest_cosine: float


def span_overlap(first: Tensor, second: Tensor, tolerance: float = 1e-9) -> SpanOverlap:
    """Dimensions and smallest angle of the spans of the rows of two matrices.

    >>> words, positions = torch.eye(3)[:1], torch.eye(3)[:2].sum(0, keepdim=True)
    >>> overlap = span_overlap(words, positions)
    >>> overlap.common, round(overlap.largest_cosine, 3)
    (0, 0.707)

    Args:
        first: Vectors as rows, with shape (n, d).
        second: Likewise, with shape (m, d).
        tolerance: Relative size below which singular values count as zero, or, where that is larger, the
            rounding of the type in which the vectors come.

    Raises:
        ConfigError: If the vectors of both do not have one width.
    """
    one, other = real_matrix(first, "first"), real_matrix(second, "second")
    check(
        one.shape[1] == other.shape[1],
        f"first and second must have one width; got {one.shape[1]} and {other.shape[1]}.",
    )
    tolerance = max(tolerance, rounding(first), rounding(second))
    a, b = _basis(one, tolerance), _basis(other, tolerance)
    joint = len(_basis(torch.cat([a, b]), tolerance)) if len(a) + len(b) else 0
    cosines = torch.linalg.svdvals(a @ b.T) if len(a) and len(b) else torch.zeros(1)
    return SpanOverlap(len(a), len(b), len(a) + len(b) - joint, min(1.0, cosines[0].item()))


def _basis(rows: Float[Tensor, "n d"], tolerance: float) -> Float[Tensor, "r d"]:
    """Orthonormal rows with the same span."""
    _, sizes, directions = torch.linalg.svd(rows, full_matrices=False)
    return directions[sizes > tolerance * sizes[0]] if sizes[0] > 0 else directions[:0]
