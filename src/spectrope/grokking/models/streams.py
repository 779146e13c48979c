"""Hidden states of the three positions apart: the first one's once per residue, the others' once per pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.encodings import Encoding
from spectrope.grokking.models.layer import TransformerLayer, mean, pick, position_bias


@dataclass(frozen=True)
class Streams:
    """Hidden states after some layers of a causal model whose encodings are positional.

    The first position sees itself alone, so that its state depends on the first operand alone.

    Args:
        a: First operands, with shape (n,).
        first: States at the first position, a row per residue, with shape (p, c).
        second: At the second position, a row per pair, with shape (n, c).
        third: At the third position, likewise.
    """

    a: Int[Tensor, " n"]
    first: Float[Tensor, "p c"]
    second: Float[Tensor, "n c"]
    third: Float[Tensor, "n c"]

    def through(self, layer: TransformerLayer, encoding: Encoding, pos: Int[Tensor, "1 3"]) -> "Streams":
        """After one more layer, at all positions."""
        _, k, v = _heads(layer, encoding, self.first, pos[:, :1])
        q_2, k_2, v_2 = _heads(layer, encoding, self.second, pos[:, 1:2])
        k_1, v_1 = pick(k, self.a), pick(v, self.a)
        bias = self._bias(layer, encoding, pos)[:, 1, :2]
        second = layer.after_heads(self.second, mean([v_1, v_2], _logits(q_2, [k_1, k_2]) + bias))
        third = self.answer(layer, encoding, pos)
        return Streams(self.a, layer.after_heads(self.first, v.flatten(1)), second, third)

    def answer(
        self, layer: TransformerLayer, encoding: Encoding, pos: Int[Tensor, "1 3"]
    ) -> Float[Tensor, "n c"]:
        """After one more layer, at the third position alone."""
        k_1, v_1 = (pick(x, self.a) for x in _heads(layer, encoding, self.first, pos[:, :1], asks=False))
        k_2, v_2 = _heads(layer, encoding, self.second, pos[:, 1:2], asks=False)
        q, k_3, v_3 = _heads(layer, encoding, self.third, pos[:, 2:])
        logits = _logits(q, [k_1, k_2, k_3]) + self._bias(layer, encoding, pos)[:, 2]
        return layer.after_heads(self.third, mean([v_1, v_2, v_3], logits))

    def _bias(
        self, layer: TransformerLayer, encoding: Encoding, pos: Int[Tensor, "1 3"]
    ) -> Float[Tensor, "h 3 3"]:
        return position_bias(layer, encoding, self.first.new_zeros(1, 3, self.first.shape[1]), pos)


def _heads(
    layer: TransformerLayer,
    encoding: Encoding,
    x: Float[Tensor, "n c"],
    pos: Int[Tensor, "1 1"],
    *,
    asks: bool = True,
) -> list[Float[Tensor, "n h d"]]:
    """Queries, unless it does not ask, keys and values of one position, turned as the encoding does."""
    *q, k, v = (part.unsqueeze(2) for part in layer.split(x, 0 if asks else 1, 2))
    turned = [encoding.rotate(encoding.scaled(one) * layer.scale, pos, "query") for one in q]
    return [part.squeeze(2) for part in (*turned, encoding.rotate(k, pos, "key"), v)]


def _logits(q: Float[Tensor, "n h d"], keys: Sequence[Float[Tensor, "n h d"]]) -> Float[Tensor, "n h t"]:
    return torch.stack([(q * k).sum(-1) for k in keys], -1)
