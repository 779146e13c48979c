"""Record the inputs of attention kernels: queries, keys, biases and masks."""

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from spectrope.checkpoints.adapters.call import FORBIDDEN, Call, exact, split_mask
from spectrope.checkpoints.adapters.compressed import of_tokens_alone
from spectrope.checkpoints.adapters.interface import HeadMove, Sink, through_interface, uses_interface
from spectrope.checkpoints.adapters.sparse import recorded_sparse, sparse_modules

TALKING = "head_weights_proj"  # Mixes the heads' weights behind the softmax, as in Shazeer et al., 2020.


@contextlib.contextmanager
def recorded(
    model: nn.Module, sink: Sink, *, attend: bool = False, move: HeadMove | None = None
) -> Iterator[list[str]]:
    """While the block runs, hand every attention call of the model to `sink`.

    Models that reach their kernel through the library's attention interface run without attention (the output
    of each kernel is zero), which costs no quadratic product, unless it is asked for. The others run as they
    are, and calls are read from torch's own attention function, or from the operands of a product before each
    softmax: the first one of the shape of its logits in the module that multiplied last.

    Args:
        model: A Hugging Face model.
        sink: Receives the calls in the order in which they are made.
        attend: Whether every kernel returns what the model's own code computes from its input.
        move: Changes the output of every kernel that attends, or its pattern where a softmax is all that is
            seen; sparse attention stays as it is.

    Yields:
        Dotted names of modules inside an attention layer that take a softmax of a form that is not read.
    """
    unread: list[str] = []
    names = {module: name for name, module in model.named_modules()}
    with of_tokens_alone(model, sink) as sink, recorded_sparse(model, names, sink, unread):
        if uses_interface(model):
            with through_interface(model, names, sink, attend, move):
                yield unread
        else:
            with _Products(model, names, sink, unread, move):
                yield unread


class _Products(TorchFunctionMode):
    """Watches torch's functions for products that end in a softmax, and for fused attention."""

    PRODUCTS = frozenset({"matmul", "bmm", "__matmul__", "baddbmm"})

    def __init__(
        self,
        model: nn.Module,
        names: dict[nn.Module, str],
        sink: Sink,
        unread: list[str],
        move: HeadMove | None = None,
    ) -> None:
        super().__init__()
        self.model, self.names, self.sink, self.unread, self.move = model, names, sink, unread, move
        self.running = [""]  # Also where it is entered while the model itself is being called.
        self.batch = 0
        self.products: list[tuple[Tensor, Tensor]] = []  # Operands, of the module that multiplied last.
        self.multiplying = ""
        self.waiting: Call | None = None  # for its values
        self.sparse = {*sparse_modules(model)}  # Which are recorded in another way.

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
            self._hand_over(None, None)
        self.running.pop()

    def _hand_over(self, pattern: Tensor | None, v: Tensor | None) -> None:
        """Give the call that waits for its values to the sink."""
        call, self.waiting = self.waiting, None
        if call is not None:
            self.sink(replace(call, pattern=pattern, v=v))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        waited = self.waiting
        name = "" if self.running[-1] in self.sparse else getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            self._fused(*args, **kwargs)
        elif name in self.PRODUCTS or name == "einsum":
            both = einsum_operands(*args) if name == "einsum" else _operands(name, args, kwargs)
            self._multiply(both)
            if self.waiting is not None and both is not None:
                pattern, v = _weighted(self.waiting, *both)
                talking = getattr(self.model.get_submodule(self.waiting.module), TALKING, None)
                self._hand_over(pattern if talking is None else None, v)
        elif name == "softmax":
            self._softmax(args[0])
        output = func(*args, **kwargs)
        if self.move is None:
            return output
        if self.waiting is not None and self.waiting is not waited and self.waiting.logits is not None:
            return self.move(output.reshape(self.waiting.logits.shape)).reshape(output.shape)
        return self.move(output) if name == "scaled_dot_product_attention" and output.ndim == 4 else output

    def _multiply(self, operands: tuple[Tensor, Tensor] | None) -> None:
        if self.multiplying != self.running[-1]:
            self.products.clear()
        self.multiplying = self.running[-1]
        self.products += [] if operands is None else [operands]

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
        mask = exact(attn_mask)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            attended = scaled_dot_product_attention(
                q, k, v, mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
            )
            return attended.transpose(1, 2)

        self.sink(Call(self.running[-1], query, key, bias, allowed, scale, v=value, attend=attend))

    def _softmax(self, logits: Tensor) -> None:
        products, self.products = self.products, []
        if logits.ndim == 3 and self.batch and len(logits) % self.batch == 0:  # heads within the batch
            logits = logits.unflatten(0, (self.batch, -1))
        # Products with relative positions follow that of queries and keys.
        operands = next((both for both in products if _read(*both, logits)), None)
        if operands is None:
            self.unread += [self.running[-1]] if "att" in self.running[-1].lower() else []
            return
        (left, right), (b, h) = operands, logits.shape[:2]
        q = left.reshape(b, h, *left.shape[-2:])
        k = right.transpose(-1, -2).reshape(b, -1, *right.shape[:-3:-1])
        allowed = logits > FORBIDDEN
        module = _shared(self.multiplying, self.running[-1])
        self.waiting = Call(module, q, k, None, allowed, None, logits)


def _weighted(call: Call, left: Tensor, right: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Pattern and values of a call, if these are the factors of their product."""
    logits = call.logits
    if logits is None or left.shape[-2:] != logits.shape[-2:] or left.numel() != logits.numel():
        return None, None
    return left.reshape(logits.shape), right.reshape(logits.shape[0], -1, *right.shape[-2:])


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
    """The factors of a batched product that an equation writes, such as "bihd,bjhd->bhij"; None of others.

    A result in another order, as in "bhij,jbhd->ibhd", is that of the batched product transposed.
    """
    factors = operands[0] if len(operands) == 1 else operands
    inputs, _, output = equation.replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(names) != 2 or len(output) < 2 or "." in equation:
        return None
    left, right = zip(names, factors, strict=True)
    shared = {*left[0]} & {*right[0]}
    if output[-1] in {*left[0]} - shared:
        left, right = right, left
    batch = "".join(name for name in output if name in shared)
    row, column = ("".join({*one[0]} - shared) for one in (left, right))
    inner = "".join(shared - {*batch})
    if not len(row) == len(column) == len(inner) == 1 or {*output} != {*batch, row, column}:
        return None
    return _arranged(*left, batch + row + inner), _arranged(*right, batch + inner + column)


def _arranged(names: str, factor: Tensor, order: str) -> Tensor:
    return factor.permute([names.index(name) for name in order])
