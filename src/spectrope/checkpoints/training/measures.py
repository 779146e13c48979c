"""Measures of a head that are recorded during training."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.training.heard import HeardLayer
from spectrope.spectral import band_gram, toeplitz_shares

BANDS = 4  # Bands of frequencies, as equal in width as can be.


def head_measures(heard: HeardLayer, layout: Layout | None) -> list[Mapping[str, float]]:
    """Of each head: its Toeplitz share, reach, norms of queries and keys, and use of the bands.

    "toeplitz_share" is the share of lags in the energy of the logits beyond row effects, "reach" the mean
    distance, in positions, at which the head's attention lies, and "band_0" to "band_3" the shares of the
    logits' energy that pairs of high to low frequency add.

    Args:
        heard: The heads of one layer.
        layout: Which coordinates turn, in the order of their frequencies; None where none do.
    """
    q, k = heard.q.double().cpu(), heard.k.double().cpu()
    logits = heard.scale * q @ k.mT
    if heard.added is not None:
        logits = logits + heard.added.double().cpu()
    shares = toeplitz_shares(logits, heard.causal).gauge_fixed
    reach = _reach(logits, heard.causal)
    return [
        {
            "toeplitz_share": shares[i].item(),
            "reach": reach[i].item(),
            "query_norm": q[i].norm(dim=-1).mean().item(),
            "key_norm": k[i].norm(dim=-1).mean().item(),
            **({} if layout is None else _bands(layout.planes(q[i]), layout.planes(k[i]), heard.causal)),
        }
        for i in range(len(q))
    ]


def _reach(logits: Float[Tensor, "h n n"], causal: bool) -> Float[Tensor, " h"]:
    """Mean over queries of the expected distance to a key under the head's attention."""
    n = logits.shape[-1]
    distance = (torch.arange(n)[:, None] - torch.arange(n)).abs().double()
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else torch.zeros(n, n, dtype=torch.bool)
    return (logits.masked_fill(hidden, -torch.inf).softmax(-1) * distance).sum(-1).mean(-1)


def _bands(q: Tensor, k: Tensor, causal: bool) -> dict[str, float]:
    bands = min(BANDS, q.shape[-1])
    gram = band_gram(q, k, causal).grouped(bands)
    return {f"band_{i}": share for i, share in enumerate(gram.shares.tolist())} if gram.energy > 0 else {}
