"""First-order attribution: estimates of all heads' importance from one forward and one backward pass."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.core import in_precision
from spectrope.lab.ablation.fills.base import needs_of, resolved_fill
from spectrope.lab.ablation.gather import derangement, donor_outputs, means_for
from spectrope.lab.ablation.passes import Piece, intact_sites
from spectrope.lab.evaluation.score import IGNORED, counted_labels, most_tokens, pieces
from spectrope.models import Decoder
from spectrope.tasks import Batch


@dataclass(frozen=True)
class Screening:
    """First-order estimates of the effect of changing each head.

    Args:
        fill: Replacement for head outputs.
        loss_increase_estimate: Estimated increase of the mean cross-entropy, in nats. Not a bound: where the
            network is confident, gradients vanish and the estimate is too small.
        n: Number of examples.
    """

    fill: str
    loss_increase_estimate: Float[np.ndarray, "layers heads"]
    n: int


def screen(
    model: Decoder,
    data: Batch,
    *,
    fill: str = "zero",
    batch_size: int = 256,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Screening:
    r"""Estimate the effect of every head by :math:`\langle \partial\ell/\partial O_h, R_h - O_h\rangle`.

    Here :math:`O_h` is the output of a head, :math:`R_h` its replacement and :math:`\ell` the cross-entropy.
    This first term of the Taylor series takes one forward and one backward pass for all heads.

    Args:
        model: A trained decoder.
        data: Held-out examples; those with an ignored label are left out.
        fill: Replacement for head outputs: a name in `FILLS`, or `file.py:Class`.
        batch_size: Maximum batch size.
        dtype: Precision of matrix products.
        seed: Seed for pairing examples when outputs are resampled.

    References:
        Attribution Patching (Nanda, 2023); Are Sixteen Heads Really Better than One? (Michel et al., 2019),
        Eq. 2, of which this is the signed form.
    """
    data = data[counted_labels(model, data.labels) != IGNORED]
    fill = resolved_fill(fill)
    means = means_for(needs_of([fill]), model, data, dtype)
    donors = data[derangement(len(data), seed)] if "donors" in needs_of([fill]) else None
    device = next(model.parameters()).device
    total = torch.zeros(model.config.n_layers, model.config.n_heads, dtype=torch.float64)
    for index, batch in pieces(model, data, batch_size, most_tokens(model)):
        with in_precision(device, dtype), torch.enable_grad():
            donated = None if donors is None else donor_outputs(model, donors[index], batch.inputs.shape[1])
            piece = Piece.of(model, batch.to(device), means=means, donors=donated)
            total += _attribution(piece, batch.labels.to(device), fill)
    return Screening(fill, (total / len(data)).numpy(), len(data))


def _attribution(piece: Piece, labels: Tensor, fill: str) -> Float[Tensor, "layers heads"]:
    """Estimated increase of the summed cross-entropy of one piece."""
    outputs, changes, x = [], [], piece.x
    for site in intact_sites(piece):
        outputs.append(site.outputs)
        changes.append((site.filled(fill) - site.outputs).detach())
        x = piece.block(len(outputs) - 1).after_heads(x, site.outputs, None)
    loss = F.cross_entropy(piece.readout(x[None])[0].float(), labels, reduction="sum")
    gradients = torch.autograd.grad(loss, outputs)
    terms = [(g * change).sum((0, 2, 3)) for g, change in zip(gradients, changes, strict=True)]
    return torch.stack(terms).double().cpu()
