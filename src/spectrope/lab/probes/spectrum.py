"""Spectral quantities of the heads of a layer, as means over examples with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import torch_stream
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.observed import ObservedLayer
from spectrope.lab.quantities.base import QUANTITIES, installed_quantities
from spectrope.spectral import band_labels, lag_effects, null_shares
from spectrope.stats import Interval, Intervals, RandomisationTest, mean_intervals, randomisation_test

BANDS = 8


@dataclass(frozen=True, eq=False)
class Bands:
    """Contribution of each band of frequencies to one head's logits.

    Args:
        frequencies: Lowest and highest frequency of each band, in radians per position, with shape (bands,
            2).
        shares: Shares of the energy, including row means. They sum to 1; one is negative if bands cancel.
        queries: Largest norm over tokens of a coordinate of the queries in the band, divided by the mean over
            all coordinates of the head.
        keys: The same of the keys.
    """

    frequencies: Float[np.ndarray, "bands 2"]
    shares: Intervals
    queries: Intervals
    keys: Intervals


@dataclass(frozen=True, eq=False)
class LayerSpectrum:
    """All heads of one layer.

    Args:
        layer: Number of the layer, from 0.
        n: Positions measured.
        heads: Every quantity of every head, by name, as a mean over examples with its interval; None where
            undefined.
        tests: Of `toeplitz`, a record per head; None where logits depend on content beyond the product, so
            that there is nothing to permute.
        toeplitz_null: Mean of `toeplitz` for independent entries of one distribution, symmetric about 0.
        bands: Per head, or None without a steady rotation of all coordinates.
        lags: The lags of `kernel`, in positions, with shape (lags,).
        kernel: Lag effects beside row effects in logit units, mean 0 over lags, of shape (heads, lags).
    """

    layer: int
    n: int
    heads: tuple[Mapping[str, Interval | None], ...]
    tests: tuple[RandomisationTest | None, ...]
    toeplitz_null: float
    bands: tuple[Bands | None, ...]
    lags: Float[np.ndarray, " lags"]
    kernel: Intervals


def layer_spectrum(
    layer: LayerHeads,
    n: int,
    draws: int = 199,
    seed: int = 0,
    quantities: Sequence[str] | None = None,
) -> LayerSpectrum:
    """Measure the heads of a layer on the first n tokens of each example.

    Args:
        layer: A layer from `capture_heads`, with at least two examples of at least n tokens.
        n: Positions, at least 2.
        draws: Random permutations in the test of Toeplitz shares.
        seed: Of the permutations.
        quantities: Names of the quantities of each head (default: all installed ones).

    Raises:
        UnsupportedError: If positions are not equally spaced, or differ between examples.
        ConfigError: If there are fewer than two positions or examples.
    """
    observed = ObservedLayer(layer, n)
    names = installed_quantities() if quantities is None else quantities
    heads = range(layer.ctx.q.shape[1])
    tests = (None,) * len(heads)
    if layer.encoding.pairwise and layer.encoding.factors:
        tests = toeplitz_tests(observed.logits, layer.causal, draws, seed, layer.layer)
    return LayerSpectrum(
        layer=layer.layer,
        n=n,
        heads=_records(observed, names, len(heads)),
        tests=tests,
        toeplitz_null=null_shares(n, layer.causal).gauge_fixed.item(),
        bands=tuple(_bands(observed, head) for head in heads),
        lags=observed.lags,
        kernel=mean_intervals(observed.kernels()),
    )


def toeplitz_tests(
    logits: Float[Tensor, "b h n n"], causal: bool, draws: int, seed: int, *names: object
) -> tuple[RandomisationTest | None, ...]:
    r"""Test for each head whether lags explain more of its logits than chance, over all examples.

    The statistic is the mean over examples of the share of lags beyond row effects. Rows and columns of each
    example's logits are permuted independently before the mask is applied, which amounts to permuting queries
    and keys together with any bias or rotation. A small p-value indicates that logits depend on the lag,
    because of the encoding or because the text repeats; compare it with the same head without the encoding
    and on shuffled text.

    Args:
        logits: Before the mask, with shape (b, h, n, n).
        causal: Whether attention is causal: query i attends to keys j <= i only.
        draws: Permutations of all examples.
        seed: Of the permutations.
        names: Of the random stream, beside the seed.

    Returns:
        A record per head; None where row effects explain all there is in some example.
    """
    generator = torch_stream(seed, "toeplitz_tests", *names)
    observed = _mean_shares(logits, causal)
    null = np.stack([_mean_shares(_shuffled(logits, generator), causal) for _ in range(draws)])
    return tuple(
        randomisation_test(share, null[:, head]) if np.isfinite(share) else None
        for head, share in enumerate(observed.tolist())
    )


def _mean_shares(logits: Float[Tensor, "b h n n"], causal: bool) -> Float[np.ndarray, " h"]:
    return lag_effects(logits, causal).share.mean(0).numpy()


def _shuffled(logits: Float[Tensor, "b h n n"], generator: torch.Generator) -> Float[Tensor, "b h n n"]:
    b, h, n, _ = logits.shape
    rows, columns = torch.rand(2, b, n, generator=generator).argsort(-1)
    flat = (rows[:, :, None] * n + columns[:, None, :]).flatten(1)
    return logits.flatten(2).gather(-1, flat[:, None].expand(b, h, -1)).view(logits.shape)


def _records(
    observed: ObservedLayer, names: Sequence[str], n_heads: int
) -> tuple[Mapping[str, Interval | None], ...]:
    values = {name: QUANTITIES[name]().values(observed) for name in names}
    means = {name: None if one is None else mean_intervals(one.numpy()) for name, one in values.items()}
    return tuple(
        {name: None if mean is None else mean.at(head) for name, mean in means.items()}
        for head in range(n_heads)
    )


def _bands(observed: ObservedLayer, head: int) -> Bands | None:
    rotation = observed.rotations[head]
    if rotation is None:
        return None
    m = len(rotation.frequencies)
    label = band_labels(m, min(BANDS, m))
    members = [rotation.frequencies[label == band] for band in range(min(BANDS, m))]
    ends = np.array([[band.min().item(), band.max().item()] for band in members])
    measured = (observed.band_shares(head, len(members)), *observed.band_peaks(head, len(members)))
    return Bands(ends, *map(mean_intervals, measured))
