"""Multi-head attention."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.attention.heads import AttentionConfig, Heads, HeadSizes
from spectrope.core import require


class MultiHead(Heads, name="multi_head"):
    r"""Projects hidden states to queries, keys and values: :math:`q = W_Q x,\ k = W_K x,\ v = W_V x`.

    References:
        Attention Is All You Need (Vaswani et al., 2017), Sec. 3.2.2.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(AttentionConfig):
        """Initial scale of queries and keys."""

        start: float = 1.0  # Factor on the initial W_Q and W_K; below 1, logits start smaller by its square.

        added_later = frozenset({"start"})

        def __post_init__(self) -> None:
            require(self.start > 0, self, "start", "positive")

    def __init__(self, config: "MultiHead.Config", sizes: HeadSizes) -> None:
        super().__init__(config, sizes)
        self.qkv = nn.Linear(sizes.d_model, 3 * self.inner)
        with torch.no_grad():
            self.qkv.weight[: 2 * self.inner] *= config.start

    def project(self, x: Float[Tensor, "b t c"], memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        if memory is not None:
            return super().project(x, memory)
        q, k, v = self._split(self.qkv(x))
        return q, k, v

    def queries(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t d"]:
        return self._split(F.linear(x, self.qkv.weight[: self.inner], self.qkv.bias[: self.inner]))[0]

    def keys_values(self, memory: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor]:
        k, v = self._split(F.linear(memory, self.qkv.weight[self.inner :], self.qkv.bias[self.inner :]))
        return k, v

    def value_bias(self) -> Float[Tensor, "h 1 k"]:
        return self.qkv.bias[2 * self.inner :].view(self.n_heads, 1, -1)

    def _split(self, flat: Float[Tensor, "b t f"]) -> Float[Tensor, "n b h t k"]:
        """Sets of heads from a product that holds them side by side."""
        return flat.unflatten(-1, (-1, self.n_heads, self.head_dim)).permute(2, 0, 3, 1, 4).contiguous()
