"""Multi-head latent attention, with an encoding that acts on the rotary part of queries and keys."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.attention.heads import AttentionConfig, Heads, HeadSizes
from spectrope.core import UnsupportedError, initial_weights, require
from spectrope.encodings import Composite, Context, Encoding, EncodingConfig, Form, Side

EPSILON = 1e-6  # Of the norms of latents, as in DeepSeek's checkpoints.


class Norm(nn.RMSNorm):
    """A root mean square norm in its weight's precision, as in the released models, also under autocast."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


class Latent(Heads, name="mla"):
    r"""Adds products of compressed contents and of rotary parts:
    :math:`q^C_i k^C_j + R(q^R_i, i) R(k^R_j, j)`.

    With latents :math:`z = \mathrm{norm}(W_{DQ}x)` and :math:`c = \mathrm{norm}(W_{DKV}x)`, both norms
    optional, a head has content parts :math:`q^C = W_{UQ}z` and :math:`k^C = W_{UK}c`, values :math:`v =
    W_{UV}c`, and rotary parts :math:`q^R = W_{QR}z` and :math:`k^R = W_{KR}x`, the last of which all heads
    share. It has one query :math:`[q^C; q^R]` and one key :math:`[k^C; k^R]`, whose product is divided by the
    square root of their width. Contents and values have width `head_dim`; no projection has a bias.

    The encoding acts only on the rotary parts. It is RoPE in DeepSeek's models, but can be any encoding that
    is not of form GENERAL. Terms that it adds to the input or to the logits are added as usual.

    References:
        DeepSeek-V2 (DeepSeek-AI, 2024), Sec. 2.1.2 and 2.1.3; the norms are those of the released models.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(AttentionConfig):
        """Widths of the latents and of the rotary part."""

        latent: int = 128  # Width of the compressed keys and values.
        query_latent: int | None = 128  # The same for queries; None projects them directly.
        rotary_dim: int = 16  # Width of the rotary part of queries and keys.
        rotary_queries: Literal["per_head", "shared"] = "per_head"  # R11: one rotary query for all heads.
        latent_norm: bool = True  # R17: whether latents are normalised, as in DeepSeek's models.

        added_later = frozenset({"latent_norm"})

        def __post_init__(self) -> None:
            for field in ("latent", "rotary_dim"):
                require(getattr(self, field) >= 1, self, field, "at least 1")
            positive = self.query_latent is None or self.query_latent >= 1
            require(positive, self, "query_latent", "at least 1, or None")

        @classmethod
        def for_width(cls, d_model: int) -> "Latent.Config":
            """Latents of half the residual stream's width, as in Table 4 of the paper."""
            return cls(latent=max(1, d_model // 2), query_latent=max(1, d_model // 2))

        def encoded_dim(self, head_dim: int) -> int:
            return self.rotary_dim

        def check(self, encoding: EncodingConfig) -> None:
            _require_decoupled(encoding, self.rotary_dim)

        def encode(self, layers: Sequence[Encoding]) -> list[Encoding]:
            wrapped = {inner: Decoupled(inner, self.rotary_dim) for inner in dict.fromkeys(layers)}
            return [wrapped[inner] for inner in layers]

    def __init__(self, config: "Latent.Config", sizes: HeadSizes) -> None:
        super().__init__(config, sizes)
        self.rotary_dim = config.rotary_dim
        rotary_queries = sizes.n_heads if config.rotary_queries == "per_head" else 1
        width = sizes.d_model if config.query_latent is None else config.query_latent
        self.compresses_queries = config.query_latent is not None
        self.query_down: nn.Module = nn.Identity()
        if config.query_latent is not None:
            self.query_down = _compression(sizes.d_model, width, norm=config.latent_norm)
        self.query_up = nn.Linear(width, self.inner + rotary_queries * config.rotary_dim, bias=False)
        self.key_value_down = _compression(sizes.d_model, config.latent, norm=config.latent_norm)
        self.key_value_up = nn.Linear(config.latent, 2 * self.inner, bias=False)
        self.rotary_key = nn.Linear(sizes.d_model, config.rotary_dim, bias=False)

    def queries(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t d"]:
        return self.expand_queries(self.query_down(x))

    def keys_values(self, memory: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor]:
        return self.expand_keys_values(self.key_value_down(memory), self.rotary_key(memory))

    def expand_queries(self, latent: Float[Tensor, "b t z"]) -> Float[Tensor, "b h t d"]:
        """Queries from their latents."""
        up = self.query_up(latent)
        return self._joined(up[..., : self.inner], up[..., self.inner :])

    def expand_keys_values(
        self, latent: Float[Tensor, "b t z"], rotary: Float[Tensor, "b t r"]
    ) -> tuple[Tensor, Tensor]:
        """Keys, (b, h, t, d), and values, (b, h, t, k), from their latents and the rotary keys."""
        k, v = self.key_value_up(latent).split(self.inner, -1)
        return self._joined(k, rotary), v.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    def value_bias(self) -> Float[Tensor, "h 1 k"]:
        return self.key_value_up.weight.new_zeros(self.n_heads, 1, self.head_dim)

    def _joined(
        self, content: Float[Tensor, "b t f"], rotary: Float[Tensor, "b t g"]
    ) -> Float[Tensor, "b h t d"]:
        """[content; rotary] of each head; a rotary part that is there once is shared."""
        content = content.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        rotary = rotary.unflatten(-1, (-1, self.rotary_dim)).transpose(1, 2)
        return torch.cat([content, rotary.expand(-1, self.n_heads, -1, -1)], -1)


@cache  # Planning a study asks for the same encodings over and over.
def _require_decoupled(encoding: EncodingConfig, width: int) -> None:
    with initial_weights(0):
        Decoupled(encoding.build(), width)


def _compression(wide: int, narrow: int, *, norm: bool) -> nn.Sequential:
    down = nn.Linear(wide, narrow, bias=False)
    return nn.Sequential(down, Norm(narrow, eps=EPSILON)) if norm else nn.Sequential(down)


class Decoupled(Composite):
    r"""Lets an encoding act on the last r of d coordinates: :math:`(x_{<d-r},\, R(x_{\ge d-r}, p))`.

    Its bias sees these as queries and keys, scaled so that what it makes of their products has the weight of
    the products themselves, :math:`1/\sqrt d`.

    Args:
        inner: The encoding.
        width: r.

    Raises:
        UnsupportedError: If the encoding has form GENERAL, so that it computes whole logits or outputs.
    """

    def __init__(self, inner: Encoding, width: int) -> None:
        super().__init__(inner.config, [inner])
        if inner.form is Form.GENERAL:
            raise UnsupportedError(
                "attention 'mla' needs an encoding that rotates, or adds to input or logits; "
                f"{type(inner).__name__} (form GENERAL) computes logits or outputs as a whole."
            )
        self.width = width

    @property
    def inner(self) -> Encoding:
        """The encoding that acts on the last coordinates."""
        return self.terms[0]

    def acts_on(self, width: int) -> range:
        return range(width - self.width, width)

    def embed(self, x: Float[Tensor, "b t c"], pos: Tensor) -> Float[Tensor, "b t c"]:
        return self.inner.embed(x, pos)

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        if not self.scales:
            return q
        return torch.cat([q[..., : -self.width], self.inner.scaled(q[..., -self.width :])], -1)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        if not self.inner.turns:
            return x
        turned = self.inner.rotate(x[..., -self.width :], pos, side)
        return torch.cat([x[..., : -self.width], turned], -1)

    def bias(self, ctx: Context) -> Tensor | None:
        share = (self.width / ctx.q.shape[-1]) ** 0.5
        return self.inner.bias(replace(ctx, q=share * ctx.q[..., -self.width :], k=ctx.k[..., -self.width :]))

    def lag_bias(self, lag: Tensor) -> Tensor:
        return self.inner.lag_bias(lag)
