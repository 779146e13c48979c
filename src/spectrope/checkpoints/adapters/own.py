"""Describe a user-defined model, so that functions for Hugging Face models apply to it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.hooks import evaluating, running
from spectrope.checkpoints.adapters.inputs import runs_at, short_length
from spectrope.checkpoints.adapters.own_fields import declared_fields, observed_sizes
from spectrope.checkpoints.adapters.record import recorded
from spectrope.checkpoints.adapters.sites import first_of
from spectrope.checkpoints.adapters.torch_attention import check_multi_head, multi_head_forward
from spectrope.core import ConfigError, UnsupportedError, require_type
from spectrope.encodings import EncodingConfig

LEAST_VOCABULARY = 6  # Probes put token 5 at every position.
TOKEN = 5


class OwnModel(nn.Module):
    """A plain `nn.Module` with the information that audit, ablation and spectra need.

    The module maps token ids of shape (b, t) to token logits of shape (b, t, vocabulary), in one stack of
    blocks that stand in an `nn.ModuleList` or `nn.Sequential` and whose first argument is the hidden states
    (b, t, c). Queries, keys and heads are read as it runs: from a product (`@`, `matmul`, `bmm`, `einsum`)
    that ends in a softmax over (b, h, i, j), from `scaled_dot_product_attention`, or from
    `nn.MultiheadAttention`; the heads are what enters the first linear map behind. Attention inside another
    fused kernel cannot be observed; pass an equivalent forward method for its class in `forwards`. The module
    and its weights are not changed.

    Args:
        model: The module.
        vocabulary: Number of token ids, at least 6; None takes the number of rows of an embedding that is
            also the number of outputs of a linear map.
        max_length: Maximum number of tokens in a sequence; None for no limit.
        encoding: The intended encoding: its name, its configuration, or fields as in a Hugging Face
            `config.json`; None declares nothing. What a name or fields leave open of the width and the number
            of heads is that of the model.
        predictor: Dotted name of the linear map from states to token logits; None takes the last one with as
            many outputs as tokens.
        mask_token: Id of the mask token, for bidirectional models.
        forwards: For classes of attention modules that hide their kernel, a function that is called in the
            place of their forward pass, with the module before its arguments.

    Raises:
        ConfigError: If the vocabulary is too small or cannot be determined, or there is no such `predictor`.
        UnsupportedError: If the encoding cannot be declared, or a `nn.MultiheadAttention` is not
            `batch_first` or adds keys of its own.

    Example:
        >>> import spectrope as sp
        >>> from torch import nn
        >>> blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2)
        >>> model = nn.Sequential(nn.Embedding(50, 32), blocks, nn.Linear(32, 50))
        >>> own = sp.OwnModel(model.eval(), max_length=32, encoding="nope")
        >>> sp.audit(own, watch=sp.unwatched).ok
        True
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        vocabulary: int | None = None,
        max_length: int | None = None,
        encoding: str | EncodingConfig | Mapping[str, Any] | None = None,
        predictor: str | None = None,
        mask_token: int | None = None,
        forwards: Mapping[type[nn.Module], Callable[..., Any]] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module):
            raise ConfigError(f"OwnModel takes a torch.nn.Module; got a {type(model).__name__}.")
        vocabulary = _vocabulary(model) if vocabulary is None else vocabulary
        require_type(vocabulary, int, "OwnModel.vocabulary", "a whole number")
        if max_length is not None:
            require_type(max_length, int, "OwnModel.max_length", "a whole number")
        if vocabulary < LEAST_VOCABULARY:
            raise ConfigError(f"OwnModel.vocabulary must be at least {LEAST_VOCABULARY}; got {vocabulary}.")
        for module in model.modules():
            if isinstance(module, nn.MultiheadAttention):
                check_multi_head(module)
        self.model = model
        self.mask_token = mask_token
        self.config = OwnConfig(declared_fields(encoding) | _sizes(vocabulary, max_length))
        self.stated = dict(encoding) if isinstance(encoding, Mapping) else {}
        self.observed_sizes = observed_sizes(encoding)
        self.forwards = {nn.MultiheadAttention: multi_head_forward, **(forwards or {})}
        self.predictor = _predictor(model, vocabulary, predictor)

    @property
    def name(self) -> str:
        """What the module's class is called."""
        return type(self.model).__name__

    def forward(self, input_ids: Int[Tensor, "b t"], attention_mask: Tensor | None = None) -> SimpleNamespace:
        """Token logits of the module, as `logits`.

        Raises:
            UnsupportedError: If some of the sequences are padded, of which the module is told nothing.
        """
        if attention_mask is not None and not bool(attention_mask.all()):
            raise UnsupportedError(
                f"{self.name} accepts only sequences of equal length; truncate or sort them."
            )
        with self.visible():
            return SimpleNamespace(logits=first_of(self.model(input_ids)))

    def observed_declaration(self) -> dict[str, Any]:
        """Fields that declare the encoding, with the sizes of heads that it leaves open.

        Raises:
            ConfigError: If the encoding is declared for heads of another width or number.
            UnsupportedError: If no attention kernel could be observed.
        """
        fields = {name: value for name, value in self.config.to_dict().items() if value is not None}
        if not self.observed_sizes:
            return fields
        call = self._first_call()
        sizes = {"head_dim": call.q.shape[-1], "num_attention_heads": call.q.shape[1]}
        for size in self.observed_sizes:
            observed = sizes[size]
            if fields.setdefault(size, observed) != observed:
                raise ConfigError(
                    f"OwnModel.encoding declares {size} {fields[size]}, but that of {call.module} in "
                    f"{self.name} is {observed}; give a configuration for it, or the encoding's name alone."
                )
        return fields

    @torch.no_grad()
    def _first_call(self) -> Call:
        """Queries and keys of the first attention layer, on few tokens."""
        calls: list[Call] = []
        length = short_length(self)
        ids = torch.full((1, length), TOKEN, device=next(self.parameters()).device)
        with evaluating(self), runs_at(length, self), recorded(self, calls.append):
            self(ids)
        if not calls:
            raise UnsupportedError(f"no attention kernel of {self.name} could be observed.")
        return calls[0]

    def get_output_embeddings(self) -> nn.Module | None:
        """The linear map from states to token logits, if there is one."""
        return None if self.predictor is None else self.model.get_submodule(self.predictor)

    @contextlib.contextmanager
    def visible(self) -> Iterator[None]:
        """Context manager in which attention fused by torch or by the user's code is computed step by
        step."""
        fused = torch.backends.mha.get_fastpath_enabled()
        with contextlib.ExitStack() as stack:
            stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
            torch.backends.mha.set_fastpath_enabled(False)
            for module in self.model.modules():
                forward = self._forward_of(module)
                if forward is not None and "forward" not in module.__dict__:  # No other hook has replaced it.
                    stack.enter_context(running(module, _bound(forward, module)))
            yield

    def _forward_of(self, module: nn.Module) -> Callable[..., Any] | None:
        known = (forward for cls, forward in self.forwards.items() if isinstance(module, cls))
        return next(known, None)


