"""What a sweep carries along: sums over the tokens behind it, in monomial features."""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.fast.features import Monomials, derivative, raised, weights

SUMMED = 512  # Features in one product; longer sums are taken in parts, which bounds their rounding.
CACHED_PRODUCTS = 2**20  # Of features and cotangents at once: 4 MiB in float32.


class State:
    r"""The sums :math:`S = \sum_s \phi(y_s) z_s^\top` of a polynomial's features, (b, F, e).

    Args:
        coefficients: Of P, the constant first.
        like: Any columns (b, d, n) of coordinates; gives sizes, the dtype and the device.
        width: e.
        tokens: The most that are taken at once.
    """

    def __init__(
        self, coefficients: tuple[float, ...], like: Float[Tensor, "b d n"], width: int, tokens: int
    ) -> None:
        batch, dim, degree = len(like), like.shape[1], len(coefficients) - 1
        self._coefficients, self._tokens = coefficients, tokens
        self._features = Monomials(batch, dim, tokens, degree, like)
        self._weights = weights(dim, coefficients).to(like)[:, None]
        self._sums = like.new_zeros(batch, len(self._weights), width)
        self._weighted: Tensor | None = None

    @cached_property
    def _slopes(self) -> tuple[Monomials, Tensor, Tensor]:
        """Features one degree below, their weights in P', and where they are when raised."""
        batch, dim, degree = len(self._sums), self._features.dim, len(self._coefficients) - 1
        below = Monomials(batch, dim, self._tokens, degree - 1, self._sums)
        index = raised(dim, degree).to(self._sums.device)
        return below, weights(dim, derivative(self._coefficients)).to(self._sums)[:, None], index

    def clear(self) -> None:
        """Forget all tokens."""
        self._sums.zero_()
        self._weighted = None

    def fade(self, factor: Float[Tensor, "b 1 1"]) -> None:
        """Multiply all sums."""
        self._sums.mul_(factor)
        self._weighted = None

    def absorb(self, y: Float[Tensor, "b d n"], z: Float[Tensor, "b e n"]) -> None:
        """Add tokens and their payloads."""
        self._sums.baddbmm_(self._features(y), z.mT)
        self._weighted = None

    def values(self, x: Float[Tensor, "b d n"]) -> Float[Tensor, "b e n"]:
        r""":math:`\sum_s P(\langle x, y_s\rangle) z_s`, a part of the features at a time."""
        if self._weighted is None:
            self._weighted = (self._sums * self._weights).mT.contiguous()
        first, *rest = zip(self._weighted.split(SUMMED, 2), self._features(x).split(SUMMED, 1), strict=True)
        sums = torch.bmm(*first)
        for left, right in rest:
            sums.baddbmm_(left, right)
        return sums

    def gradient(self, x: Float[Tensor, "b d n"], w: Float[Tensor, "b e n"]) -> Float[Tensor, "b d n"]:
        r""":math:`\nabla_x \langle w, \sum_s P(\langle x, y_s\rangle) z_s\rangle`.

        As :math:`\nabla_x P(\langle x, y\rangle) = P'(\langle x, y\rangle)\,y`, this is a product of features
        one degree below, times w, with sums of features raised by one coordinate.
        """
        below, slopes, raised_to = self._slopes
        features = below(x).mul_(slopes)
        size = max(1, CACHED_PRODUCTS // (w.shape[0] * w.shape[1] * w.shape[2]))
        out = torch.zeros_like(x)
        for some, index in zip(features.split(size, 1), raised_to.split(size, 1), strict=True):
            products = torch.mul(some[:, :, None], w[:, None]).flatten(1, 2)
            out.baddbmm_(self._sums[:, index.flatten()].view(*x.shape[:2], -1), products)
        return out
