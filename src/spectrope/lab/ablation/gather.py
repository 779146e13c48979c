"""Data that fills need from the rest of the data set: means over tokens and donor examples."""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import ConfigError, in_precision, numpy_stream
from spectrope.encodings import order
from spectrope.lab.ablation.fills.base import LayerMeans, Need, Site
from spectrope.lab.ablation.passes import Piece, intact_sites
from spectrope.lab.evaluation.score import most_tokens, pieces
from spectrope.models import Decoder
from spectrope.tasks import Batch


@torch.inference_mode()
def data_means(
    model: Decoder,
    data: Batch,
    *,
    batch_size: int = 256,
    dtype: torch.dtype = torch.float32,
    lags: bool = False,
) -> tuple[LayerMeans, ...]:
    """Means of each layer's head outputs, queries and keys in the intact model, over all tokens of the data.

    With `lags`, of the lags at which heads attend as well. Padding is included if the model attends to it.
    There is one mean per head, not per position, because a mean per position would preserve the output of a
    positional head.
    """
    device = next(model.parameters()).device
    sums: list[list[tuple[Tensor, ...]]] = []
    for _, batch in pieces(model, data, batch_size, most_tokens(model)):
        with in_precision(device, dtype):
            piece = Piece.of(model, batch.to(device))
            counted = piece.stream.real if model.ignores_padding else torch.ones_like(piece.stream.real)
            weights = counted.double()[:, None, :, None]
            sites = (
                (site.outputs, site.ctx.q, site.ctx.k, *([attended_lags(site)] if lags else []))
                for site in intact_sites(piece)
            )
            sums.append([tuple((x.double() * weights).sum((0, 2)) for x in site) for site in sites])
    tokens = int(data.lengths.sum()) if model.ignores_padding else data.inputs.numel()
    layers = zip(*sums, strict=True)
    return tuple(
        _layer_means([_mean(parts, tokens) for parts in zip(*layer, strict=True)]) for layer in layers
    )


def means_for(
    needs: Collection[Need], model: Decoder, data: Batch, dtype: torch.dtype = torch.float32
) -> tuple[LayerMeans, ...] | None:
    """Means that fills with these needs use, or None if they use none."""
    if not {"means", "lags"} & set(needs):
        return None
    return data_means(model, data, dtype=dtype, lags="lags" in needs)


def _layer_means(means: Sequence[Tensor]) -> LayerMeans:
    outputs, queries, keys, *lags = means
    return LayerMeans(outputs, queries, keys, lags[0][:, 0] if lags else None)


def attended_lags(site: Site) -> Float[Tensor, "b h i 1"]:
    """Mean lag at which each query of each head attends, weighted by its pattern."""
    q_pos, k_pos = (order(pos).to(site.outputs.dtype) for pos in (site.ctx.q_pos, site.ctx.k_pos))
    b, h, j = site.v.shape[:3]
    places = k_pos[:, None, :, None].expand(b, h, j, 1)
    return q_pos[:, None, :, None] - site.attend(site.ctx, site.encoding, places)


def _mean(sums: Sequence[Tensor], tokens: int) -> Tensor:
    return (torch.stack(list(sums)).sum(0) / tokens).float()


def derangement(n: int, seed: int) -> Tensor:
    """A random permutation of n examples that is a single cycle, so that none maps to itself.

    Raises:
        ConfigError: If there are fewer than two examples.
    """
    if n < 2:
        raise ConfigError(f"fills that take other examples need at least 2 of them; got {n}.")
    order = torch.from_numpy(numpy_stream(seed, "ablation", "donors").permutation(n))
    partner = torch.empty_like(order)
    partner[order] = order.roll(-1)
    return partner


def donor_outputs(model: Decoder, donors: Batch, width: int) -> tuple[Tensor, ...]:
    """Head outputs of the intact model on donor examples, each layer's (b, h, width, k), on the device.

    If a donor is shorter than its receiver and padding is ignored, its last token is repeated.
    """
    donors = donors.trimmed() if model.padding_is_inert else donors
    piece = Piece.of(model, donors.to(next(model.parameters()).device))
    at = torch.arange(width, device=piece.x.device).expand(len(donors), -1)
    if model.ignores_padding:
        at = torch.minimum(at, piece.stream.real.sum(1, keepdim=True) - 1)
    index = at[:, None, :, None]
    return tuple(
        s.outputs.gather(2, index.expand(-1, s.outputs.shape[1], -1, s.outputs.shape[3]))
        for s in intact_sites(piece)
    )
