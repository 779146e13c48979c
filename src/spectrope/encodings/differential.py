"""Differential attention: the pattern of one head minus a share of another's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import OneOf, initial_weights, require
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig, Form, Scope, Tag
from spectrope.encodings.composite import Composite, require_no_input
from spectrope.encodings.rope import RoPE


class Differential(Composite, name="differential"):
    r"""Subtracts a second attention pattern, times a trained factor, from a first one:
    :math:`(A_{2g} - \lambda A_{2g+1})\,[V_{2g}, V_{2g+1}]`.

    Both heads of pair g use the same difference of patterns, each with its own values. Their outputs are
    divided by their joint root mean square and multiplied by :math:`1 - \lambda_0`. The factor is
    :math:`\lambda = e^{u_1 \cdot v_1} - e^{u_2 \cdot v_2} + \lambda_0` with trained vectors, which are
    initialised from a normal distribution with standard deviation `std`. The inner encoding acts on queries
    and keys of all heads.

    In DiffLlama, :math:`\lambda_0` grows with depth, from 0.2 in the first layer towards 0.8; here it is the
    same in all layers.

    References:
        Differential Transformer (Ye et al., 2025), as in DiffLlama of transformers, whose heads g and g + h/2
        form pair g.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sizes, the share at the start, and the encoding."""

        n_heads: int = 16  # Even: two heads make one difference.
        head_dim: int = 16
        share: float = 0.5  # lambda_0.
        std: float = 0.1  # Standard deviation of the initial vectors.
        inner: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(default_factory=RoPE.Config)

        def __post_init__(self) -> None:
            paired = self.n_heads > 0 and self.n_heads % 2 == 0
            require(paired, self, "n_heads", "even and positive", "Two heads make one difference.")
            require(0 <= self.share < 1, self, "share", "at least 0 and below 1")

        def build_layers(self, n_layers: int) -> list[Encoding]:
            with initial_weights():
                return [Differential(self, [inner]) for inner in self.inner.build_layers(n_layers)]

    def built(self, config: "Differential.Config") -> list[Encoding]:
        return [config.inner.build()]

    def compose(self, config: "Differential.Config", terms: Sequence[Encoding]) -> None:
        super().compose(config, terms)
        require_no_input(terms, config, "inner")
        reads = type(terms[0]).read is Encoding.read
        require(reads, config, "inner", "an encoding that leaves values alone")
        self.form, self.scope = Form.GENERAL, Scope.LAYER
        self.tags = (self.tags - {Tag.ISOMETRIC}) | {Tag.LEARNED}
        self.first = config.share
        self.vectors = nn.Parameter(torch.randn(2, 2, config.head_dim) * config.std)

    def share(self) -> Tensor:
        """The factor on the second pattern."""
        u, v = self.vectors.to(torch.promote_types(self.vectors.dtype, torch.float32)).unbind(0)
        first, second = (u * v).sum(-1).exp()
        return first - second + self.first

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        return self.terms[0].logits(ctx)

    def read(
        self, pattern: Float[Tensor, "b h i j"], v: Float[Tensor, "b h j e"], ctx: Context
    ) -> Float[Tensor, "b h i e"]:
        first, second = pattern.unflatten(1, (-1, 2)).unbind(2)
        difference = first - self.share().to(pattern.dtype) * second
        out = difference[:, :, None] @ v.unflatten(1, (-1, 2))  # (b, g, 2, i, e)
        joined = F.rms_norm(out.movedim(2, -2).flatten(-2), (2 * v.shape[-1],), eps=1e-5) * (1 - self.first)
        return joined.unflatten(-1, (2, -1)).movedim(-2, 2).flatten(1, 2)