class OwnConfig:
    """What an `OwnModel` says of itself, read like the configuration of a Hugging Face model."""

    is_encoder_decoder = False

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)
        self.__dict__.update(fields)

    def get_text_config(self) -> "OwnConfig":
        """Itself: there is nothing but text."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Its fields."""
        return dict(self._fields)


def _vocabulary(model: nn.Module) -> int:
    """How many tokens a model embeds and predicts."""
    modules = list(model.modules())
    outputs = {module.out_features for module in modules if isinstance(module, nn.Linear)}
    embedded = [module.num_embeddings for module in modules if isinstance(module, nn.Embedding)]
    shared = [size for size in dict.fromkeys(embedded) if size in outputs]
    if len(shared) != 1:
        raise ConfigError(
            f"OwnModel needs vocabulary=, the number of token ids: {len(shared) or 'no'} sizes of embeddings "
            f"of {type(model).__name__} are also those of a linear map's outputs."
        )
    return shared[0]


def _bound(forward: Callable[..., Any], module: nn.Module) -> Callable[..., Any]:
    return lambda *args, **given: forward(module, *args, **given)


def _sizes(vocabulary: int, max_length: int | None) -> dict[str, int]:
    return {"vocab_size": vocabulary} | (
        {} if max_length is None else {"max_position_embeddings": max_length}
    )


def _predictor(model: nn.Module, vocabulary: int, name: str | None) -> str | None:
    """Dotted name of the map from states to token logits."""
    modules = dict(model.named_modules())
    if name is None:
        linear = {name: one for name, one in modules.items() if isinstance(one, nn.Linear)}
        return next((name for name in reversed(linear) if linear[name].out_features == vocabulary), None)
    if name not in modules:
        raise ConfigError(f"OwnModel.predictor must be the dotted name of a module; got {name!r}.")
    return name
