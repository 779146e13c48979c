"""Relative positions as wavelets of several scales."""

from dataclasses import dataclass

import torch
from torch import Tensor

from spectrope.core import require, require_least
from spectrope.encodings.base import Context, Encoding, EncodingConfig, Form, Tag
from spectrope.encodings.parts import Constant


class Wavelet(Encoding, name="wavelet"):
    r"""Adds the product of the query with wavelets of the lag: :math:`q_i (k_j + \psi(i-j))/\sqrt d`,
    :math:`\psi_c(n) = r((n - b_c)/a_c)`.

    :math:`r(u) = (1 - u^2) e^{-u^2/2}` is the Ricker wavelet. Coordinate c has one of S scales
    :math:`a = 2^0, \dots, 2^{S-1}` and a shift :math:`b`, a multiple of its scale, so the windows of one
    scale are adjacent, and lags beyond the last shift of the largest scale are not covered. Nothing is
    trained.

    References:
        Wavelet-based Positional Representation for Long Context (Oka et al., 2025): Ricker wavelets of
        several scales in the place of vectors of the lag; the grid of scales and shifts is ours.
    """

    family = "relative bias"
    form = Form.DOT_PLUS_BIAS
    tags = frozenset({Tag.SHIFT_INVARIANT})

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The grid of wavelets, one per coordinate."""

        head_dim: int = 16
        scales: int = 4  # Scales S, which share the coordinates.

        def __post_init__(self) -> None:
            require_least(self, 1, "head_dim", "scales")
            require(self.scales <= self.head_dim, self, "scales", f"at most head_dim, {self.head_dim}")

    def setup(self, config: "Wavelet.Config") -> None:
        index = torch.arange(config.head_dim)
        scale = 2.0 ** (index % config.scales)
        self.scale = Constant(scale.double())
        self.shift = Constant((index // config.scales * scale).double())

    @property
    def pairwise(self) -> bool:
        return True

    def vectors(self, lag: Tensor) -> Tensor:
        """The wavelets (*n, d) at lags (*n)."""
        square = ((lag.double()[..., None] - self.shift.value) / self.scale.value).square()
        return (1 - square) * (-square / 2).exp()

    def bias(self, ctx: Context) -> Tensor:
        vectors = self.vectors(ctx.lag).to(ctx.q.dtype)
        return (
            torch.einsum("bhid,bijd->bhij", ctx.q, vectors.expand(len(ctx.q), *vectors.shape[1:])) * ctx.scale
        )
