"""Plans for every head of a Hugging Face checkpoint at some length: polynomial or exact attention."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, evaluating, layer_name, recorded, runs_at
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.probes.heads import Unseen, refuse_sinks
from spectrope.core import Progress, UnsupportedError, Watch, unwatched
from spectrope.encodings import Context, Encoding, Form, NoPE
from spectrope.fast import HeadPlan, LayerPlans, PlanAim

FULL = ("full_attention", "attention")  # As configurations call a layer that sees everything.


class Added(Encoding):
    """A bias that a checkpoint adds, of which only the values are known."""

    form = Form.DOT_PLUS_BIAS
    tags = frozenset()


@torch.no_grad()
def plan_checkpoint(
    model: nn.Module,
    ids: Int[Tensor, "b t"],
    aim: PlanAim,
    watch: Watch = unwatched,
) -> LayerPlans:
    """Plan every head of a checkpoint by its logits on some sequences.

    A bias that the checkpoint adds is no known function of the lag, so heads with one are exact, and so are
    those whose logits it caps.

    Args:
        model: A Hugging Face model with one stack of layers.
        ids: Tokens, without padding.
        aim: Length, tolerance and costs.
        watch: Shown the layers planned.

    Returns:
        The plan of each head of each layer, counted from 0, of which `table` makes a data frame. If layers
        share a module, they are counted in the order of its calls.

    Raises:
        UnsupportedError: If the model has two stacks or attention sinks, or no attention kernel could be
            observed, or it does not take sequences of that length.
    """
    if model.config.is_encoder_decoder:  # pyright: ignore[reportAttributeAccessIssue]
        raise UnsupportedError(f"{type(model).__name__} has two stacks; plans are made for one.")
    modules = attention_modules(model)
    called: list[tuple[str, tuple[HeadPlan, ...]]] = []
    config: Any = model.config

    def receive(call: Call) -> None:
        if call.module not in modules:
            return
        refuse_sinks(call)
        ctx, encoding, causal = _received(call, hidden=_hides(config, layer_name(call.module)[1], aim.length))
        called.append((call.module, aim.forecast(ctx, encoding, causal, out=call.q.dtype)))
        watch(Progress("attention", len(called), max(len(called), len(modules))))

    options = {"use_cache": False} if "use_cache" in config.to_dict() else {}
    with evaluating(model), runs_at(ids.shape[1], model), recorded(model, receive, attend=True):
        model(input_ids=ids.to(next(model.parameters()).device), **options)
    shared = len({module for module, _ in called}) < len(called)
    numbers = range(len(called)) if shared else [modules.index(module) for module, _ in called]
    return [(layer, head) for layer, (_, heads) in zip(numbers, called, strict=True) for head in heads]


def _hides(config: Any, layer: int, length: int) -> bool:
    """Whether a layer may see less than all of a sequence of some length, through a window or in chunks."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None)
    sizes = [getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size")]
    kind = kinds[layer] if kinds is not None and layer < len(kinds) else None
    if kind not in (None, *FULL, "sliding_attention", "chunked_attention"):
        return True  # What it hides is not known here.
    limited = kind not in FULL
    return limited and any(size is not None and 0 < size < length for size in sizes)


def _received(call: Call, *, hidden: bool) -> tuple[Context, Encoding, bool]:
    """The context of a kernel's call, the encoding that is left to apply, and whether it is causal.

    Args:
        call: The kernel's call.
        hidden: Whether pairs would be hidden at the length planned for, even if none are here.
    """
    groups, n = call.q.shape[1] // call.k.shape[1], call.q.shape[2]
    wide = torch.promote_types(call.q.dtype, torch.float32)
    q, k = call.q.to(wide), call.k.to(wide).repeat_interleave(groups, 1)
    if call.scale is not None:
        q = q * (call.scale * q.shape[-1] ** 0.5)
    everything = bool(call.allowed.all())
    causal = not everything and bool((call.allowed == torch.ones_like(call.allowed).tril()).all())
    pos = torch.arange(n, device=q.device)[None]
    ctx = Context(q, k, pos, pos, mask=None if (everything or causal) and not hidden else call.allowed)
    if call.logits is not None or call.softcap is not None:
        return ctx, Unseen(Unseen.Config()), causal
    return ctx, (NoPE if call.bias is None else Added)(NoPE.Config()), causal
