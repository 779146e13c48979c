"""Spectral quantities of a captured layer, per example and head."""

from functools import cached_property

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from spectrope.core.errors import UnsupportedError
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.rotation import Rotation, encoding_of_head, steady_rotation
from spectrope.spectral.lag_design import LagDesign, separation_residuals
from spectrope.spectral.rope import band_gram, complex_pairs
from spectrope.spectral.singular import effective_ranks

RANKS = ("stable_rank", "participation_rank", "entropy_rank")
NORMS: tuple[str, ...] = ("contraction_spectral", "contraction_frobenius", "contraction_nuclear")


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
        self.design = LagDesign(n, layer.causal)
        self.spacing = spacing(layer.ctx.q_pos[:, :n])
        self.logits = _wide(layer.logits[..., :n, :n])

    @property
    def lags(self) -> Float[np.ndarray, " lags"]:
        """The lags that queries see, in positions."""
        return np.array(self.design.lags) * self.spacing

    @cached_property
    def rotations(self) -> tuple[Rotation | None, ...]:
        """The steady rotation of each head."""
        _, n_heads, _, width = self.layer.ctx.q.shape
        own = (encoding_of_head(self.layer.encoding, head) for head in range(n_heads))
        return tuple(steady_rotation(encoding, width) for encoding in own)

    def all(self) -> dict[str, Float[np.ndarray, "b h"]]:
        """Every quantity that this encoding defines, by name."""
        return self._shares() | self._ranks() | self._contractions() | self._factorisations()

    def kernels(self) -> Float[np.ndarray, "b h lags"]:
        """Lag effects beside row effects, in logit units, with mean 0 over lags."""
        return self.design.lag_effects(self.logits).numpy()

    def band_shares(self, head: int, bands: int) -> Float[np.ndarray, "b bands"]:
        """Share of energy of each band of frequencies of one head, which must have a steady rotation."""
        rotation, causal = self.rotations[head], self.layer.causal
        assert rotation is not None
        pairs = zip(*(x[:, head] for x in self._turned), strict=True)
        grams = [band_gram(q, k, causal, rotation.pairs).grouped(bands) for q, k in pairs]
        return np.array([gram.shares.tolist() if gram.energy > 0 else [np.nan] * bands for gram in grams])

    def _shares(self) -> dict[str, np.ndarray]:
        design, logits = self.design, self.logits
        found = {
            "toeplitz_raw": design.raw_shares(logits),
            "toeplitz_mean_removed": design.mean_removed_shares(logits),
            "toeplitz": design.gauge_fixed_shares(logits),
        }
        encoding = self.layer.encoding
        if encoding.factors and (encoding.turns or self.layer.bias is not None):
            found["toeplitz_content"] = design.gauge_fixed_shares(_product(*self._plain))
        return {name: values.numpy() for name, values in found.items()}

    def _ranks(self) -> dict[str, np.ndarray]:
        values = torch.linalg.svdvals(self.design.centred(self.logits))
        found = np.array([_effective(row) for row in values.flatten(0, 1)]).T
        return dict(zip(RANKS, found.reshape(3, *values.shape[:2]), strict=True))

    def _contractions(self) -> dict[str, np.ndarray]:
        turning = [encoding_of_head(self.layer.encoding, head).turns for head in range(self.logits.shape[1])]
        if not any(turning) or self.layer.rotated is None:
            return {}
        before, after = _product(*self._plain), _product(*self._turned)
        fixed, raw = (
            [torch.linalg.svdvals(form(logits)) for logits in (after, before)]
            for form in (self.design.centred, self.design.seen)
        )
        found = dict(zip(NORMS, _norm_ratios(*fixed), strict=True))
        found["contraction_raw_spectral"] = _norm_ratios(*raw)[0]
        still = ~torch.tensor(turning)
        return {name: values.masked_fill(still, torch.nan).numpy() for name, values in found.items()}

    def _factorisations(self) -> dict[str, np.ndarray]:
        found = torch.full(self.logits.shape[:2], torch.nan, dtype=torch.float64)
        for head, rotation in enumerate(self.rotations):
            if rotation is not None:
                q, k = (_complex(x[:, head], rotation) for x in self._plain)
                frequencies = rotation.frequencies * self.spacing
                found[:, head] = separation_residuals(q, k, frequencies, self.design)
        return {"factorisation": found.numpy()} if any(self.rotations) else {}

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


def _complex(x: Float[Tensor, "b n d"], rotation: Rotation) -> Complex[Tensor, "b n m"]:
    return complex_pairs(x.flatten(0, 1), rotation.pairs).unflatten(0, x.shape[:2])


def _product(q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h n d"]) -> Float[Tensor, "b h n n"]:
    return q @ k.mT


def _norm_ratios(after: Float[Tensor, "b h n"], before: Float[Tensor, "b h n"]) -> list[Float[Tensor, "b h"]]:
    """Ratios of spectral, Frobenius and nuclear norms, from singular values; NaN where there were none."""
    norms = [[s[..., 0], s.norm(dim=-1), s.sum(-1)] for s in (after, before)]
    return [torch.where(old > 0, new / old, torch.nan) for new, old in zip(*norms, strict=True)]


def _effective(values: Float[Tensor, " n"]) -> tuple[float, float, float]:
    if values[0] <= 0:
        return np.nan, np.nan, np.nan
    ranks = effective_ranks(values)
    return ranks.stable, ranks.participation, ranks.entropy


def _wide(x: Tensor) -> Tensor:
    return x.detach().to("cpu", torch.float64)
