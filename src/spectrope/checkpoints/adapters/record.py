"""Record the inputs of attention kernels: queries, keys, biases and masks."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

FORBIDDEN = -9e3  # An additive mask at or below it forbids; the oldest models add -10000.
RECORDER, FUSED_RECORDER = "spectrope_recorder", "spectrope_fused_recorder"
SINKS = ("s_aux", "sinks")  # Names under which the library's models hand sinks to a kernel.


@dataclass(frozen=True, eq=False)
class Call:
    r"""One call of an attention kernel, with logits :math:`s\,\langle q_i, k_j\rangle + \beta_{ij}`.

    Under a cap c the product is :math:`c \tanh(s\,\langle q_i, k_j\rangle / c)` instead.

    Args:
        module: Dotted name of the module that made the call.
        q: Queries as they enter the product, with shape (b, h, i, d).
        k: Keys likewise, with shape (b, g, j, d), where g divides h.
        bias: What is added to the scaled product, in logit units, or None.
        allowed: Which keys each query may see.
        scale: The factor s; None where it must be found from `logits`.
        logits: All of it with the mask, where the kernel shows no bias of its own.
        softcap: The cap c, or None.
        sinks: Logit per head of a further term in softmax's denominator, which no key adds; None for none.
        v: Values, with shape (b, g, j, e), where the kernel shows them.
    """

    module: str
    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b g j d"]
    bias: Float[Tensor, "#b #h i j"] | None
    allowed: Bool[Tensor, "#b #h i j"]
    scale: float | None
    logits: Float[Tensor, "b h i j"] | None = None
    softcap: float | None = None
    sinks: Float[Tensor, " h"] | None = None
    v: Float[Tensor, "b g j e"] | None = None

    def cpu(self) -> "Call":
        """The same on the CPU."""
        tensors = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: value.cpu() for name, value in tensors.items() if isinstance(value, Tensor)}
        return replace(self, **moved)

    def products(self) -> Float[Tensor, "b h i j"]:
        """Dot products of queries and keys, unscaled."""
        groups = self.q.shape[1] // self.k.shape[1]
        return self.q @ self.k.repeat_interleave(groups, 1).transpose(-1, -2)

    def capped(self, scores: Tensor) -> Tensor:
        r""":math:`c \tanh(x / c)` of scaled products x, or x where there is no cap."""
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def unmasked(self) -> Float[Tensor, "b h i j"]:
        """Logits without the mask, except where the kernel shows no others."""
        if self.logits is not None:
            return self.logits
        scores = self.capped(self.products() * (self.scale or 1.0))
        return scores if self.bias is None else scores + self.bias


Sink = Callable[[Call], None]
_sink: ContextVar[Callable[..., Tensor] | None] = ContextVar("sink", default=None)


@contextlib.contextmanager
def recorded(model: nn.Module, sink: Sink, *, attend: bool = False) -> Iterator[list[str]]:
    """While the block runs, hand every attention call of the model to `sink`.

    Models that reach their kernel through the library's attention interface run without attention (the output
    of each kernel is zero), which costs no quadratic product, unless it is asked for. The others run as they
    are, and calls are read from the operands of the last product before each softmax, or from torch's own
    attention function.

    Args:
        model: A Hugging Face model.
        sink: Receives the calls in the order in which they are made.
        attend: Whether every kernel returns what the model's own code computes from its input.

    Yields:
        Dotted names of modules inside an attention layer that take a softmax of a form that is not read.
    """
    unread: list[str] = []
    names = {module: name for name, module in model.named_modules()}
    if uses_interface(model):
        with _interface(model, fused=not attend), _receiving(names, sink, attend):
            yield unread
    else:
        with _Products(model, names, sink, unread):
            yield unread


def uses_interface(model: nn.Module) -> bool:
    """Whether the code of the model's attention goes through the library's attention interface."""
    homes = {type(module).__module__ for module in model.modules()}
    return any(
        hasattr(sys.modules.get(home), "ALL_ATTENTION_FUNCTIONS")
        for home in homes
        if not home.startswith("torch.")
    )


@contextlib.contextmanager
def _receiving(names: dict[nn.Module, str], sink: Sink, attend: bool) -> Iterator[None]:
    def receive(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, fused: bool, **rest: Any
    ) -> Tensor:
        causal = fused and _is_causal(module, rest) and q.shape[-2] > 1
        allowed, bias = split_mask(mask, q, k, causal)
        position_bias = rest.get("position_bias")
        if position_bias is not None:
            bias = position_bias if bias is None else bias + position_bias
        scale = float(rest.get("scaling") or q.shape[-1] ** -0.5)
        sinks = next((rest[name] for name in SINKS if rest.get(name) is not None), None)
        sink(Call(names[module], q, k, bias, allowed, scale, softcap=rest.get("softcap"), sinks=sinks, v=v))
        if attend:
            eager = sys.modules[type(module).__module__].eager_attention_forward
            return eager(module, q, k, v, mask, **rest)[0]
        return q.new_zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[-1])

    token = _sink.set(receive)
    try:
        yield
    finally:
        _sink.reset(token)


def _is_causal(module: nn.Module, options: dict[str, Any]) -> bool:
    """Whether the library's fused attention hides later keys of this module where it gets no mask."""
    asked = options.get("is_causal")
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


