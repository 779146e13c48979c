"""Spectral quantities of a captured layer, per example and head."""

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.core import UnsupportedError
from spectrope.encodings import complex_pairs
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.rotation import Rotation, encoding_of_head, steady_rotation
from spectrope.spectral import (
    band_gram,
    effective_ranks,
    factorisation_residuals,
    head_contraction,
    lag_effects,
    row_centred,
    toeplitz_shares,
)


class Quantities:
    """The first n positions of every example of a layer, in float64 on the CPU.

    Values are NumPy arrays of shape (b, h), NaN where undefined for a head.

    Args:
        layer: As `capture_heads` hands it over.
        n: Positions, at least 2, that hold tokens in every example.

    Raises:
        UnsupportedError: If positions are not equally spaced, the same in every example.
    """

    def __init__(self, layer: LayerHeads, n: int) -> None:
        self.layer, self.n = layer, n
        self.spacing = spacing(layer.ctx.q_pos[:, :n])
        self.logits = _wide(layer.logits[..., :n, :n])

    @property
    def lags(self) -> Float[np.ndarray, " lags"]:
        """The lags that queries see, in positions."""
        return np.arange(0 if self.layer.causal else 1 - self.n, self.n) * self.spacing

    @cached_property
    def rotations(self) -> tuple[Rotation | None, ...]:
        """The steady rotation of each head."""
        _, n_heads, _, width = self.layer.ctx.q.shape
        encodings = (encoding_of_head(self.layer.encoding, head) for head in range(n_heads))
        return tuple(steady_rotation(encoding, width) for encoding in encodings)

    def all(self) -> dict[str, Float[np.ndarray, "b h"]]:
        """Every quantity that this encoding defines, by name."""
        return self._shares() | self._ranks() | self._contractions() | self._factorisations()

    def kernels(self) -> Float[np.ndarray, "b h lags"]:
        """Lag effects beside row effects, in logit units, with mean 0 over lags."""
        return lag_effects(self.logits, self.layer.causal).lags.numpy()

    def band_shares(self, head: int, bands: int) -> Float[np.ndarray, "b bands"]:
        """Share of energy of each band of frequencies of one head, which must have a steady rotation."""
        rotation, causal = self.rotations[head], self.layer.causal
        assert rotation is not None
        pairs = zip(*(complex_pairs(x[:, head], rotation.pairs) for x in self._turned), strict=True)
        grams = [band_gram(q, k, causal).grouped(bands) for q, k in pairs]
        return np.array([gram.shares.tolist() if gram.energy > 0 else [np.nan] * bands for gram in grams])

    def _shares(self) -> dict[str, np.ndarray]:
        shares = toeplitz_shares(self.logits, self.layer.causal)
        by_quantity = {
            "toeplitz_raw": shares.raw,
            "toeplitz_mean_removed": shares.mean_removed,
            "toeplitz": shares.gauge_fixed,
        }
        encoding = self.layer.encoding
        if encoding.factors and (encoding.turns or self.layer.bias is not None):
            by_quantity["toeplitz_content"] = lag_effects(_product(*self._plain), self.layer.causal).share
        return {name: values.numpy() for name, values in by_quantity.items()}

    def _ranks(self) -> dict[str, np.ndarray]:
        ranks = effective_ranks(torch.linalg.svdvals(row_centred(self.logits, self.layer.causal)))
        return {f"{name}_rank": values.numpy() for name, values in vars(ranks).items()}

    def _contractions(self) -> dict[str, np.ndarray]:
        turning = [encoding_of_head(self.layer.encoding, head).turns for head in range(self.logits.shape[1])]
        if not any(turning) or self.layer.rotated is None:
            return {}
        ratios = head_contraction(_product(*self._turned), _product(*self._plain), self.layer.causal)
        by_quantity = {
            "contraction_spectral": ratios.gauge_fixed.spectral,
            "contraction_frobenius": ratios.gauge_fixed.frobenius,
            "contraction_nuclear": ratios.gauge_fixed.nuclear,
            "contraction_raw_spectral": ratios.raw.spectral,
        }
        still = ~torch.tensor(turning)
        return {name: values.masked_fill(still, torch.nan).numpy() for name, values in by_quantity.items()}

    def _factorisations(self) -> dict[str, np.ndarray]:
        residuals = torch.full(self.logits.shape[:2], torch.nan, dtype=torch.float64)
        for head, rotation in enumerate(self.rotations):
            if rotation is not None:
                q, k = (complex_pairs(x[:, head], rotation.pairs) for x in self._plain)
                frequencies = rotation.frequencies * self.spacing
                residuals[:, head] = factorisation_residuals(q, k, frequencies, causal=self.layer.causal)
        return {"factorisation": residuals.numpy()} if any(self.rotations) else {}

    @cached_property
    def _plain(self) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n d"]]:
        ctx = self.layer.ctx
        return self._cut(ctx.q), self._cut(ctx.k)

    @cached_property
    def _turned(self) -> tuple[Float[Tensor, "b h n d"], Float[Tensor, "b h n d"]]:
        assert self.layer.rotated is not None
        q, k = self.layer.rotated
        return self._cut(q), self._cut(k)

    def _cut(self, x: Tensor) -> Tensor:
        return _wide(x[:, :, : self.n])


def spacing(pos: Tensor) -> float:
    """The distance of neighbouring positions, of shape (b or 1, n).

    Raises:
        UnsupportedError: If it is not one and the same everywhere.
    """
    steps = pos.double().diff(dim=-1)
    step = steps[0, 0].item()
    if step <= 0 or not torch.allclose(steps, steps[:1, :1]):
        raise UnsupportedError(
            "spectra over lags need equally spaced positions; this model's tokens have others."
        )
    return step


def _product(q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n n"]:
    return q @ k.mT


def _wide(x: Tensor) -> Tensor:
    return x.detach().to("cpu", torch.float64)
