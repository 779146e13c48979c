"""Record what models hand to the library's attention interface, with the function that they would call."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import Attend, Call, exact, split_mask

RECORDER, FUSED_RECORDER = "spectrope_recorder", "spectrope_fused_recorder"
SINKS = ("s_aux", "sinks")  # Names under which the library's models hand sinks to a kernel.
ELSEWHERE = ("flash", "flex", "paged", "/")  # Parts of the names of kernels that take other masks or devices.

Sink = Callable[[Call], None]
HeadMove = Callable[[Tensor], Tensor]  # Of what each head puts out, (b, h, i, e), or its pattern.
_sink: ContextVar[Callable[..., Tensor] | None] = ContextVar("sink", default=None)


def uses_interface(model: nn.Module) -> bool:
    """Whether the code of the model's attention goes through the library's attention interface."""
    homes = {type(module).__module__ for module in model.modules()}
    return any(
        hasattr(sys.modules.get(home), "ALL_ATTENTION_FUNCTIONS")
        for home in homes
        if not home.startswith("torch.")
    )


@contextlib.contextmanager
def through_interface(
    model: nn.Module, names: dict[nn.Module, str], sink: Sink, attend: bool, move: HeadMove | None = None
) -> Iterator[None]:
    """While the block runs, hand every call of the attention interface to `sink`.

    Args:
        model: A Hugging Face model.
        names: Dotted names of its modules.
        sink: Receives the calls.
        attend: Whether every kernel returns what plain attention computes; else it returns zeros.
        move: Changes what kernels return if they attend.
    """
    with _switched(model, fused=not attend) as implementations:
        recorder = _Recorder(names, sink, attend, implementations, move)
        token = _sink.set(recorder.receive)
        try:
            yield
        finally:
            _sink.reset(token)


@dataclass(frozen=True)
class _Recorder:
    """Turns calls of the interface into records."""

    names: dict[nn.Module, str]
    sink: Sink
    attend: bool
    implementations: dict[int, str]
    move: HeadMove | None = None

    def receive(
        self,
        module: nn.Module,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        fused: bool,
        **rest: Any,
    ) -> Tensor:
        causal = fused and hides_later_keys(module, rest) and q.shape[-2] > 1
        allowed, bias = split_mask(mask, q, k, causal)
        position_bias = rest.get("position_bias")
        if position_bias is not None:
            bias = position_bias if bias is None else bias + position_bias
        self.sink(
            Call(
                self.names[module],
                q,
                k,
                bias,
                allowed,
                scale=float(rest.get("scaling") or q.shape[-1] ** -0.5),
                softcap=rest.get("softcap"),
                sinks=next((rest[name] for name in SINKS if rest.get(name) is not None), None),
                v=v,
                attend=None if self.attend else self._function(module, mask, rest),
            )
        )
        if self.attend:
            heads = eager_attention(module)(module, q, k, v, mask, **rest)[0]
            return heads if self.move is None else self.move(heads.transpose(1, 2)).transpose(1, 2)
        return q.new_zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[-1])

    def _function(self, module: Any, mask: Tensor | None, options: dict[str, Any]) -> Attend | None:
        """The attention function that the model would have called; None where it cannot be called here."""
        implementation = self.implementations.get(id(getattr(module, "config", None))) or "eager"
        eager = eager_attention(module)
        if eager is None or any(part in implementation for part in ELSEWHERE):
            return None
        function = library_functions(module).get(implementation, eager)
        options = {name: exact(option) for name, option in options.items()}
        mask = exact(mask)
        if implementation == "eager" and mask is not None and mask.dtype is torch.bool:
            lowest = torch.finfo(torch.float32).min
            mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, lowest)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return function(module, q, k, v, None if mask is None else mask[: len(q)], **options)[0]

        return attend


def _homes(module: nn.Module) -> list[Any]:
    """Modules of Python in which the class and its bases are defined."""
    return [sys.modules[cls.__module__] for cls in type(module).__mro__]


def eager_attention(module: nn.Module) -> Any:
    """Plain attention as the code of the architecture computes it."""
    known = (getattr(home, "eager_attention_forward", None) for home in _homes(module))
    return next((function for function in known if function is not None), None)


def library_functions(module: nn.Module) -> Any:
    """The attention functions that the code of the architecture chooses from."""
    from transformers import AttentionInterface
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    known = (getattr(home, "ALL_ATTENTION_FUNCTIONS", None) for home in _homes(module))
    return next((one for one in known if isinstance(one, AttentionInterface)), ALL_ATTENTION_FUNCTIONS)


def hides_later_keys(module: nn.Module, options: dict[str, Any]) -> bool:
    """Whether the library's fused attention hides later keys of this module where it gets no mask."""
    asked = options.get("is_causal")
    return bool(getattr(module, "is_causal", True) if asked is None else asked)


@contextlib.contextmanager
def _switched(model: nn.Module, *, fused: bool) -> Iterator[dict[int, str]]:
    """Switch every configuration inside the model to the recorder and back.

    Args:
        model: A Hugging Face model.
        fused: Whether configurations that ask for torch's fused attention, which takes no mask where queries
            see all keys or the past alone, get the masks that it gets; else all get those of plain attention.

    Yields:
        The implementation that each configuration asked for, by its `id`.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    masks = AttentionMaskInterface()
    for name, mask in {RECORDER: masks["eager"], FUSED_RECORDER: masks["sdpa"]}.items():
        AttentionInterface.register(name, partial(_record, fused=name == FUSED_RECORDER))
        AttentionMaskInterface.register(name, mask)
    before = [(config, config._attn_implementation_internal) for config in distinct_configs(model)]
    try:
        for config, implementation in before:
            takes_none = fused and implementation == "sdpa"
            config._attn_implementation_internal = FUSED_RECORDER if takes_none else RECORDER
        yield {id(config): implementation for config, implementation in before}
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def distinct_configs(model: nn.Module) -> list[Any]:
    """Every configuration object inside a model, once."""
    configs = [module.config for module in model.modules() if hasattr(module, "config")]
    return list({id(config): config for config in configs}.values())


def attention_implementations(model: nn.Module) -> tuple[str, ...]:
    """Names of the library's implementations of attention that a model asks for; none of a module of your
    own."""
    asked = (getattr(config, "_attn_implementation_internal", None) for config in distinct_configs(model))
    return tuple(sorted({name for name in asked if name}))


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
