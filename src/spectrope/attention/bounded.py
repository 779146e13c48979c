"""Multi-head attention whose logits keep within a bound."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.attention.heads import AttentionConfig, Heads, HeadSizes
from spectrope.attention.multi_head import MultiHead
from spectrope.core import require


class Bounded(Heads, name="bounded"):
    r"""Maps the queries and keys of multi-head attention into a ball, so that no product of them reaches a
    bound B: :math:`x\,r/\sqrt{r^2 + |x|^2},\; r^2 = B\sqrt{d}`.

    For heads of width d, the norm of each query and key x is below r. So
    :math:`|\langle q, k\rangle|/\sqrt{d} < B`, up to rounding, before positions enter. Logits keep this bound
    under encodings with the tag ISOMETRIC, whose rotations keep norms. Others may exceed it: those that
    change norms, and those that add a bias. Vectors much shorter than r hardly change.

    Attention with bounded entries has approximations in almost linear time; `spectrope attention plan` shows
    which heads of a run have one with a certificate.

    References:
        Fast Attention Requires Bounded Entries (Alman and Song, 2023), for the bound; the map is ours.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(AttentionConfig):
        """The bound on the logits."""

        reach: float = 1.0  # B, in logit units.

        def __post_init__(self) -> None:
            require(0 < self.reach < float("inf"), self, "reach", "positive and finite")

    def __init__(self, config: "Bounded.Config", sizes: HeadSizes) -> None:
        super().__init__(config, sizes)
        self.projections = MultiHead(MultiHead.Config(), sizes)
        self.squared_radius = config.reach * sizes.head_dim**0.5

    def queries(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t d"]:
        return self._inside(self.projections.queries(x))

    def keys_values(self, memory: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor]:
        k, v = self.projections.keys_values(memory)
        return self._inside(k), v

    def value_bias(self) -> Float[Tensor, "h 1 k"]:
        return self.projections.value_bias()

    def _inside(self, x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b h t d"]:
        """Vectors mapped into the ball, in the direction that they have."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        squares = wide.square().sum(-1, keepdim=True)
        return x * (1 + squares / self.squared_radius).rsqrt().to(x.dtype)
