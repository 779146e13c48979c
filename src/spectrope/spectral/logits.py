"""Batches of dense logits: causal masks, removal of row means, sums over lags."""

import torch
from jaxtyping import Bool, Float, Inexact
from torch import Tensor

from spectrope.spectral.checks import check, tensor, wide


def allowed_pairs(n: int, causal: bool) -> Bool[Tensor, "n n"]:
    """Which keys each query sees: all of them, or those up to itself."""
    everything = torch.ones(n, n, dtype=torch.bool)
    return everything.tril() if causal else everything


def masked(logits: Tensor, causal: bool = False) -> Inexact[Tensor, "*b n n"]:
    """Logits with zeros where attention is not allowed; what stands there is never read.

    Raises:
        ConfigError: If the logits are not square.
    """
    logits = tensor(logits, "logits")
    is_square = logits.ndim >= 2 and logits.shape[-1] == logits.shape[-2]
    check(is_square, f"logits must be square; got {tuple(logits.shape)}.")
    return torch.where(allowed_pairs(logits.shape[-1], causal).to(logits.device), logits, 0)


def row_centred(logits: Tensor, causal: bool = False) -> Float[Tensor, "*b n n"]:
    r"""Logits minus their row means over the allowed keys, and zeros elsewhere.

    Softmax is invariant under :math:`L \to L + r 1^\top`, whereas spectra are not.

    >>> row_centred(torch.tensor([[1.0, 9.0], [2.0, 4.0]]), causal=True)
    tensor([[ 0.,  0.],
            [-1.,  1.]], dtype=torch.float64)

    Raises:
        ConfigError: If the logits are not square, or an allowed one is not finite.
    """
    logits = wide(masked(logits, causal), "logits")
    allowed = allowed_pairs(logits.shape[-1], causal).to(logits.device)
    means = logits.sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
    return torch.where(allowed, logits - means, 0)


def diagonal_sums(matrices: Inexact[Tensor, "*b n n"]) -> Inexact[Tensor, "*b lags"]:
    """Sums over all diagonals, from lag -(n-1) to n-1.

    Rows of one more entry than a diagonal has places turn diagonals into columns.

    >>> diagonal_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([2., 5., 3.])
    """
    n, batch = matrices.shape[-1], matrices.shape[:-2]
    rows = torch.nn.functional.pad(matrices.flip(-1), (0, n)).flatten(-2)[..., :-n]
    return rows.reshape(*batch, n, 2 * n - 1).sum(-2)


def ratio(
    part: Float[Tensor, "*b"], whole: Float[Tensor, "*b"], scale: Float[Tensor, "*#b"]
) -> Float[Tensor, "*b"]:
    """part / whole, or NaN where the whole is rounding noise of `scale`."""
    return torch.where(whole > 1e-13 * scale, part / whole, torch.nan)
