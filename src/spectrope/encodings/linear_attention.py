"""Linear attention, with any decay, as a form of logits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from spectrope.core import OneOf, own_precision, require
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig, Form, Tag
from spectrope.encodings.composite import Composite, require_no_input
from spectrope.encodings.retnet import RetNet


class LinearAttention(Composite, name="linear_attention"):
    r"""Weights values by products of positive features instead of a softmax:
    :math:`L_{ij} = \ln\langle\phi(q_i), \phi(k_j)\rangle + b_{ij}`.

    Softmax of these logits is linear attention, :math:`\phi(q_i)^\top \phi(k_j) e^{b_{ij}}` over its sum,
    with :math:`\phi(x) = 1 + \mathrm{elu}(x)`. The bias is the logarithm of a decay: `retnet` decays by a
    fixed power of the lag, `fox` by a gate of every token in between, `nope` not at all. Here, as in all
    comparisons, it is computed from all pairs; the linear-time recurrence gives the same values.

    Retention in the paper of RetNet neither makes features positive nor divides by their sum, but normalises
    outputs.

    References:
        Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention (Katharopoulos et al.,
        2020); features of the authors' fast_transformers.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """The decay."""

        decay: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(default_factory=RetNet.Config)

    def built(self, config: "LinearAttention.Config") -> list[Encoding]:
        return [config.decay.build()]

    def compose(self, config: "LinearAttention.Config", terms: Sequence[Encoding]) -> None:
        super().compose(config, terms)
        (decay,) = terms
        require_no_input(terms, config, "decay")
        adds = decay.factors and not (decay.turns or decay.scales)
        require(adds, config, "decay", "an encoding that adds to logits and rotates nothing")
        self.form = Form.GENERAL
        self.tags = decay.tags - {Tag.CONTENT_FREE, Tag.ISOMETRIC}

    @property
    def factors(self) -> bool:
        return False

    @property
    def pairwise(self) -> bool:
        return self.terms[0].pairwise

    def bias(self, ctx: Context) -> Tensor | None:
        return self.terms[0].bias(ctx)

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        dtype = torch.promote_types(ctx.q.dtype, torch.float32)
        q, k = (1 + F.elu(x.to(dtype)) for x in (ctx.q, ctx.k))
        with own_precision(q):
            scores = (q @ k.transpose(-1, -2)).clamp(min=torch.finfo(dtype).tiny).log()
        bias = self.bias(ctx)
        return (scores if bias is None else scores + bias.to(dtype)).to(ctx.q.dtype)
