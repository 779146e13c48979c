"""Attention that computes a part of all pairs in bands or blocks: record it, and run it on given vectors."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from spectrope.checkpoints.adapters.call import Call, exact
from spectrope.checkpoints.adapters.hooks import running
from spectrope.checkpoints.adapters.interface import Sink

ONCE = 1e-3  # Share by which weights of equal logits may differ through rounding.


@dataclass(frozen=True)
class SparseForm:
    """How a class of the library projects and attends.

    Args:
        sides: Names of the projections of queries, keys and values.
        of_global: Those of tokens with global attention, if they have their own.
        positions_first: Whether projections are called with the positions before the batch.
    """

    sides: tuple[str, str, str] = ("query", "key", "value")
    of_global: tuple[str, ...] = ()
    positions_first: bool = False


BANDED = SparseForm(of_global=("query_global", "key_global", "value_global"), positions_first=True)
FORMS = {
    "LongformerSelfAttention": BANDED,
    "LEDEncoderSelfAttention": BANDED,
    "BigBirdBlockSparseAttention": SparseForm(),
    "BigBirdPegasusBlockSparseAttention": SparseForm(),
}
NOT_READ = ("LongT5LocalAttention", "LongT5TransientGlobalAttention", "PegasusXGlobalLocalAttention")


def _form_of(module: nn.Module) -> SparseForm | None:
    return next((FORMS[cls.__name__] for cls in type(module).__mro__ if cls.__name__ in FORMS), None)


def sparse_modules(model: nn.Module) -> list[str]:
    """Dotted names of the modules whose sparse attention is recorded."""
    return [name for name, module in model.named_modules() if _form_of(module) is not None]


def full_attention_up_to(model: nn.Module) -> int:
    """Tokens up to which a model with block-sparse attention uses full attention; 0 for other models."""
    config: Any = model.config
    if getattr(config, "attention_type", "") != "block_sparse":
        return 0
    return (5 + 2 * config.num_random_blocks) * config.block_size


@contextlib.contextmanager
def attention_for(model: nn.Module, length: int) -> Iterator[None]:
    """While the block runs, let a model use the attention that inputs of that length get.

    Models with block-sparse attention switch to full attention at the first short input, and keep to it.
    """
    switching: list[Any] = [part for part in model.modules() if hasattr(part, "set_attention_type")]
    before = [(part, part.attention_type, part._modules.get("self")) for part in switching]
    try:
        if switching and length <= full_attention_up_to(model):
            for part in switching:
                part.set_attention_type("original_full")
        yield
    finally:
        for part, kind, attending in before:
            part.attention_type = kind
            if attending is not None:
                part._modules["self"] = attending


@contextlib.contextmanager
def recorded_sparse(
    model: nn.Module, names: dict[nn.Module, str], sink: Sink, unread: list[str]
) -> Iterator[None]:
    """While the block runs, hand every call of sparse attention to `sink`; outputs stay as they are.

    Args:
        model: A Hugging Face model.
        names: Dotted names of its modules.
        sink: Receives the calls.
        unread: Receives the names of modules whose sparse attention is of a form that is not read.
    """
    length: list[int] = []

    def begin(_: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        ids = given.get("input_ids", args[0] if args else None)
        length[:] = [ids.shape[-1]] if isinstance(ids, Tensor) else []

    with contextlib.ExitStack() as stack:
        handle = model.register_forward_pre_hook(begin, with_kwargs=True)
        stack.callback(handle.remove)
        for module, name in names.items():
            if type(module).__name__ in NOT_READ:
                stack.enter_context(running(module, _noting(module.forward, name, unread)))
            elif (form := _form_of(module)) is not None:
                recorder = _Recorder(module, name, form, module.forward, sink, length)
                stack.enter_context(running(module, recorder.forward))
        yield


def _noting(forward: Callable[..., Any], name: str, unread: list[str]) -> Callable[..., Any]:
    def noting(*args: Any, **given: Any) -> Any:
        unread.append(name)
        return forward(*args, **given)

    return noting


@dataclass(frozen=True, eq=False)
class _Recorder:
    """Turns the calls of one module into records.

    Args:
        module: That attends.
        name: Its dotted name.
        form: How it attends.
        own: Its forward method.
        sink: Receives the calls.
        length: Tokens of the model's input, as one element; empty where that is not known.
    """

    module: nn.Module
    name: str
    form: SparseForm
    own: Callable[..., Any]
    sink: Sink
    length: list[int]

    def forward(self, *args: Any, **given: Any) -> Any:
        """The module's own output; a record of what it attended to goes to the sink."""
        seen: dict[str, Tensor] = {}

        parts = (*self.form.sides, *self.form.of_global)
        handles = [
            self.module.get_submodule(part).register_forward_hook(_keeping(seen, part)) for part in parts
        ]
        try:
            output = self.own(*args, **given)
        finally:
            for handle in handles:
                handle.remove()
        self.sink(self._call(seen, args, given))
        return output

    def _call(self, seen: dict[str, Tensor], args: tuple[Any, ...], given: dict[str, Any]) -> Call:
        flat = [seen[part] for part in self.form.sides]
        if self.form.positions_first:
            flat = [x.transpose(0, 1) for x in flat]
        heads = next(getattr(self.module, name) for name in HEADS if hasattr(self.module, name))
        q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in flat)
        padded = q.shape[2]
        n = min(self.length[0] if self.length else _unmasked(given, padded), padded)
        own = frozenset(part for part in self.form.of_global if part in seen)
        run = SparseRun(self.module, self.form, self.own, args, given, n, padded, v.shape[-1], own)
        allowed, bias = run.pattern()
        q, k, v = (x[:, :, :n] for x in (q, k, v))
        scale = q.shape[-1] ** -0.5
        return Call(self.name, q, k, bias, allowed, scale, v=v, attend=run.attend, sparse=run)