@contextlib.contextmanager
def _interface(model: nn.Module, *, fused: bool) -> Iterator[None]:
    """Switch every configuration inside the model to the recorder and back.

    Args:
        model: A Hugging Face model.
        fused: Whether configurations that ask for torch's fused attention, which takes no mask where queries
            see all keys or the past alone, get the masks that it gets; else all get those of plain attention.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask, sdpa_mask

    for name, mask in {RECORDER: eager_mask, FUSED_RECORDER: sdpa_mask}.items():
        AttentionInterface.register(name, partial(_record, fused=name == FUSED_RECORDER))
        AttentionMaskInterface.register(name, mask)
    configs = [module.config for module in model.modules() if hasattr(module, "config")]
    before = [(config, config._attn_implementation_internal) for config in _distinct(configs)]
    try:
        for config, implementation in before:
            takes_none = fused and implementation == "sdpa"
            config._attn_implementation_internal = FUSED_RECORDER if takes_none else RECORDER
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def _distinct(configs: list[Any]) -> list[Any]:
    return list({id(config): config for config in configs}.values())


def _record(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    fused: bool,
    **rest: Any,
) -> tuple[Tensor, None]:
    """The attention function that the library calls; it attends to nothing."""
    receive = _sink.get()
    if receive is None:
        raise RuntimeError("the recording attention function was called outside `recorded`")
    return receive(module, query, key, value, attention_mask, fused, **rest), None


def split_mask(
    mask: Tensor | None, q: Tensor, k: Tensor, causal: bool
) -> tuple[Bool[Tensor, "#b #h i j"], Float[Tensor, "#b #h i j"] | None]:
    """Which pairs a mask allows, and the bias that it carries, if any.

    Args:
        mask: True where allowed, or a number to add, broadcastable to (b, h, i, j); None asks `causal`.
        q: Queries, with shape (b, h, i, d).
        k: Keys, with shape (b, g, j, d).
        causal: Whether no mask means that query i sees key j only if j <= i, by index, as torch's
            `is_causal` does whatever the numbers of queries and keys.
    """
    n, m = q.shape[-2], k.shape[-2]
    if mask is None:
        allowed = torch.ones(1, 1, n, m, dtype=torch.bool, device=q.device)
        return allowed.tril() if causal else allowed, None
    while mask.ndim < 4:
        mask = mask[None]
    mask = mask[..., :m].expand(*mask.shape[:2], n, m)
    if mask.dtype is torch.bool:
        return mask, None
    allowed = mask > FORBIDDEN
    bias = mask.masked_fill(~allowed, 0)
    return allowed, bias if bool(bias.any()) else None


class _Products(TorchFunctionMode):
    """Watches torch's functions for products that end in a softmax, and for fused attention."""

    PRODUCTS = frozenset({"matmul", "bmm", "__matmul__", "baddbmm"})

    def __init__(self, model: nn.Module, names: dict[nn.Module, str], sink: Sink, unread: list[str]) -> None:
        super().__init__()
        self.model, self.names, self.sink, self.unread = model, names, sink, unread
        self.running: list[str] = []
        self.batch = 0
        self.operands: tuple[Tensor, Tensor] | None = None
        self.multiplying = ""
        self.waiting: Call | None = None  # for its values

    def __enter__(self) -> "_Products":
        self.handles = [self.model.register_forward_pre_hook(self._begin, with_kwargs=True)]
        for module, name in self.names.items():
            self.handles += [
                module.register_forward_pre_hook(lambda *_, name=name: self.running.append(name)),
                module.register_forward_hook(lambda *_: self._leave()),
            ]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        for handle in self.handles:
            handle.remove()
        super().__exit__(*error)

    def _begin(self, _: nn.Module, args: tuple[Any, ...], given: dict[str, Any]) -> None:
        ids = given.get("input_ids", args[0] if args else None)
        self.batch = len(ids) if isinstance(ids, Tensor) else 0

    def _leave(self) -> None:
        if self.waiting is not None and self.running[-1] == self.waiting.module:
            self._hand_over(None)
        self.running.pop()

    def _hand_over(self, v: Tensor | None) -> None:
        """Give the call that waits for its values to the sink."""
        call, self.waiting = self.waiting, None
        if call is not None:
            self.sink(replace(call, v=v))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            self._fused(*args, **kwargs)
        elif name in self.PRODUCTS or name == "einsum":
            both = einsum_operands(*args) if name == "einsum" else _operands(name, args, kwargs)
            self.operands, self.multiplying = both, self.running[-1]
            if self.waiting is not None and both is not None:
                self._hand_over(_values(self.waiting, *both))
        elif name == "softmax":
            self._softmax(args[0])
        return func(*args, **kwargs)

    def _fused(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        allowed, bias = split_mask(attn_mask, query, key, is_causal)
        self.sink(Call(self.running[-1], query, key, bias, allowed, scale, v=value))

    def _softmax(self, logits: Tensor) -> None:
        operands, self.operands = self.operands, None
        if logits.ndim == 3 and self.batch and len(logits) % self.batch == 0:  # heads within the batch
            logits = logits.unflatten(0, (self.batch, -1))
        if operands is None or not _read(*operands, logits):
            self.unread += [self.running[-1]] if "att" in self.running[-1].lower() else []
            return
        (left, right), (b, h) = operands, logits.shape[:2]
        q = left.reshape(b, h, *left.shape[-2:])
        k = right.transpose(-1, -2).reshape(b, -1, *right.shape[:-3:-1])
        allowed = logits > FORBIDDEN
        module = _shared(self.multiplying, self.running[-1])
        self.waiting = Call(module, q, k, None, allowed, None, logits)


def _values(call: Call, left: Tensor, right: Tensor) -> Tensor | None:
    """The values of a call, if these are the factors of their product with its pattern."""
    pattern = call.logits
    if pattern is None or left.shape[-2:] != pattern.shape[-2:] or left.numel() != pattern.numel():
        return None
    return right.reshape(pattern.shape[0], -1, *right.shape[-2:])


def _read(left: Tensor, right: Tensor, logits: Tensor) -> bool:
    """Whether a product of these operands has the shape of logits with a batch and heads."""
    return (
        logits.ndim == 4
        and (*left.shape[-2:-1], *right.shape[-1:]) == logits.shape[-2:]
        and left.numel() == logits.shape[0] * logits.shape[1] * left.shape[-2] * left.shape[-1]
    )


def _shared(first: str, second: str) -> str:
    """The innermost module that holds both, as product and softmax may be modules of their own."""
    parts = zip(first.split("."), second.split("."), strict=False)
    return ".".join(a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], parts))


