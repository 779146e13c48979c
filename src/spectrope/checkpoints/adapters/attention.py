"""Certified attention inside Hugging Face models: `attn_implementation="spectrope"`."""

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spectrope.checkpoints.adapters.call import split_mask
from spectrope.checkpoints.adapters.interface import SINKS
from spectrope.core import UnsupportedError
from spectrope.encodings import Context, NoPE
from spectrope.fast import DEFAULT, TOLERANCE, AttentionPlan, CostModel, HeadPlan, plan, planned_attention

NAME = "spectrope"
CHANGING = frozenset({"softcap", *SINKS})  # Options by which attention is no plain softmax.
OnPlan = Callable[[nn.Module, AttentionPlan], None]


def register_attention(
    tolerance: float = TOLERANCE, on_plan: OnPlan | None = None, *, costs: CostModel = DEFAULT
) -> str:
    """Make certified attention selectable in transformers, and return its name there, "spectrope".

    Each call of an attention layer is planned from its own queries and keys: heads whose error is certified
    within the tolerance at a lower predicted cost are polynomial, all others exact. Under masks of
    pairs, such as padded batches and sliding windows have, and where the model adds a bias, all are exact.
    Where it caps logits or has attention sinks, its own eager attention runs. Registering again replaces the
    settings.

    Args:
        tolerance: Largest error of a head's output in units of max|v|.
        on_plan: Called with the layer's module and the plan of every call, to see which heads were exact.
        costs: Constants of the predicted costs.

    Raises:
        UnsupportedError: If transformers is missing; by a call of the layer, if it drops attention.

    Example:
        >>> import spectrope as sp
        >>> from transformers import LlamaConfig, LlamaModel
        >>> sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
        >>> model = LlamaModel(LlamaConfig(vocab_size=50, num_attention_heads=4, **sizes)).eval()
        >>> model.set_attn_implementation(sp.register_attention(tolerance=1e-2))
        >>> model.config._attn_implementation
        'spectrope'
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
        from transformers.masking_utils import sdpa_mask
    except ImportError:
        raise UnsupportedError(
            "this needs transformers, which is not installed; pip install 'spectrope[hf]'."
        ) from None

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> Any:
        changing = {name for name in CHANGING if options.get(name) is not None}
        added = attention_mask is not None and attention_mask.dtype is not torch.bool
        if not (changing or added or options.get("position_bias") is not None):
            given = {"tolerance": tolerance, "on_plan": on_plan, "costs": costs, **options}
            return _attend(module, (query, key, value), attention_mask, **given)
        reason = "the model adds a bias, of which no law is known"
        if changing:
            reason = f"the model gives {', '.join(sorted(changing))}, so this is no plain softmax"
        if on_plan is not None:
            on_plan(module, _all_exact(query.shape[1], tolerance, reason))
        exact = _own if changing else sdpa_attention_forward
        return exact(module, query, key, value, attention_mask, **options)

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def _all_exact(heads: int, tolerance: float, reason: str) -> AttentionPlan:
    """The plan of a layer that nothing here can serve."""
    exact = (HeadPlan(head, math.nan, None, None, math.nan, "exact", reason) for head in range(heads))
    return AttentionPlan(tolerance, False, tuple(exact))


def _own(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> Any:
    """The eager attention of the model's own code, whose masks are added."""
    if mask is None:
        mask, _ = split_mask(None, query, key, _sees_past_alone(module, query, options.get("is_causal")))
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    eager = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key, value, mask, **options)


def _sees_past_alone(module: nn.Module, query: Tensor, is_causal: bool | None) -> bool:
    """Whether the library takes the absence of a mask to mean that query i sees key j only if j <= i."""
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    return bool(causal) and query.shape[-2] > 1


def _attend(
    module: nn.Module,
    states: tuple[Tensor, Tensor, Tensor],
    attention_mask: Tensor | None = None,
    *,
    tolerance: float,
    on_plan: OnPlan | None,
    costs: CostModel,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The library's attention interface: (b, h, n, d) each to (b, n, h, e), and no pattern."""
    if dropout:
        raise UnsupportedError(f"attention {NAME!r} has no dropout; set the model's attention dropout to 0.")
    q, k, v = states
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    if scaling is not None:
        q = q * (scaling * q.shape[-1] ** 0.5)
    causal = attention_mask is None and _sees_past_alone(module, q, is_causal)
    if causal:  # keys beyond the last query are seen by none
        k, v = (x[:, :, : q.shape[-2]] for x in (k, v))
    n_q, n_k = q.shape[-2], k.shape[-2]
    mask = None if attention_mask is None else attention_mask[..., :n_k].bool()
    if causal and n_k < n_q:
        causal, mask = False, split_mask(None, q, k, causal=True)[0]
    places = torch.arange(max(n_q, n_k), device=q.device)[None]
    ctx = Context(q, k, places[:, -n_q:], places[:, -n_k:], mask=mask)
    encoding = NoPE(NoPE.Config())
    made = plan(ctx, encoding, tolerance, causal=causal, costs=costs)
    if on_plan is not None:
        on_plan(module, made)
    if any(head.choice != "exact" for head in made.heads):
        out = planned_attention(ctx, v, encoding, made)
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return out.transpose(1, 2).contiguous(), None
