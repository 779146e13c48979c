"""The small Transformer for grokking, without computations that do not affect the loss."""

from dataclasses import dataclass, field
from typing import Annotated

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from spectrope.attention import attention
from spectrope.core import OneOf, require_least
from spectrope.encodings import ENCODINGS, Context, Encoding, EncodingConfig, Learned
from spectrope.grokking.models.base import ModularModel, ModularModelConfig
from spectrope.grokking.models.first_layer import FirstLayerTables
from spectrope.grokking.models.layer import TransformerLayer, is_positional, pick
from spectrope.grokking.tasks.modular import ModularConfig

LENGTH = 3  # Tokens: a, b and "=".


class ModularTransformer(ModularModel, name="transformer"):
    r"""A causal Transformer that reads a, b, "=" and answers at the third position.

    Every token depends on its operand and position alone until the first layer mixes them, so that layer's
    queries, keys and values are made once per operand (p of each) instead of once per pair; the last layer
    asks one query and has one feed-forward row per pair. Nothing is approximated.

    Weights start as :math:`N(0, 1/d_{model})`, biases at 0, and an encoding's own as it says.

    References:
        Progress Measures for Grokking via Mechanistic Interpretability (Nanda et al., 2023), Sec. 3;
        arXiv 2504.03162, whose settings are the defaults.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(ModularModelConfig):
        """Sizes, and the positional encoding: a learned table as in the paper, or any other."""

        d_model: int = 128  # Width of the residual stream.
        n_layers: int = 2
        n_heads: int = 4
        head_dim: int = 32  # Width of one head's queries, keys and values.
        d_mlp: int = 512  # Width of the feed-forward layers.
        encoding: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(
            default_factory=lambda: Learned.Config(std=128**-0.5)
        )

        def __post_init__(self) -> None:
            require_least(self, 1, "d_model", "n_layers", "n_heads", "head_dim", "d_mlp")
            sizes = {name: getattr(self, name) for name in ("d_model", "n_heads", "head_dim")}
            fitted = self.encoding.fitted(**sizes, max_length=LENGTH, causal=True)
            object.__setattr__(self, "encoding", fitted)

        @property
        def causal(self) -> bool:
            """Whether attention is causal."""
            return True

        def layer(self) -> TransformerLayer:
            """Untrained weights of one layer."""
            return TransformerLayer(self.d_model, self.n_heads, self.head_dim, self.d_mlp)

    pos: Tensor

    def __init__(self, config: "ModularTransformer.Config", task: ModularConfig) -> None:
        super().__init__(config, task)
        self.tokens = nn.Parameter(torch.empty(task.vocabulary, config.d_model))
        self.layers = nn.ModuleList(config.layer() for _ in range(config.n_layers))
        self.unembed = nn.Linear(config.d_model, task.p, bias=False)
        for name, parameter in self.named_parameters():
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.normal_(
                parameter, std=config.d_model**-0.5
            )
        encodings = config.encoding.build_layers(config.n_layers)
        self.encodings = nn.ModuleList(dict.fromkeys(encodings))  # each once, shared or not
        self._encoding_of = [list(self.encodings).index(encoding) for encoding in encodings]
        self.register_buffer("pos", torch.arange(LENGTH)[None], persistent=False)

    def represent(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        if all(isinstance(one, Encoding) and is_positional(one) for one in self.encodings):
            return self._by_streams(a, b)
        equals = self.tokens[-1:].expand(len(a), -1)
        of_a, of_b = self.operands()
        x = self._layer(0)[1].embed(torch.stack([pick(of_a, a), pick(of_b, b), equals], 1), self.pos)
        for number in range(len(self.layers)):
            x = self._mixed(number, x, last=number == len(self.layers) - 1)
        return x[:, -1]

    def read_out(self, x: Float[Tensor, "n c"]) -> Float[Tensor, "n p"]:
        return self.unembed(x)

    def operands(self) -> tuple[Float[Tensor, "p c"], Float[Tensor, "p c"]]:
        return self.tokens[: self.p], self.tokens[self.offset : self.offset + self.p]

    def _layer(self, number: int) -> tuple[TransformerLayer, Encoding]:
        layer, encoding = self.layers[number], self.encodings[self._encoding_of[number]]
        assert isinstance(layer, TransformerLayer)
        assert isinstance(encoding, Encoding)
        return layer, encoding

    def _by_streams(self, a: Int[Tensor, " n"], b: Int[Tensor, " n"]) -> Float[Tensor, "n c"]:
        """Output of the last layer at the third position, where every encoding is positional."""
        layer, encoding = self._layer(0)
        rows = torch.stack([*self.operands(), self.tokens[-1:].expand(self.p, -1)], 1)
        tables = FirstLayerTables(layer, encoding, encoding.embed(rows, self.pos), self.pos)
        if len(self.layers) == 1:
            return tables.last(a, b)
        streams = tables.streams(a, b)
        for number in range(1, len(self.layers) - 1):
            streams = streams.through(*self._layer(number), self.pos)
        return streams.answer(*self._layer(len(self.layers) - 1), self.pos)

    def _mixed(self, number: int, x: Float[Tensor, "n 3 c"], *, last: bool) -> Float[Tensor, "n t c"]:
        """One layer of whatever sequences; only of their last position where it is the `last` one."""
        layer, encoding = self._layer(number)
        asked = slice(-1 if last else None, None)
        (q,), (k, v) = layer.heads(x[:, asked], 0, 0), layer.heads(x, 1, 2)
        ctx = Context(q, k, self.pos[:, asked], self.pos, x[:, asked], x)
        seen = attention(ctx, v, encoding, causal=True, impl="fastest")
        return layer.after_heads(x[:, asked], seen.transpose(1, 2).flatten(2))
