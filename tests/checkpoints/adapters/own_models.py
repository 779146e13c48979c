"""Small models of one's own, each with attention written in another way."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, LENGTH = 16, 32, 4, 64
How = Literal["matmul", "einsum", "sdpa"]


def turned(x: Tensor, base: float) -> Tensor:
    """RoPE of (b, h, t, d) in halves, as Llama lays pairs out."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = (torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequencies).to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def no_rotation(x: Tensor) -> Tensor:
    return x


class Attention(nn.Module):
    """Causal attention with RoPE of some base, or none."""

    def __init__(self, how: How, base: float | None) -> None:
        super().__init__()
        self.how, self.base = how, base
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.base is not None:
            q, k = turned(q, self.base), turned(k, self.base)
        heads = getattr(self, self.how)(q, k, v)
        return self.out(heads.transpose(1, 2).flatten(2))

    def sdpa(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def matmul(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self._pattern(q @ k.transpose(-1, -2)) @ v

    def einsum(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        pattern = self._pattern(torch.einsum("bihd,bjhd->bhij", q, k))
        return torch.einsum("bhij,bjhd->bihd", pattern, v).transpose(1, 2)

    def _pattern(self, products: Tensor) -> Tensor:
        n = products.shape[-1]
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        return (products / (WIDTH // HEADS) ** 0.5).masked_fill(~seen, -torch.inf).softmax(-1)


class Block(nn.Module):
    def __init__(self, how: How, base: float | None) -> None:
        super().__init__()
        self.attention = Attention(how, base)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class MiniGPT(nn.Module):
    """A minimal GPT: token logits (b, t, vocabulary) of token ids (b, t)."""

    def __init__(
        self, how: How = "sdpa", *, base: float | None = None, table: bool = False, n_layers: int = 2
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH) if table else None
        self.blocks = nn.ModuleList(Block(how, base) for _ in range(n_layers))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class TorchEncoder(nn.Module):
    """torch's own encoder between embeddings with a learned table and a head; it sees both ways."""

    def __init__(self, *, causal: bool = False, **options: Any) -> None:
        super().__init__()
        self.causal = causal
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, dropout=0.1, **{"batch_first": True, **options})
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        n = ids.shape[1]
        x = self.tokens(ids) + self.positions(torch.arange(n))
        mask = nn.Transformer.generate_square_subsequent_mask(n) if self.causal else None
        return self.head(self.encoder(x, mask=mask, is_causal=self.causal))


class Sloped(MiniGPT):
    """A minimal GPT with ALiBi."""

    def __init__(self) -> None:
        super().__init__("matmul")
        for block in self.blocks:
            block.attention = SlopedAttention()


class SlopedAttention(Attention):
    """Causal attention with ALiBi."""

    def __init__(self) -> None:
        super().__init__("matmul", None)

    def _pattern(self, products: Tensor) -> Tensor:
        places = torch.arange(products.shape[-1])
        lag = (places[:, None] - places).to(products.dtype)
        slopes = 2.0 ** (-8 * torch.arange(1, HEADS + 1) / HEADS)
        return super()._pattern(products - (WIDTH // HEADS) ** 0.5 * slopes[:, None, None] * lag)
