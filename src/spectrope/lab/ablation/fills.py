"""What takes the place of a head's output."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.attention import attention
from spectrope.attention.heads import Heads
from spectrope.attention.latent import Latent
from spectrope.core.errors import UnsupportedError
from spectrope.encodings.base import Context, Encoding, Form, Tag
from spectrope.encodings.nope import NoPE
from spectrope.lab.ablation.interventions import COLUMNS, HeadAblation


@dataclass(frozen=True)
class LayerMeans:
    """Means over the tokens of a data set, in the intact model, of one layer's heads."""

    outputs: Float[Tensor, "h k"]
    queries: Float[Tensor, "h d"]
    keys: Float[Tensor, "h d"]


@dataclass(frozen=True)
class Site:
    """The heads of one layer in one forward pass, and what fills may take from elsewhere.

    Args:
        heads: The module.
        encoding: The encoding that acts there.
        ctx: Queries and keys before rotation, positions and mask.
        v: Values, with shape (b, h, j, k).
        outputs: Outputs of all heads, with shape (b, h, i, k).
        impl: Attention implementation, or "fastest".
        means: Means over a data set, for "mean" and "position-only".
        donors: Outputs of the same heads on other examples, with shape (b, h, i, k), for "resample".
    """

    heads: Heads
    encoding: Encoding
    ctx: Context
    v: Tensor
    outputs: Float[Tensor, "b h i k"]
    impl: str
    means: LayerMeans | None = None
    donors: Tensor | None = None

    def attend(self, ctx: Context, encoding: Encoding, v: Tensor | None = None) -> Float[Tensor, "b h i k"]:
        """What the heads would put out with another context or encoding, or on other values."""
        v = self.v if v is None else v
        return attention(ctx, v, encoding, causal=self.heads.causal, impl=self.impl)

    def changed(self, ablations: Iterable[HeadAblation]) -> Float[Tensor, "b h i k"]:
        """Outputs of all heads with some ablations of this layer made at once.

        Raises:
            UnsupportedError: If a fill has no meaning for the attention or the encoding.
        """
        ablations = list(ablations)
        columns = {ablation.head for ablation in ablations if ablation.fill == COLUMNS}
        outputs = without_columns(self, columns) if columns else self.outputs
        outputs = outputs.clone()
        for fill in {ablation.fill for ablation in ablations} - {COLUMNS}:
            heads = [ablation.head for ablation in ablations if ablation.fill == fill]
            outputs[:, heads] = self.filled(fill)[:, heads]
        return outputs

    def filled(self, fill: str) -> Float[Tensor, "b h i k"]:
        """What takes the place of every head's output.

        Raises:
            UnsupportedError: If the fill has no meaning for the encoding, or changes no head by itself.
        """
        if fill == COLUMNS:
            raise UnsupportedError(
                f"fill {fill!r} changes all heads of a layer; it has no output for one head."
            )
        return FILLS[fill](self).to(self.outputs.dtype).expand_as(self.outputs)


def _zero(site: Site) -> Tensor:
    return site.outputs.new_zeros(())


def _mean(site: Site) -> Tensor:
    assert site.means is not None
    return site.means.outputs[:, None]


def _resample(site: Site) -> Tensor:
    assert site.donors is not None
    return site.donors


def _value_bias(site: Site) -> Tensor:
    """Rows of a pattern sum to 1, so a mean of values that are all equal to their bias is that bias."""
    bias = site.heads.value_bias()
    if site.encoding.form is not Form.GENERAL:
        return bias
    return site.attend(site.ctx, site.encoding, bias.to(site.v.dtype).expand_as(site.v))


def _position_only(site: Site) -> Tensor:
    _require_pairwise(site, "position-only")
    assert site.means is not None
    q, k = (mean[:, None] for mean in (site.means.queries, site.means.keys))
    q, k = q.to(site.ctx.q.dtype).expand_as(site.ctx.q), k.to(site.ctx.k.dtype).expand_as(site.ctx.k)
    return site.attend(replace(site.ctx, q=q, k=k), site.encoding)


def _content_only(site: Site) -> Tensor:
    """All lags 0; a bias of positions alone is then the same for all keys, and no pattern changes by it."""
    if site.encoding.form is Form.GENERAL:
        raise UnsupportedError(
            "fill 'content-only' needs an encoding that rotates or adds a bias; "
            f"{type(site.encoding).__name__} computes its logits as a whole."
        )
    _require_pairwise(site, "content-only")
    here = torch.zeros_like(site.ctx.q_pos), torch.zeros_like(site.ctx.k_pos)
    if Tag.CONTENT_FREE not in site.encoding.tags:
        return site.attend(replace(site.ctx, q_pos=here[0], k_pos=here[1]), site.encoding)
    q = site.encoding.rotate(site.encoding.scaled(site.ctx.q), here[0], "query")
    k = site.encoding.rotate(site.ctx.k, here[1], "key")
    return site.attend(replace(site.ctx, q=q, k=k), NoPE(NoPE.Config()))


def _require_pairwise(site: Site, fill: str) -> None:
    """Refuse encodings that take position from tokens, so that neither is to be had without the other.

    Raises:
        UnsupportedError: If a logit depends on other tokens than its own query and key.
    """
    if not site.encoding.pairwise:
        raise UnsupportedError(
            f"fill {fill!r} needs an encoding whose logits each depend on one query and one key; those of "
            f"{type(site.encoding).__name__} depend on other tokens too."
        )


def without_columns(site: Site, heads: Collection[int]) -> Float[Tensor, "b h i k"]:
    """Outputs of all heads where some columns of the up-projections of latent attention are zero (R12).

    What was meant for head h, its rows h * head_dim to (h + 1) * head_dim, is done to these columns instead:
    to latents of queries, and of keys and values. Heads beyond the width of the latents change nothing.

    Raises:
        UnsupportedError: If attention is not latent.
    """
    latent = site.heads
    if not isinstance(latent, Latent):
        raise UnsupportedError(
            f"fill {COLUMNS!r} needs attention 'mla'; this model has {type(latent).__name__}, "
            "whose public protocol is 'R9'."
        )
    x_q, x_k = site.ctx.x_q, site.ctx.x_k
    assert x_q is not None
    assert x_k is not None

    def cut(latents: Tensor) -> Tensor:
        keep = torch.ones_like(latents[0, 0])
        for head in heads:
            keep[head * latent.head_dim : (head + 1) * latent.head_dim] = 0
        return latents * keep

    z, c = latent.query_down(x_q), latent.key_value_down(x_k)
    q = latent.expand_queries(cut(z) if latent.compresses_queries else z)
    k, v = latent.expand_keys_values(cut(c), latent.rotary_key(x_k))
    return site.attend(replace(site.ctx, q=q, k=k), site.encoding, v)


FILLS: dict[str, Callable[[Site], Tensor]] = {
    "zero": _zero,
    "mean": _mean,
    "resample": _resample,
    "position-only": _position_only,
    "content-only": _content_only,
    "value-bias": _value_bias,
}
