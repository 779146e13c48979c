"""First layer whose inputs depend only on token and position: computed once per residue, not once per
pair."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.encodings import Encoding
from spectrope.grokking.models.layer import TransformerLayer, mean, pick, position_bias
from spectrope.grokking.models.streams import Streams


class FirstLayerTables:
    """Queries, keys, values and biases of the first layer for each residue as either operand.

    Args:
        layer: Its weights.
        encoding: A positional one.
        rows: Input of the layer for the sequences (r, r, "="), one per residue r.
        pos: Positions of the three tokens, with shape (1, 3).
    """

    def __init__(
        self,
        layer: TransformerLayer,
        encoding: Encoding,
        rows: Float[Tensor, "p 3 c"],
        pos: Int[Tensor, "1 3"],
    ) -> None:
        self.layer, self.rows = layer, rows
        q, k, v = layer.heads(rows, 0, 2)
        q = encoding.rotate(encoding.scaled(q) * layer.scale, pos, "query").transpose(1, 2)
        k = encoding.rotate(k, pos, "key").transpose(1, 2)
        self.q, self.k, self.v = q, k, v.transpose(1, 2)  # each (p t h d)
        self.bias = position_bias(layer, encoding, rows[:1], pos)

    def streams(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Streams:
        """Output of the layer at all three positions."""
        values = pick(self.v[:, 0], a), pick(self.v[:, 1], b)
        first = self.layer.after_heads(self.rows[:, 0], self.v[:, 0].flatten(1))
        second = self.layer.after_heads(pick(self.rows[:, 1], b), mean(values, self._second(a, b)))
        return Streams(a, first, second, self._at_third(a, b, *values))

    def last(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Output of the layer at the third position."""
        return self._at_third(a, b, pick(self.v[:, 0], a), pick(self.v[:, 1], b))

    def _at_third(self, a: Tensor, b: Tensor, v_a: Tensor, v_b: Tensor) -> Float[Tensor, "n c"]:
        seen = mean([v_a, v_b, self.v[:1, 2]], self._third(a, b))
        return self.layer.after_heads(self.rows[0, 2].expand(len(a), -1), seen)

    def _second(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n h 2"]:
        """Logits of the second position."""
        to_a = torch.einsum("bhd,ahd->bah", self.q[:, 1], self.k[:, 0]).flatten(0, 1)
        to_b = (self.q[:, 1] * self.k[:, 1]).sum(-1)
        return torch.stack([pick(to_a, b * len(self.rows) + a), pick(to_b, b)], -1) + self.bias[:, 1, :2]

    def _third(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n h 3"]:
        """Logits of the third position."""
        to_a, to_b, to_equals = (torch.einsum("hd,phd->ph", self.q[0, 2], self.k[:, t]) for t in range(3))
        third = to_equals[0].expand(len(a), -1)
        return torch.stack([pick(to_a, a), pick(to_b, b), third], -1) + self.bias[:, 2]
