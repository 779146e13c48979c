"""Interaction of content and lag in logits, which additive encodings lack (Prop. B.2 of the paper)."""

import torch
from torch import Tensor

from spectrope.spectral.checks import check, real_matrix, rounding


def interaction_rank(logits: Tensor, tolerance: float = 1e-9) -> int:
    r"""Rank of what no sum of a function of content and a function of the lag explains.

    Row and column means are removed, so that a logit of the form :math:`a(u, v) + b(\delta)` has rank 0.
    Every additive encoding of the lag has this form, whatever its bias. RoPE with m frequencies gives
    :math:`\sum_t \operatorname{Re}(q^t k^{t*} e^{i\delta\theta_t})`, hence at most 2m.

    >>> content, bias = torch.randn(50, 1, dtype=torch.float64), torch.randn(30, dtype=torch.float64)
    >>> interaction_rank(content + bias)
    0

    Args:
        logits: Logit of each pair of contents at each lag, with shape (pairs, lags).
        tolerance: Singular values below this share of the largest one of the logits count as zero, or, where
            that is larger, below the rounding of the type in which the logits come.

    Raises:
        ConfigError: If there is only one pair or one lag.
    """
    table = real_matrix(logits, "logits")
    check(min(table.shape) > 1, f"logits must have 2 pairs and 2 lags or more; got {tuple(table.shape)}.")
    centred = table - table.mean(0) - table.mean(1, keepdim=True) + table.mean()
    largest = torch.linalg.matrix_norm(table, ord=2)
    least = max(tolerance, rounding(logits))
    return int((torch.linalg.svdvals(centred) > least * largest).sum())
