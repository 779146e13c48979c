"""The decoder: embeddings, pre-norm blocks, pooling, classifier."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from spectrope.attention import ATTENTIONS, AttentionConfig, Heads, HeadSizes, MultiHead, Stream
from spectrope.core import (
    Configured,
    Noise,
    OneOf,
    SeededModule,
    checked,
    maybe_drop,
    own_precision,
    require,
    require_type,
)
from spectrope.encodings import (
    ENCODINGS,
    POSITIONS,
    Arange,
    Encoding,
    EncodingConfig,
    NoPE,
    Positions,
    order,
)
from spectrope.tasks import Batch

DropoutSite = Literal["pattern", "attention", "hidden", "feed_forward"]
# Sites of dropout, as in torch's encoder layer.
SITES: tuple[DropoutSite, ...] = ("pattern", "attention", "hidden", "feed_forward")
_SIZES = ("vocabulary", "n_labels", "max_length", "d_model", "n_layers", "n_heads", "head_dim", "d_ff")


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Configured):
    """Architecture of a `Decoder`; sizes that the encoding shares are written into its configuration.

    The marks R1 to R17 are the divergences between the paper's text and its public code; R3 to R6 are fields
    of `encoding` (a `Sum`, the learned table, ALiBi's slopes, trainable random positions), R8 of the task,
    R11 of `encoding` and `attention`, R15 of the training. Sites of dropout are the attention "pattern", the
    projected output of "attention", the "hidden" units of the feed-forward layers, and their output,
    "feed_forward".

    Example:
        >>> import spectrope as sp
        >>> sp.DecoderConfig(n_layers=2, n_heads=4, encoding=sp.encodings.ALiBi.Config()).encoding.n_heads
        4
    """

    vocabulary: int = 574  # Token ids, padding included.
    n_labels: int = 121  # Labels of the task, 0 included.
    max_length: int = 128  # Longest sequence, in tokens.
    d_model: int = 256  # Width of the residual stream.
    n_layers: int = 6
    n_heads: int = 16
    head_dim: int = 16  # Width of one head's queries, keys and values.
    d_ff: int = 512  # Width of the feed-forward layers.
    dropout: float = 0.1  # Probability, at each site of `dropout_at`.
    encoding: Annotated[EncodingConfig, OneOf(ENCODINGS)] = field(default_factory=NoPE.Config)
    positions: Annotated[Positions, OneOf(POSITIONS)] = field(default_factory=Arange)
    causal: bool = True  # R1. Whether attention is causal.
    memory: Literal["hidden", "embeddings"] = "hidden"  # R2. Where keys and values come from.
    padding: Literal["masked", "visible"] = "masked"  # R7. In attention and in pooling.
    # R13. "vocabulary" leaves label 0 out of loss and accuracy, "vocabulary_with_zero" counts it.
    classes: Literal["labels", "vocabulary", "vocabulary_with_zero"] = "labels"
    pooling: Literal["mean", "last"] = "mean"  # Over tokens, before the classifier.
    final_norm: bool = False  # R7, under latent attention. LayerNorm after the last block.
    attention: Annotated[AttentionConfig, OneOf(ATTENTIONS)] = field(default_factory=MultiHead.Config)
    feed_forward: Literal["relu", "gelu"] = "relu"  # R14.
    dropout_at: tuple[DropoutSite, ...] = SITES  # R16.
    output_bias: bool = True  # R17. Of the projection of the heads' outputs.

    added_later = frozenset({"attention", "feed_forward", "dropout_at", "output_bias"})

    def __post_init__(self) -> None:
        for size in _SIZES:
            require_type(getattr(self, size), int, f"DecoderConfig.{size}", "a whole number")
            require(getattr(self, size) >= 1, self, size, "at least 1")
        for part, registry in (("encoding", ENCODINGS), ("positions", POSITIONS), ("attention", ATTENTIONS)):
            object.__setattr__(self, part, OneOf(registry).read(getattr(self, part)))
        require_type(self.dropout, Real, "DecoderConfig.dropout", "a number")
        require(0 <= self.dropout < 1, self, "dropout", "a probability below 1")
        fewer = f"The task has {self.n_labels} labels."
        enough = self.classes == "labels" or self.vocabulary >= self.n_labels
        require(enough, self, "vocabulary", f"at least n_labels where classes={self.classes!r}", fewer)
        require_type(
            self.dropout_at, (tuple, list), "DecoderConfig.dropout_at", "a tuple, such as ('hidden',)"
        )
        require(set(self.dropout_at) <= set(SITES), self, "dropout_at", f"some of {', '.join(SITES)}")
        object.__setattr__(self, "dropout_at", tuple(site for site in SITES if site in self.dropout_at))
        object.__setattr__(self, "encoding", self.encoding.fitted(**self.sizes))
        self.attention.check(self.encoding)

    @property
    def sizes(self) -> dict[str, int | bool]:
        """Sizes that the encoding shares with the model."""
        names = ("d_model", "n_heads", "max_length", "causal")
        sizes = {name: getattr(self, name) for name in names}
        return sizes | {"head_dim": self.attention.encoded_dim(self.head_dim)}

    @property
    def head_sizes(self) -> HeadSizes:
        """Sizes that the heads share with the model."""
        return HeadSizes(self.d_model, self.n_heads, self.head_dim, self.causal)

    @property
    def n_outputs(self) -> int:
        """Number of classes of the classifier."""
        return self.n_labels if self.classes == "labels" else self.vocabulary

    @property
    def ignored_label(self) -> int | None:
        """The label that is excluded from loss and accuracy, if any."""
        return 0 if self.classes == "vocabulary" else None


_NO_ENCODING = NoPE(NoPE.Config())


class Block(nn.Module):
    """A pre-norm layer: x + out(heads(norm(x))), then x + feed-forward(norm(x))."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.d_model)
        self.heads: Heads = config.attention.build(config.head_sizes)
        self.out = nn.Linear(config.n_heads * config.head_dim, config.d_model, bias=config.output_bias)
        self.ff_norm = nn.LayerNorm(config.d_model)
        self.up = nn.Linear(config.d_model, config.d_ff)
        self.down = nn.Linear(config.d_ff, config.d_model)
        self.activation = F.gelu if config.feed_forward == "gelu" else F.relu
        self.sites = frozenset(config.dropout_at)

    def forward(self, x: Tensor, stream: Stream, encoding: Encoding, impl: str) -> Float[Tensor, "b t c"]:
        attended = replace(stream, noise=self._at("pattern", stream.noise))
        return self.after_heads(x, self.heads(self.attention_norm(x), attended, encoding, impl), stream.noise)

    def after_heads(self, x: Tensor, heads: Float[Tensor, "b h t k"], noise: Noise | None) -> Tensor:
        """The rest of the layer, from its input x and the outputs of its heads."""
        change = self.out(heads.transpose(1, 2).flatten(2))
        return self.feed_forward(x + maybe_drop(change, self._at("attention", noise)), noise)

    def feed_forward(self, x: Tensor, noise: Noise | None) -> Tensor:
        """The second half of the layer, from the residual stream behind attention, with any leading axes."""
        hidden = self.activation(self.up(self.ff_norm(x)))
        change = self.down(maybe_drop(hidden, self._at("hidden", noise)))
        return x + maybe_drop(change, self._at("feed_forward", noise))

    def _at(self, site: DropoutSite, noise: Noise | None) -> Noise | None:
        """The dropout noise of a site, if there is any."""
        return noise if site in self.sites else None


class Decoder(SeededModule):
    """A Transformer that classifies token sequences, with any registered positional encoding.

    Args:
        config: Its architecture.
        impl: Attention implementation, or "fastest" for the fastest exact one on the device.

    Example:
        >>> import spectrope as sp
        >>> config = sp.DecoderConfig(d_model=32, n_layers=2, n_heads=2, encoding=sp.encodings.RoPE.Config())
        >>> sp.Decoder(config)(sp.tasks.Distance().sample(4, seed=0)).shape
        torch.Size([4, 121])

    References:
        Unpacking Positional Encoding in Transformers (Gu et al., 2025), Sec. 4 and Tables 3 and 4.
    """

    def __init__(self, config: DecoderConfig, impl: str = "fastest") -> None:
        super().__init__()
        require_type(config, DecoderConfig, "the configuration of a Decoder", "a DecoderConfig")
        config = checked(config)
        self.config, self.impl = config, impl
        self.positions, self.without_positions = config.positions, False
        self.tokens = nn.Embedding(config.vocabulary, config.d_model)
        layers = config.attention.encode(config.encoding.build_layers(config.n_layers))
        self.encodings = nn.ModuleList(dict.fromkeys(layers))  # each once, shared or not
        self._encoding_of = [list(self.encodings).index(encoding) for encoding in layers]
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
        self.norm = nn.LayerNorm(config.d_model) if config.final_norm else nn.Identity()
        self.classifier = nn.Linear(config.d_model, config.n_outputs)

    def forward(self, batch: Batch, noise: Noise | None = None) -> Float[Tensor, "b classes"]:
        """Class logits of a batch; passing `noise` enables dropout."""
        x, stream = self.begin(batch, noise)
        for layer in range(len(self.blocks)):
            x = self.apply_block(layer, x, stream)
        return self.readout(x, stream)

    def begin(self, batch: Batch, noise: Noise | None = None) -> tuple[Float[Tensor, "b t c"], Stream]:
        """Input of the first layer, and quantities that all layers share."""
        n, width = batch.inputs.shape
        real = torch.arange(width, device=batch.inputs.device) < batch.lengths[:, None]
        pos = batch.positions
        if pos is None:
            pos = self.positions(n, width, batch.inputs.device)
        first = self.encoding_of(0)
        x = first.embed(self.tokens(batch.inputs), first.seen(pos))
        if all(encoding.axes == 1 for encoding in self._encodings()):
            pos = order(pos)
        # Right-padded keys lie in the future of every token, so a causal layer needs no mask for them.
        masked = self.config.padding == "masked" and not self.config.causal
        memory = x if self.config.memory == "embeddings" else None
        return x, Stream(memory, pos, real, real[:, None, None, :] if masked else None, noise)

    @property
    def ignores_padding(self) -> bool:
        """Whether padding is excluded from attention and pooling."""
        return self.config.padding == "masked"

    @property
    def padding_is_inert(self) -> bool:
        """Whether removing padding leaves all outputs unchanged."""
        by_prefix = all(encoding.prefix_consistent for encoding in self._encodings())
        return self.ignores_padding and self.positions.prefix_consistent and by_prefix

    def _encodings(self) -> Iterator[Encoding]:
        """The encoding of every layer."""
        return (self.encoding_of(layer) for layer in range(len(self.blocks)))

    def encoding_of(self, layer: int) -> Encoding:
        """The encoding that acts in a layer."""
        if self.without_positions:
            return _NO_ENCODING
        encoding = self.encodings[self._encoding_of[layer]]
        assert isinstance(encoding, Encoding)
        return encoding

    def drop_positions(self) -> None:
        """Leave every encoding out from now on; their parameters stay, and have no effect."""
        self.without_positions = True

    def apply_block(self, layer: int, x: Tensor, stream: Stream) -> Float[Tensor, "b t c"]:
        """One layer of the residual stream."""
        return self.blocks[layer](x, stream, self.encoding_of(layer), self.impl)

    def readout(self, x: Float[Tensor, "b t c"], stream: Stream) -> Float[Tensor, "b classes"]:
        """Class logits from the output of the last layer; in bfloat16, classes would tie."""
        with own_precision(x):
            return self.classifier(self._pooled(self.norm(x), stream.real))

    def _pooled(self, x: Float[Tensor, "b t c"], real: Bool[Tensor, "b t"]) -> Float[Tensor, "b c"]:
        if self.config.padding == "visible":
            real = torch.ones_like(real)
        if self.config.pooling == "last":
            return x[torch.arange(len(x), device=x.device), real.sum(1) - 1]
        return torch.einsum("bt,btc->bc", real.to(x.dtype) / real.sum(1, keepdim=True), x)
