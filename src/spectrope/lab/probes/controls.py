"""Controls of a Toeplitz share: the same model on shuffled text, and without its encoding."""

from dataclasses import replace

import torch

from spectrope.core import torch_stream
from spectrope.lab.probes.heads import LayerHeads, capture_heads
from spectrope.models import Decoder
from spectrope.spectral import lag_effects
from spectrope.stats import Intervals, mean_intervals
from spectrope.tasks import Batch


def shuffled(batch: Batch, seed: int) -> Batch:
    """The tokens of each example in random order, padding and positions in their place.

    A remaining effect of the lag is due to positions, not to the order of tokens.
    """
    width = batch.inputs.shape[1]
    keys = torch.rand(len(batch), width, generator=torch_stream(seed, "shuffled"))
    keys = keys.to(batch.inputs.device) + (
        torch.arange(width, device=batch.inputs.device) >= batch.lengths[:, None]
    )
    return replace(batch, inputs=batch.inputs.gather(1, keys.argsort(1)))


def toeplitz_shares(model: Decoder, batch: Batch, n: int) -> list[Intervals]:
    """Per layer the share of lags beyond row effects, with shape (heads,), in the first n tokens."""
    shares: list[Intervals] = []

    def measure(layer: LayerHeads) -> None:
        logits = layer.logits[..., :n, :n].detach().to("cpu", torch.float64)
        shares.append(mean_intervals(lag_effects(logits, layer.causal).share.numpy()))

    capture_heads(model, batch, measure)
    return shares


def shares_without_encoding(model: Decoder, batch: Batch, n: int) -> list[Intervals]:
    """`toeplitz_shares` without positions in any layer: no rotation, no bias, and no term in the input."""
    before, model.without_positions = model.without_positions, True
    try:
        return toeplitz_shares(model, batch, n)
    finally:
        model.without_positions = before
