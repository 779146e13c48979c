"""What takes the place of a head's output."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.attention import attention, fastest
from spectrope.core.errors import UnsupportedError
from spectrope.encodings.base import Context, Encoding, Form, Tag
from spectrope.encodings.nope import NoPE
from spectrope.models.decoder import Heads


@dataclass(frozen=True)
class LayerMeans:
    """Means over the tokens of a data set, in the intact model, of one layer's heads, each (h, k)."""

    outputs: Float[Tensor, "h k"]
    queries: Float[Tensor, "h k"]
    keys: Float[Tensor, "h k"]


@dataclass(frozen=True)
class Site:
    """The heads of one layer in one forward pass, and what fills may take from elsewhere.

    Args:
        heads: The module.
        encoding: The encoding that acts there.
        ctx: Queries and keys before rotation, positions and mask.
        v: Values, with shape (b, h, j, k).
        outputs: Outputs of all heads, with shape (b, h, i, k).
        impl: Attention implementation, or "auto".
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

    def attend(self, ctx: Context, encoding: Encoding) -> Float[Tensor, "b h i k"]:
        """What the heads would put out with another context or encoding, on the same values."""
        name = fastest(encoding, self.v.device) if self.impl == "auto" else self.impl
        return attention(ctx, self.v, encoding, causal=self.heads.causal, impl=name)

    def filled(self, fill: str) -> Float[Tensor, "b h i k"]:
        """What takes the place of every head's output.

        Raises:
            UnsupportedError: If the fill has no meaning for the encoding.
        """
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
    """Rows of a pattern sum to 1, so values that are all equal to their bias come out as it is."""
    return site.heads.qkv.bias[2 * site.heads.inner :].view(site.heads.n_heads, 1, -1)


def _position_only(site: Site) -> Tensor:
    if Tag.CONTENT_FREE not in site.encoding.tags:
        raise UnsupportedError(
            "fill 'position-only' needs an encoding that never looks at tokens; "
            f"{type(site.encoding).__name__} does."
        )
    assert site.means is not None
    q, k = (mean[:, None] for mean in (site.means.queries, site.means.keys))
    q, k = q.to(site.ctx.q.dtype).expand_as(site.ctx.q), k.to(site.ctx.k.dtype).expand_as(site.ctx.k)
    return site.attend(replace(site.ctx, q=q, k=k), site.encoding)


def _content_only(site: Site) -> Tensor:
    """All lags 0; a bias that is the same for all keys leaves the pattern as it is, so none is added."""
    if site.encoding.form is Form.GENERAL:
        raise UnsupportedError(
            "fill 'content-only' needs an encoding that rotates or adds a bias; "
            f"{type(site.encoding).__name__} computes its logits as a whole."
        )
    here = torch.zeros_like(site.ctx.q_pos), torch.zeros_like(site.ctx.k_pos)
    q = site.encoding.rotate(site.ctx.q, here[0], "query")
    k = site.encoding.rotate(site.ctx.k, here[1], "key")
    return site.attend(replace(site.ctx, q=q, k=k), NoPE(NoPE.Config()))


FILLS: dict[str, Callable[[Site], Tensor]] = {
    "zero": _zero,
    "mean": _mean,
    "resample": _resample,
    "position-only": _position_only,
    "content-only": _content_only,
    "value-bias": _value_bias,
}
