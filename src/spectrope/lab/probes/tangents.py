"""Tangent kernels of the logits of a few queries, as a head computes them and without its rotation."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.encodings import Pairing, complex_pairs
from spectrope.lab.probes.heads import LayerHeads
from spectrope.lab.probes.rotation import SteadyRotation
from spectrope.spectral import KernelSummary, gauss_newton, softmax_curvature, summarise, tangent_kernel

ROWS = 2  # Queries: the last tokens of the first examples.


@dataclass(frozen=True)
class Kernels:
    r"""The tangent kernel Θ of some logits by W_Q and W_K, and its Gauss-Newton counterpart.

    Args:
        tangent: Of Θ, in squared logit units per squared unit of weight.
        newton: Of :math:`S^{1/2}\Theta S^{1/2}`, S the curvature of softmax at these logits.
    """

    tangent: KernelSummary
    newton: KernelSummary


@dataclass(frozen=True, eq=False)
class LastRows:
    """The logits of the last token of each of the first examples, over the tokens of its example.

    Args:
        layer: Whose logits are a product of queries and keys, and perhaps a bias.
        head: Its number, from 0.
        lengths: Tokens of the examples, with shape (b,).
    """

    layer: LayerHeads
    head: int
    lengths: Int[Tensor, " b"]

    def turned(self, rotation: SteadyRotation, spacing: float) -> Kernels:
        """Logits with the head's rotation, at positions with this spacing."""
        rows = [self.layer.logits[e, self.head, n - 1, :n] for e, n in self._examples]
        theta = (rotation.frequencies * spacing).to(self.layer.ctx.q.device)
        return self._kernels(rows, self._tangent(theta, rotation.pairs))

    def plain(self) -> Kernels:
        """Without rotation, the bias kept."""
        ctx, bias = self.layer.ctx, self.layer.bias
        rows = []
        for e, n in self._examples:
            row = self._scale * (ctx.k[e, self.head, :n] @ ctx.q[e, self.head, n - 1])
            if bias is not None:
                row = row + bias.expand(len(ctx.q), *self.layer.logits.shape[1:])[e, self.head, n - 1, :n]
            rows.append(row)
        return self._kernels(rows, self._tangent(None))

    @property
    def _scale(self) -> float:
        """The factor on products of queries and keys."""
        heads = torch.ones(1, self.layer.ctx.q.shape[1], 1, 1, dtype=torch.float64)
        return self.layer.ctx.scale * self.layer.encoding.scaled(heads)[0, self.head].item()

    @property
    def _examples(self) -> list[tuple[int, int]]:
        return list(enumerate(self.lengths[:ROWS].tolist()))

    def _tangent(self, frequencies: Tensor | None, pairing: Pairing = "adjacent") -> Float[Tensor, "p p"]:
        ctx = self.layer.ctx
        assert ctx.x_q is not None
        assert ctx.x_k is not None
        x, y = (side[:ROWS].flatten(0, 1) for side in (ctx.x_q, ctx.x_k))
        sides = (side[:ROWS, self.head].flatten(0, 1).double() for side in (ctx.q, ctx.k))
        q, k = (complex_pairs(side, pairing) for side in sides)
        width = ctx.q.shape[2]
        pairs = torch.cat([_last_row(e * width, n) for e, n in self._examples]).to(q.device)
        return tangent_kernel(x, q, k, pairs, frequencies, y) * self._scale**2

    def _kernels(self, rows: list[Tensor], kernel: Float[Tensor, "p p"]) -> Kernels:
        curvature = torch.block_diag(*(softmax_curvature(row.double().softmax(0)) for row in rows))
        return Kernels(summarise(kernel), summarise(gauss_newton(kernel, curvature)))


def _last_row(first: int, n: int) -> Int[Tensor, "n 2"]:
    """Pairs of the last of n tokens with each of them, counted from `first`."""
    keys = torch.arange(first, first + n)
    return torch.stack([torch.full_like(keys, first + n - 1), keys], 1)
