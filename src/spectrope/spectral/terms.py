"""Content and position terms of attention logits: Eq. 8 of the paper, for heads of trained models."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.spectral.checks import check, tensor, wide
from spectrope.spectral.hidden import Effects
from spectrope.spectral.logits import masked, row_centred


@dataclass(frozen=True, eq=False)
class SplitVectors:
    """Queries or keys as a sum of three parts, in the units of the vectors.

    Args:
        content: What does not depend on the position: the mean of all vectors plus the effect of the token.
        position: The effect of the position, with mean 0.
        interaction: The remainder, which violates Assumption 3.1.
    """

    content: Float[Tensor, "*b n d"]
    position: Float[Tensor, "*b n d"]
    interaction: Float[Tensor, "*b n d"]

    @classmethod
    def of(cls, effects: Effects) -> "SplitVectors":
        """The parts of vectors whose effects have been estimated, one row per vector."""
        return cls(effects.mean + effects.content, effects.position, effects.residual)

    @property
    def total(self) -> Float[Tensor, "*b n d"]:
        """The vectors themselves."""
        return self.content + self.position + self.interaction


@dataclass(frozen=True, eq=False)
class TermEnergies:
    r"""How the energy of logits is distributed over terms, row means removed, which softmax ignores.

    With terms :math:`L_a` and :math:`L = \sum_a L_a`, `share` is :math:`\|L_a\|^2/\|L\|^2` and `covariance`
    is :math:`\sum_{b\ne a}\langle L_a, L_b\rangle/\|L\|^2`. Together they sum to 1 over terms. A share can
    exceed 1 where terms cancel.

    Args:
        share: A fraction per term, with shape (terms,); NaN where the logits have no energy.
        covariance: Likewise; 0 for orthogonal terms.
    """

    share: Float[Tensor, " terms"]
    covariance: Float[Tensor, " terms"]


def logit_matrices(q: SplitVectors, k: SplitVectors) -> dict[str, Float[Tensor, "*b n n"]]:
    r"""The terms of :math:`QK^\top` by name; their sum is the product itself.

    The four terms of content and position are those of Eq. 8, the queries' part first, as in
    "content-position". "interaction" collects all products in which one side is the remainder that no sum of
    content and position explains.

    >>> q, k = (SplitVectors(*torch.randn(3, 5, 2, dtype=torch.float64)) for _ in range(2))
    >>> torch.testing.assert_close(sum(logit_matrices(q, k).values()), q.total @ k.total.T)

    Args:
        q: Parts of the queries as they enter the product, rotated where there is a rotation.
        k: Parts of the keys likewise.
    """
    four = {
        f"{left}-{right}": getattr(q, left) @ getattr(k, right).mT
        for left in ("content", "position")
        for right in ("content", "position")
    }
    return four | {"interaction": q.total @ k.total.mT - sum(four.values())}


def term_energies(terms: Tensor, causal: bool = False) -> TermEnergies:
    """Shares and covariances of terms of logits, over all matrices of a batch together.

    >>> lag = torch.arange(6.0)[:, None] - torch.arange(6.0)
    >>> shares = term_energies(torch.stack([lag, lag]))  # two equal terms
    >>> shares.share, shares.covariance
    (tensor([0.2500, 0.2500], dtype=torch.float64), tensor([0.2500, 0.2500], dtype=torch.float64))

    Args:
        terms: Logits of each term, with shape (terms, *b, n, n).
        causal: Whether query i attends to keys j <= i only.

    Raises:
        ConfigError: If there is no dimension of terms.
    """
    terms = tensor(terms, "terms")
    check(terms.ndim >= 3, f"terms must have shape (terms, *b, n, n); got {tuple(terms.shape)}.")
    flat = row_centred(wide(masked(terms, causal), "terms"), causal).flatten(1)
    gram = flat @ flat.T
    total = gram.sum()
    if total <= 1e-13 * gram.diagonal().sum():
        total = gram.new_tensor(torch.nan)
    return TermEnergies(gram.diagonal() / total, (gram.sum(1) - gram.diagonal()) / total)
