"""Record the attention calls of a model without changing its outputs."""

import contextlib
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import Call
from spectrope.checkpoints.adapters.interface import (
    Sink,
    eager_attention,
    hides_later_keys,
    library_functions,
    uses_interface,
)
from spectrope.checkpoints.adapters.record import recorded


@contextlib.contextmanager
def listening(model: nn.Module, modules: Collection[str], sink: Sink) -> Iterator[None]:
    """While the block runs, hand the attention calls of some modules to `sink`; outputs stay as they are.

    The attention function that each module would call is called with the same arguments; masks of pairs are
    not recorded beside it, only whether later keys are hidden.

    Args:
        model: A Hugging Face model, or an `OwnModel`.
        modules: Dotted names of attention modules.
        sink: Receives the calls.
    """
    if not uses_interface(model):

        def chosen(call: Call) -> None:
            if call.module in modules:
                sink(call)

        with recorded(model, chosen, attend=True):
            yield
        return
    wanted = {model.get_submodule(name): name for name in modules}
    with contextlib.ExitStack() as stack:
        for functions in {id(one): one for one in map(library_functions, wanted)}.values():
            for name in {_implementation(module) for module in wanted}:
                stack.enter_context(_wrapped(functions, name, wanted, sink))
        yield


def _implementation(module: Any) -> str:
    return getattr(getattr(module, "config", None), "_attn_implementation", None) or "eager"


@contextlib.contextmanager
def _wrapped(functions: Any, name: str, wanted: dict[nn.Module, str], sink: Sink) -> Iterator[None]:
    """The library's function of a name with one around it that records the calls of some modules."""
    local = functions._local_mapping
    before = local.get(name)
    function = functions.get(name)

    def heard(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any) -> Any:
        if module in wanted:
            sink(_call(wanted[module], module, query, key, name, mask, options))
        attend: Any = function or eager_attention(module)
        return attend(module, query, key, value, mask, **options)

    functions[name] = heard
    try:
        yield
    finally:
        if before is None:
            del functions[name]
        else:
            functions[name] = before


def _call(
    name: str,
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    implementation: str,
    mask: Any,
    options: dict[str, Any],
) -> Call:
    """The record of one call, whose mask says no more than whether later keys are hidden."""
    causal = hides_later_keys(module, options)
    if implementation == "eager" and isinstance(mask, Tensor) and mask.ndim == 4:
        causal = bool(mask[0, 0, 0, -1] != mask[0, 0, -1, -1])
    allowed = torch.ones(1, 1, q.shape[2], k.shape[2], dtype=torch.bool)
    bias = options.get("position_bias")
    scale = float(options.get("scaling") or q.shape[-1] ** -0.5)
    return Call(
        name, q, k, bias, allowed.tril() if causal else allowed, scale, softcap=options.get("softcap")
    )
