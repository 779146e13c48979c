"""A first layer whose inputs depend on token and position alone: made once per residue, not once per pair."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.encodings.base import Context, Encoding, Form, Tag


class Layer(nn.Module):
    """Weights of one layer without normalisation: attention, then two linear maps around a ReLU.

    Args:
        d_model: Width of the residual stream.
        n_heads: Heads.
        head_dim: Width of one head's queries, keys and values.
        d_mlp: Width between the two linear maps.
    """

    def __init__(self, d_model: int, n_heads: int, head_dim: int, d_mlp: int) -> None:
        super().__init__()
        self.n_heads, self.inner = n_heads, n_heads * head_dim
        self.qkv = nn.Linear(d_model, 3 * self.inner, bias=False)
        self.out = nn.Linear(self.inner, d_model, bias=False)
        self.up = nn.Linear(d_model, d_mlp)
        self.down = nn.Linear(d_mlp, d_model)

    def heads(self, x: Float[Tensor, "b t c"], first: int, last: int) -> Float[Tensor, "n b h t d"]:
        """Queries (0), keys (1) and values (2) of hidden states, from `first` to `last`."""
        flat = F.linear(x, self.qkv.weight[first * self.inner : (last + 1) * self.inner])
        return flat.unflatten(-1, (last + 1 - first, self.n_heads, -1)).permute(2, 0, 3, 1, 4)

    def after_heads(self, x: Float[Tensor, "*b c"], seen: Float[Tensor, "*b f"]) -> Float[Tensor, "*b c"]:
        """Output of the layer from its input and what its heads saw."""
        x = x + self.out(seen)
        return x + self.down(self.up(x).relu_())


def is_positional(encoding: Encoding) -> bool:
    """Whether an encoding adds, turns and biases by position alone."""
    return encoding.form in (Form.DOT, Form.DOT_PLUS_LAG) and Tag.CONTENT_FREE in encoding.tags


def pick(table: Float[Tensor, "p *c"], index: Int[Tensor, " n"]) -> Float[Tensor, "n *c"]:
    """Rows of a table; unlike indexing, with a gradient that is summed in the same order every time."""
    return F.embedding(index, table.flatten(1)).unflatten(1, table.shape[1:])


class Tables:
    """Queries, keys, values and biases of the first layer for each residue as either operand.

    Args:
        layer: Its weights.
        encoding: A positional one.
        rows: Input of the layer for the sequences (r, r, "="), one per residue r.
        pos: Positions of the three tokens, with shape (1, 3).
    """

    def __init__(
        self, layer: Layer, encoding: Encoding, rows: Float[Tensor, "p 3 c"], pos: Int[Tensor, "1 3"]
    ) -> None:
        self.layer, self.rows = layer, rows
        q, k, v = layer.heads(rows, 0, 2)
        ctx = Context(q, k, pos, pos, rows, rows)
        q = encoding.rotate(q * ctx.scale, pos, "query").transpose(1, 2)
        k = encoding.rotate(k, pos, "key").transpose(1, 2)
        self.q, self.k, self.v = q, k, v.transpose(1, 2)  # each (p t h d)
        bias = encoding.bias(ctx)
        bias = q.new_zeros(1) if bias is None else bias.to(q.dtype)
        self.bias = bias.expand(len(rows), q.shape[2], 3, 3)[0]  # (h i j)

    def first(self, a: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Output of the layer at the first position, which sees itself alone."""
        return pick(self.layer.after_heads(self.rows[:, 0], self.v[:, 0].flatten(1)), a)

    def later(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> tuple[Tensor, Tensor]:
        """Output of the layer at the second and the third position, each (n, c)."""
        values = pick(self.v[:, 0], a), pick(self.v[:, 1], b)
        seen = torch.cat([self._seen(self._second(a, b), *values), self._seen(self._third(a, b), *values)])
        x = torch.cat([pick(self.rows[:, 1], b), self.rows[0, 2].expand(len(a), -1)])
        second, third = self.layer.after_heads(x, seen).chunk(2)
        return second, third

    def last(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Output of the layer at the third position."""
        seen = self._seen(self._third(a, b), pick(self.v[:, 0], a), pick(self.v[:, 1], b))
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

    def _seen(self, logits: Tensor, v_a: Tensor, v_b: Tensor) -> Float[Tensor, "n f"]:
        """Values in the proportions of the pattern."""
        pattern = logits.softmax(-1)[..., None]
        seen = pattern[:, :, 0] * v_a + pattern[:, :, 1] * v_b
        if logits.shape[-1] == 3:
            seen = seen + pattern[:, :, 2] * self.v[0, 2]
        return seen.flatten(1)
