"""A captured layer as the input of spectral quantities: logits over common positions, in float64."""

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.encodings import complex_pairs
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.rotation import SteadyRotation, encoding_of_head, steady_rotation
from spectrope.spectral import (
    Contraction,
    EffectiveRanks,
    ToeplitzShares,
    band_gram,
    band_labels,
    effective_ranks,
    head_contraction,
    lag_effects,
    row_centred,
    toeplitz_shares,
)

Product = tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n d"]]


class ObservedLayer:
    """The first n positions of every example of a layer, in float64 on the CPU.

    Quantities derived from it are computed on first use and cached.

    Args:
        layer: A layer from `capture_heads`.
        n: Number of positions, at least 2; every example must have tokens there.

    Raises:
        UnsupportedError: If positions are not equally spaced, or differ between examples.
    """

    def __init__(self, layer: LayerHeads, n: int) -> None:
        self.layer, self.n = layer, n
        self.spacing = spacing(layer.ctx.q_pos[:, :n])
        self.logits = _wide(layer.logits[..., :n, :n])

    @property
    def causal(self) -> bool:
        """Whether attention is causal: query i attends to keys j <= i only."""
        return self.layer.causal

    @property
    def lags(self) -> Float[np.ndarray, " lags"]:
        """The lags that queries see, in positions."""
        return np.arange(0 if self.causal else 1 - self.n, self.n) * self.spacing

    @cached_property
    def turning(self) -> tuple[bool, ...]:
        """Whether the encoding rotates queries and keys, head by head."""
        heads = range(self.logits.shape[1])
        return tuple(encoding_of_head(self.layer.encoding, head).turns for head in heads)

    @cached_property
    def rotations(self) -> tuple[SteadyRotation | None, ...]:
        """The steady rotation of each head."""
        _, n_heads, _, width = self.layer.ctx.q.shape
        encodings = (encoding_of_head(self.layer.encoding, head) for head in range(n_heads))
        return tuple(steady_rotation(encoding, width) for encoding in encodings)

    @cached_property
    def plain(self) -> Product:
        """Queries and keys before rotation."""
        return self._cut(self.layer.ctx.q), self._cut(self.layer.ctx.k)

    @cached_property
    def turned(self) -> Product | None:
        """Queries and keys as they enter the product; None where logits are no product."""
        rotated = self.layer.rotated
        return None if rotated is None else (self._cut(rotated[0]), self._cut(rotated[1]))

    @cached_property
    def coordinates(self) -> tuple[Float[Tensor, "b h d"], Float[Tensor, "b h d"]]:
        """Norms over tokens of the coordinates of queries and keys before rotation, divided by their mean."""
        q, k = (torch.linalg.vector_norm(x, dim=2) for x in self.plain)
        return q / q.mean(-1, keepdim=True), k / k.mean(-1, keepdim=True)

    @cached_property
    def shares(self) -> ToeplitzShares:
        """Toeplitz shares of the logits."""
        return toeplitz_shares(self.logits, self.causal)

    @cached_property
    def ranks(self) -> EffectiveRanks:
        """Effective ranks of the logits, row means removed."""
        return effective_ranks(torch.linalg.svdvals(row_centred(self.logits, self.causal)))

    @cached_property
    def contraction(self) -> Contraction | None:
        """Norms of the product with rotation over those without; None where no head rotates."""
        if self.turned is None or not any(self.turning):
            return None
        return head_contraction(_product(self.turned), _product(self.plain), self.causal)

    def content_share(self) -> Float[Tensor, "b h"] | None:
        """Toeplitz share of the product before rotation and bias; None if the encoding has neither."""
        encoding = self.layer.encoding
        if not encoding.factors or not (encoding.turns or self.layer.bias is not None):
            return None
        return lag_effects(_product(self.plain), self.causal).share

    def kernels(self) -> Float[np.ndarray, "b h lags"]:
        """Lag effects after removal of row effects, in logit units, with mean 0 over lags."""
        return lag_effects(self.logits, self.causal).lags.numpy()

    def band_shares(self, head: int, bands: int) -> Float[np.ndarray, "b bands"]:
        """Share of energy of each band of frequencies of one head, which must have a steady rotation."""
        rotation, turned = self.rotations[head], self.turned
        assert rotation is not None
        assert turned is not None
        pairs = zip(*(complex_pairs(x[:, head], rotation.pairs) for x in turned), strict=True)
        grams = [band_gram(q, k, self.causal).grouped(bands) for q, k in pairs]
        return np.array([gram.shares.tolist() if gram.energy > 0 else [np.nan] * bands for gram in grams])

    def band_peaks(self, head: int, bands: int) -> tuple[Float[np.ndarray, "b bands"], ...]:
        """Largest of `coordinates` in each band of frequencies, of queries and of keys of one head."""
        rotation = self.rotations[head]
        assert rotation is not None
        m = len(rotation.frequencies)
        label = band_labels(m, bands)
        peaks = []
        for coordinates in self.coordinates:
            pairs = complex_pairs(coordinates[:, head], rotation.pairs)
            largest = torch.maximum(pairs.real, pairs.imag)
            peaks.append(np.stack([largest[:, label == band].amax(1) for band in range(bands)], 1))
        return tuple(peaks)

    def _cut(self, x: Tensor) -> Tensor:
        return _wide(x[:, :, : self.n])


def spacing(pos: Tensor) -> float:
    """Distance between neighbouring positions, with shape (b or 1, n).

    Raises:
        UnsupportedError: If it is not constant.
    """
    steps = pos.double().diff(dim=-1)
    step = steps[0, 0].item()
    if step <= 0 or not torch.allclose(steps, steps[:1, :1]):
        raise UnsupportedError(
            "spectra over lags need equally spaced positions; this model's tokens have others."
        )
    return step


def _product(pair: Product) -> Float[Tensor, "b h n n"]:
    q, k = pair
    return q @ k.mT


def _wide(x: Tensor) -> Tensor:
    return x.detach().to("cpu", torch.float64)
