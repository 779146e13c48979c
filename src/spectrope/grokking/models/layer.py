"""One layer of the small Transformer, and the positional part of its encoding."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.encodings import Context, Encoding, Form, Tag


class TransformerLayer(nn.Module):
    """Weights of one layer without normalisation: attention, then two linear maps around a ReLU.

    Args:
        d_model: Width of the residual stream.
        n_heads: Heads.
        head_dim: Width of one head's queries, keys and values.
        d_mlp: Width between the two linear maps.
    """

    def __init__(self, d_model: int, n_heads: int, head_dim: int, d_mlp: int) -> None:
        super().__init__()
        self.n_heads, self.inner, self.scale = n_heads, n_heads * head_dim, head_dim**-0.5
        self.qkv = nn.Linear(d_model, 3 * self.inner, bias=False)
        self.out = nn.Linear(self.inner, d_model, bias=False)
        self.up = nn.Linear(d_model, d_mlp)
        self.down = nn.Linear(d_mlp, d_model)

    def heads(self, x: Float[Tensor, "b t c"], first: int, last: int) -> Float[Tensor, "n b h t d"]:
        """Queries (0), keys (1) and values (2) of hidden states, from `first` to `last`."""
        flat = F.linear(x, self.qkv.weight[first * self.inner : (last + 1) * self.inner])
        return flat.unflatten(-1, (last + 1 - first, self.n_heads, -1)).permute(2, 0, 3, 1, 4)

    def split(self, x: Float[Tensor, "n c"], first: int, last: int) -> list[Float[Tensor, "n h d"]]:
        """The same of one position; their gradients are joined by a single copy."""
        flat = F.linear(x, self.qkv.weight[first * self.inner : (last + 1) * self.inner])
        return [part.unflatten(-1, (self.n_heads, -1)) for part in flat.split(self.inner, -1)]

    def after_heads(self, x: Float[Tensor, "*b c"], seen: Float[Tensor, "*b f"]) -> Float[Tensor, "*b c"]:
        """Output of the layer from its input and what its heads saw."""
        x = x + self.out(seen)
        return x + self.down(self.up(x).relu_())


def is_positional(encoding: Encoding) -> bool:
    """Whether an encoding adds, turns and biases by each token's own position alone."""
    plain = encoding.form in (Form.DOT, Form.DOT_PLUS_LAG) and Tag.CONTENT_FREE in encoding.tags
    return plain and encoding.prefix_consistent


def pick(table: Float[Tensor, "p *c"], index: Int[Tensor, " n"]) -> Float[Tensor, "n *c"]:
    """Rows of a table; unlike indexing, with a gradient that is summed in the same order every time."""
    return F.embedding(index, table.flatten(1)).unflatten(1, table.shape[1:])


def mean(values: Sequence[Float[Tensor, "#n h d"]], logits: Float[Tensor, "n h t"]) -> Float[Tensor, "n f"]:
    """Values of t positions in the proportions of the softmax of their logits, heads side by side."""
    pattern = logits.softmax(-1).unsqueeze(-2).unbind(-1)  # t of (n h 1)
    seen = pattern[0] * values[0]
    for share, value in zip(pattern[1:], values[1:], strict=True):
        seen = torch.addcmul(seen, share, value)
    return seen.flatten(1)


def position_bias(
    layer: TransformerLayer, encoding: Encoding, x: Tensor, pos: Int[Tensor, "1 t"]
) -> Float[Tensor, "h t t"]:
    """Positional bias on the logits, which does not depend on hidden states.

    Args:
        layer: Whose heads they are.
        encoding: A positional one.
        x: Any hidden states, with shape (1, t, c).
        pos: Positions.
    """
    q, k = layer.heads(x, 0, 1)
    bias = encoding.bias(Context(q, k, pos, pos, x, x))
    t = pos.shape[1]
    if bias is None:
        return q.new_zeros(layer.n_heads, t, t)
    return bias.to(q.dtype).expand(1, layer.n_heads, t, t)[0]