def _operands(name: str, args: Any, kwargs: Any) -> tuple[Tensor, Tensor]:
    if name == "baddbmm":
        return kwargs.get("batch1", args[1] if len(args) > 1 else None), kwargs.get("batch2", args[-1])
    return args[0], args[1] if len(args) > 1 else kwargs["other"]


def einsum_operands(equation: str, *operands: Any) -> tuple[Tensor, Tensor] | None:
    """The factors of a batched product that an equation writes, such as "bihd,bjhd->bhij"; None of others."""
    factors = operands[0] if len(operands) == 1 else operands
    inputs, _, output = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(names) != 2 or len(output) < 2 or "." in equation:
        return None
    left, right = zip(names, factors, strict=True)
    if output[-2] not in left[0]:
        left, right = right, left
    (row, column), batch = output[-2:], output[:-2]
    summed = set(left[0]) - set(output)
    if len(summed) != 1 or not _is_product(left[0], right[0], batch, row, column):
        return None
    inner = summed.pop()
    return _arranged(*left, batch + row + inner), _arranged(*right, batch + inner + column)


def _is_product(left: str, right: str, batch: str, row: str, column: str) -> bool:
    inner = set(left) - set(batch) - {row}
    return set(left) == {*batch, row, *inner} and set(right) == {*batch, column, *inner}


def _arranged(names: str, factor: Tensor, order: str) -> Tensor:
    return factor.permute([names.index(name) for name in order])