HEADS = ("num_heads", "num_attention_heads")  # Names under which modules keep the number of their heads.


def _unmasked(given: dict[str, Any], padded: int) -> int:
    """Tokens up to the last that is no padding, where an encoder is called by itself."""
    masked = given.get("is_index_masked")
    return padded if masked is None else int((~masked).any(0).nonzero().max()) + 1


def _keeping(seen: dict[str, Tensor], part: str) -> Callable[..., None]:
    """A hook that keeps the first output of a projection, which its class may change in place."""

    def keep(_: nn.Module, __: Any, output: Tensor) -> None:
        if part not in seen:
            seen[part] = output.clone()

    return keep


class _Given(nn.Module):
    """Stands in the place of a projection and puts out vectors that are given."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = vectors

    def forward(self, _: Tensor) -> Tensor:
        return self.vectors


@dataclass(frozen=True, eq=False)
class SparseRun:
    """One call of sparse attention, which can be repeated on other vectors.

    Args:
        module: That attends.
        form: How it attends.
        own: Its forward method.
        args: Positional arguments of the call.
        given: Named arguments of the call.
        length: Tokens of the sequence.
        padded: Tokens with those by which the model fills it up.
        width: Of a head's values.
        of_global: Projections of tokens with global attention that were used.
    """

    module: nn.Module
    form: SparseForm
    own: Callable[..., Any]
    args: tuple[Any, ...]
    given: dict[str, Any]
    length: int
    padded: int
    width: int
    of_global: frozenset[str] = field(default_factory=frozenset)

    def attend(
        self, q: Float[Tensor, "b h n d"], k: Float[Tensor, "b h n d"], v: Float[Tensor, "b h n e"]
    ) -> Float[Tensor, "b n h e"]:
        """What the module makes of given queries, keys and values, in float32; e is any width."""
        args = [self._rows(x, len(q)) for x in self.args]
        given = {name: self._rows(x, len(q)) for name, x in self.given.items()}
        outputs = []
        for part in v.split(self.width, -1):
            filled = pad(part, (0, self.width - part.shape[-1]))
            with self._standing_in(q, k, filled):
                out = self.own(*args, **given)
            whole = (out[0] if isinstance(out, tuple) else out)[:, : self.length]
            outputs.append(whole.unflatten(-1, (v.shape[1], -1))[..., : part.shape[-1]])
        return torch.cat(outputs, -1)

    def weights(self, *, training: bool = False) -> Float[Tensor, "h n n"]:
        """Weights that equal logits get.

        Args:
            training: Whether to attend as in training, where some classes draw blocks at random.
        """
        heads = next(getattr(self.module, name) for name in HEADS if hasattr(self.module, name))
        device = next(self.module.parameters()).device
        zeros = torch.zeros(1, heads, self.length, self.width, device=device)
        identity = torch.eye(self.length, device=device).expand(1, heads, -1, -1)
        before, state = self.module.training, np.random.get_state()
        self.module.training = training
        try:
            return self.attend(zeros, zeros, identity)[0].transpose(0, 1)
        finally:
            self.module.training = before
            np.random.set_state(state)

    def pattern(self) -> tuple[Tensor, Tensor | None]:
        """Which keys each query sees, and logarithms of how often it sees each, None where always once."""
        weights = self.weights()
        allowed = weights > 0
        own = weights.diagonal(dim1=-2, dim2=-1)[..., None]
        least = weights.masked_fill(~allowed, torch.inf).amin(-1, keepdim=True)
        logs = (weights / own.where(own > 0, least)).masked_fill(~allowed, 1.0).log()
        shared = bool((allowed == allowed[:1]).all())
        several = bool((logs.abs() > ONCE).any())
        return (allowed[:1] if shared else allowed)[None], logs[None] if several else None

    def _rows(self, x: Any, rows: int) -> Any:
        """An argument for the first sequences, in float32 where it is in low precision."""
        batch = isinstance(x, Tensor) and x.ndim > 1
        return exact(x[:rows] if batch else x)

    @contextlib.contextmanager
    def _standing_in(self, q: Tensor, k: Tensor, v: Tensor) -> Iterator[None]:
        """Let projections put out these vectors, those of tokens with global attention likewise."""
        flat = [pad(x.transpose(1, 2).flatten(2), (0, 0, 0, self.padded - x.shape[2])) for x in (q, k, v)]
        own: Any = self.module._modules
        names = [*self.form.sides, *self.form.of_global]
        before = {name: own[name] for name in names}
        at_global = self.given.get("is_index_global_attn")
        vectors = [x.transpose(0, 1) if self.form.positions_first else x for x in flat]
        try:
            for name, x in zip(self.form.sides, vectors, strict=True):
                own[name] = _Given(x.clone())
            for name, x in zip(self.form.of_global, vectors, strict=False):
                if name.startswith("query") and at_global is not None:
                    x = x[at_global[0]]
                own[name] = _Given(x.clone())
            yield
        finally:
            own.update(before)
