"""The paper's Transformer: embeddings, pre-norm blocks, pooling, classifier; every divergence a field."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from spectrope.attention import attention, fastest
from spectrope.core.config import Configured, OneOf
from spectrope.core.errors import require
from spectrope.core.noise import Noise, maybe_drop
from spectrope.encodings.base import ENCODINGS, Context, Encoding, EncodingConfig
from spectrope.encodings.nope import NoPE
from spectrope.positions.arange import Arange
from spectrope.positions.base import POSITIONS, Positions
from spectrope.tasks.base import Batch

_SIZES = ("vocabulary", "n_labels", "max_length", "d_model", "n_layers", "n_heads", "head_dim", "d_ff")


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Configured):
    """Architecture of a `Decoder`; sizes that the encoding shares are written into its configuration.

    The marks R1 to R13 are the divergences between the paper's text and its public code; R3 to R6 are fields
    of `encoding` (a `Sum`, the learned table, ALiBi's slopes, trainable random positions), R8 of the task.
    """

    vocabulary: int = 574  # Token ids, padding included.
    n_labels: int = 121  # Labels of the task, 0 included.
    max_length: int = 128  # Longest sequence, in tokens.
    d_model: int = 256  # Width of the residual stream.
    n_layers: int = 6
    n_heads: int = 16
    head_dim: int = 16  # Width of one head's queries, keys and values.
    d_ff: int = 512  # Width of the feed-forward layers.
    dropout: float = 0.1  # Probability, at the four sites of torch's encoder layer.
    encoding: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(default_factory=NoPE.Config)
    positions: Annotated[Positions, OneOf(POSITIONS)] = field(default_factory=Arange)
    causal: bool = True  # R1. Whether attention sees the past alone.
    memory: Literal["hidden", "embeddings"] = "hidden"  # R2. Where keys and values come from.
    padding: Literal["masked", "visible"] = "masked"  # R7. In attention and in pooling.
    classes: Literal["labels", "vocabulary"] = "labels"  # R13. "vocabulary" also leaves label 0 out.
    pooling: Literal["mean", "last"] = "mean"  # Over tokens, before the classifier.
    final_norm: bool = False  # LayerNorm after the last block.

    def __post_init__(self) -> None:
        for size in _SIZES:
            require(getattr(self, size) >= 1, self, size, "at least 1")
        require(0 <= self.dropout < 1, self, "dropout", "a probability below 1")
        fewer = f"The task has {self.n_labels} labels."
        enough = self.classes == "labels" or self.vocabulary >= self.n_labels
        require(enough, self, "vocabulary", "at least n_labels where classes='vocabulary'", fewer)
        object.__setattr__(self, "encoding", self.encoding.fitted(**self.sizes))

    @property
    def sizes(self) -> dict[str, int | bool]:
        """What the encoding takes over from the model."""
        names = ("d_model", "n_heads", "head_dim", "max_length", "causal")
        return {name: getattr(self, name) for name in names}

    @property
    def n_outputs(self) -> int:
        """Number of classes that the classifier tells apart."""
        return self.n_labels if self.classes == "labels" else self.vocabulary

    @property
    def ignored_label(self) -> int | None:
        """The label that neither loss nor accuracy counts, if any."""
        return 0 if self.classes == "vocabulary" else None


@dataclass(frozen=True)
class Stream:
    """What all layers of one forward pass share.

    Args:
        memory: Source of keys and values with shape (b, t, c), or None where it is the hidden state.
        pos: Positions, with shape (b or 1, t).
        real: True at tokens, False at padding, with shape (b, t).
        mask: Attention mask, or None where nothing needs one.
        noise: Dropout masks, or None outside training.
    """

    memory: Tensor | None
    pos: Tensor
    real: Bool[Tensor, "b t"]
    mask: Bool[Tensor, "..."] | None
    noise: Noise | None


class Heads(nn.Module):
    """The heads of one layer: hidden states (b, t, c) to head outputs (b, h, t, k), before the projection.

    Interventions on heads hook this module's output.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.causal = config.n_heads, config.head_dim, config.causal
        self.inner = config.n_heads * config.head_dim
        self.qkv = nn.Linear(config.d_model, 3 * self.inner)

    def project(self, x: Float[Tensor, "b t c"], memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of x, and keys and values of `memory` (of x where that is None), each (b, h, t, k)."""
        if memory is None:
            q, k, v = self._split(self.qkv(x))
            return q, k, v
        return self.queries(x), *self.keys_values(memory)

    def queries(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b h t k"]:
        """Queries alone."""
        w, b = self.qkv.weight[: self.inner], self.qkv.bias[: self.inner]
        return self._split(nn.functional.linear(x, w, b))[0]

    def keys_values(self, memory: Float[Tensor, "b t c"]) -> tuple[Tensor, Tensor]:
        """Keys and values alone, each (b, h, t, k)."""
        w, b = self.qkv.weight[self.inner :], self.qkv.bias[self.inner :]
        k, v = self._split(nn.functional.linear(memory, w, b))
        return k, v

    def _split(self, flat: Float[Tensor, "b t f"]) -> Float[Tensor, "n b h t k"]:
        """Sets of heads from a product that holds them side by side."""
        return flat.unflatten(-1, (-1, self.n_heads, self.head_dim)).permute(2, 0, 3, 1, 4)

    def context(self, x: Float[Tensor, "b t c"], stream: Stream) -> tuple[Context, Float[Tensor, "b h t k"]]:
        """All that an encoding may look at in this layer, and the values."""
        q, k, v = self.project(x, stream.memory)
        memory = x if stream.memory is None else stream.memory
        return Context(q, k, stream.pos, stream.pos, x, memory, stream.mask), v

    def forward(self, x: Tensor, stream: Stream, encoding: Encoding, impl: str) -> Float[Tensor, "b h t k"]:
        ctx, v = self.context(x, stream)
        name = fastest(encoding, x.device, stream.noise) if impl == "auto" else impl
        return attention(ctx, v, encoding, causal=self.causal, impl=name, noise=stream.noise)


class Block(nn.Module):
    """A pre-norm layer: x + out(heads(norm(x))), then x + feed-forward(norm(x)), dropout after each part."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.heads = Heads(config)
        self.out = nn.Linear(config.n_heads * config.head_dim, config.d_model)
        self.ff_norm = nn.LayerNorm(config.d_model)
        self.up = nn.Linear(config.d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor, stream: Stream, encoding: Encoding, impl: str) -> Float[Tensor, "b t c"]:
        return self.after_heads(x, self.heads(self.attention_norm(x), stream, encoding, impl), stream.noise)

    def after_heads(self, x: Tensor, heads: Float[Tensor, "b h t k"], noise: Noise | None) -> Tensor:
        """The rest of the layer, from its input x and the outputs of its heads."""
        return self.feed_forward(x + maybe_drop(self.out(heads.transpose(1, 2).flatten(2)), noise), noise)

    def feed_forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        """The second half of the layer, from the residual stream behind attention, with any leading axes."""
        hidden = maybe_drop(self.up(self.ff_norm(x)).relu(), noise)
        return x + maybe_drop(self.down(hidden), noise)


class Decoder(nn.Module):
    """A Transformer that classifies token sequences, with any registered positional encoding.

    Args:
        config: Its architecture.
        impl: Attention implementation, or "auto" for the one that measured fastest on the device.

    References:
        Unpacking Positional Encoding in Transformers (Gu et al., 2025), Sec. 4 and Tables 3 and 4.
    """

    def __init__(self, config: DecoderConfig, impl: str = "auto") -> None:
        super().__init__()
        self.config, self.impl = config, impl
        self.positions = config.positions
        self.tokens = nn.Embedding(config.vocabulary, config.d_model)
        layers = config.encoding.build_layers(config.n_layers)
        self.encodings = nn.ModuleList(dict.fromkeys(layers))  # each once, shared or not
        self._encoding_of = [list(self.encodings).index(encoding) for encoding in layers]
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.final_norm else nn.Identity()
        self.classifier = nn.Linear(config.d_model, config.n_outputs)

    def forward(self, batch: Batch, noise: Noise | None = None) -> Float[Tensor, "b classes"]:
        """Class logits of a batch; `noise` switches dropout on."""
        x, stream = self.begin(batch, noise)
        for layer in range(len(self.blocks)):
            x = self.apply_block(layer, x, stream)
        return self.readout(x, stream)

    def begin(self, batch: Batch, noise: Noise | None = None) -> tuple[Float[Tensor, "b t c"], Stream]:
        """Input of the first layer, and what all layers share."""
        n, width = batch.inputs.shape
        real = torch.arange(width, device=batch.inputs.device) < batch.lengths[:, None]
        given = batch.positions
        pos = given if given is not None else self.positions(n, width, batch.inputs.device)
        x = self.encoding_of(0).embed(self.tokens(batch.inputs), pos)
        # Right-padded keys lie in the future of every token, so a causal layer needs no mask for them.
        masked = self.config.padding == "masked" and not self.config.causal
        memory = x if self.config.memory == "embeddings" else None
        return x, Stream(memory, pos, real, real[:, None, None, :] if masked else None, noise)

    @property
    def padding_is_inert(self) -> bool:
        """Whether cutting padding off changes no output."""
        return self.config.padding == "masked"

    def encoding_of(self, layer: int) -> Encoding:
        """The encoding that acts in a layer."""
        encoding = self.encodings[self._encoding_of[layer]]
        assert isinstance(encoding, Encoding)
        return encoding

    def apply_block(self, layer: int, x: Tensor, stream: Stream) -> Float[Tensor, "b t c"]:
        """One layer of the residual stream."""
        return self.blocks[layer](x, stream, self.encoding_of(layer), self.impl)

    def readout(self, x: Float[Tensor, "b t c"], stream: Stream) -> Float[Tensor, "b classes"]:
        """Class logits from the output of the last layer."""
        x, real = self.norm(x), stream.real
        if self.config.padding == "visible":
            real = torch.ones_like(real)
        if self.config.pooling == "last":
            pooled = x[torch.arange(len(x), device=x.device), real.sum(1) - 1]
        else:
            weights = real.to(x.dtype) / real.sum(1, keepdim=True)
            pooled = torch.einsum("bt,btc->bc", weights, x)
        return self.classifier(pooled)
