"""Run a model with other inputs to the attention functions of some layers."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import Call, split_mask
from spectrope.checkpoints.adapters.interface import (
    SINKS,
    distinct_configs,
    eager_attention,
    library_functions,
    uses_interface,
)
from spectrope.core import UnsupportedError

PREFIX = "spectrope_substituted_"
HERE = ("eager", "sdpa")  # Attention functions that run on any device.


@dataclass(frozen=True, eq=False)
class Given:
    """What an attention function is given.

    Args:
        q: Queries.
        k: Keys.
        v: Values.
        mask: True where a key is seen, or a number to add; None for none.
        options: By name.
        plain: Whether softmax attention computed here takes the place of the model's own function.
    """

    q: Float[Tensor, "b h i d"]
    k: Float[Tensor, "b g j d"]
    v: Float[Tensor, "b g j e"]
    mask: Tensor | None
    options: dict[str, Any] = field(default_factory=dict)
    plain: bool = False


Change = Callable[[nn.Module, Given], Given]
_change: ContextVar[Change | None] = ContextVar("change", default=None)


@contextlib.contextmanager
def substituting(model: nn.Module, change: Change) -> Iterator[None]:
    """Let `change` replace what attention functions are given while the block runs.

    Args:
        model: A Hugging Face model.
        change: Takes the module that attends and what it gives to its function; returns what to give.

    Raises:
        UnsupportedError: If the model's code calls no attention function that can be replaced, or one that
            does not run everywhere.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    if not uses_interface(model):
        raise UnsupportedError("its code calls no attention function that can be replaced")
    masks = AttentionMaskInterface()
    before = [(config, config._attn_implementation_internal) for config in distinct_configs(model)]
    for _, implementation in before:
        name = implementation or "eager"
        if name not in HERE:
            raise UnsupportedError(f"its attention function {name!r} is none of {', '.join(HERE)}")
        AttentionInterface.register(PREFIX + name, partial(_attend, implementation=name))
        AttentionMaskInterface.register(PREFIX + name, masks[name])
    token = _change.set(change)
    try:
        for config, implementation in before:
            config._attn_implementation_internal = PREFIX + (implementation or "eager")
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation
        _change.reset(token)


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    implementation: str,
    **options: Any,
) -> Any:
    """The attention function that the library calls in the place of the model's own."""
    change, given = _change.get(), Given(query, key, value, attention_mask, options)
    if change is None:
        raise RuntimeError("the substituting attention function was called outside `substituting`")
    given = change(module, given)
    if given.plain:
        return _plain(module, given), None
    own = eager_attention(module)
    if implementation != "eager":
        own = library_functions(module).get(implementation, own)
    if implementation == "eager" and given.mask is not None and given.mask.dtype is torch.bool:
        lowest = torch.finfo(given.q.dtype).min
        zeros = torch.zeros(given.mask.shape, dtype=given.q.dtype, device=given.q.device)
        mask = zeros.masked_fill(~given.mask, lowest)
        return own(module, given.q, given.k, given.v, mask, **given.options)
    return own(module, given.q, given.k, given.v, given.mask, **given.options)


def _plain(module: nn.Module, given: Given) -> Float[Tensor, "b i h e"]:
    """Softmax of the masked logits, times the values."""
    q, k, options = given.q.float(), given.k.float(), given.options
    causal = bool(getattr(module, "is_causal", True) and q.shape[-2] > 1)
    allowed, bias = split_mask(given.mask, q, k, causal)
    if (position_bias := options.get("position_bias")) is not None:
        bias = position_bias if bias is None else bias + position_bias
    scale, cap = float(options.get("scaling") or q.shape[-1] ** -0.5), options.get("softcap")
    logits = Call("", q, k, bias, allowed, scale, softcap=cap).unmasked().masked_fill(~allowed, -torch.inf)
    sinks = next((options[name] for name in SINKS if options.get(name) is not None), None)
    if sinks is not None:
        column = sinks.float().reshape(1, -1, 1, 1).expand(len(q), -1, q.shape[2], 1)
        logits = torch.cat([logits, column], -1)
    pattern = logits.softmax(-1).nan_to_num()[..., : k.shape[2]]
    v = given.v.float().repeat_interleave(q.shape[1] // given.v.shape[1], 1)
    return (pattern @ v).transpose(1, 2).to(given.v.dtype)
