"""Which heads of a trained model polynomial attention would serve at some length, and why not the others."""

import math
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import torch
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, evaluating, recorded, runs_at
from spectrope.checkpoints.probes.constant_content import attention_modules
from spectrope.checkpoints.probes.heads import Unseen, refuse_sinks
from spectrope.core.errors import UnsupportedError, require
from spectrope.core.progress import Progress, Watch, unwatched
from spectrope.encodings.base import Context, Encoding, Form
from spectrope.encodings.nope import NoPE
from spectrope.fast.plan import TOLERANCE, HeadPlan, forecast
from spectrope.lab.ablation.methods import Subject
from spectrope.lab.probes.heads import LayerHeads, capture_heads
from spectrope.lab.spectra.heads import longest
from spectrope.store import Run

LONGEST = 2**24  # Tokens that plans are made for; all lags of them are held in memory.
COLUMNS: dict[str, Any] = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "reach_bound": pl.Float64,
    "degree": pl.Int64,
    "rank": pl.Int64,
    "features": pl.Int64,
    "error_bound": pl.Float64,
    "speedup_estimate": pl.Float64,
    "choice": pl.String,
    "reason": pl.String,
}


class Added(Encoding):
    """A bias that is known as the table that a checkpoint adds, and no law of which is."""

    form = Form.DOT_PLUS_BIAS
    tags = frozenset()


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What heads are planned for."""

    length: int  # Tokens of the sequence.
    tolerance: float = TOLERANCE  # Largest certified error of an output, in units of max|v|.

    def __post_init__(self) -> None:
        require(1 <= self.length <= LONGEST, self, "length", f"from 1 to {LONGEST}")
        require(0 < self.tolerance < 1, self, "tolerance", "between 0 and 1")


@torch.no_grad()
def plan_run(run: Run, device: torch.device, aim: Aim, examples: int = 64) -> tuple[pl.DataFrame, int]:
    """Plan every head of a finished run by its logits on the longest held-out examples.

    Args:
        run: A finished run.
        device: Where to compute, and whose speed counts.
        aim: Length and tolerance.
        examples: Held-out examples that ranges are measured on.

    Returns:
        A row per layer and head, counted from 1: the range of centred logits, the certificate, the predicted
        speed-up and what was chosen; and how many tokens each example has.
    """
    subject = Subject.of(run, device)
    batch, n = longest(subject.held_out, examples)
    rows: list[dict[str, object]] = []

    def sink(layer: LayerHeads) -> None:
        heads = forecast(_first(layer.ctx, n), layer.encoding, aim.length, aim.tolerance, causal=layer.causal)
        rows.extend(_row(layer.layer + 1, head.head + 1, head) for head in heads)

    capture_heads(subject.model, batch.to(device), sink)
    return pl.DataFrame(rows, schema=COLUMNS), n


@torch.no_grad()
def plan_checkpoint(
    model: nn.Module,
    ids: Int[Tensor, "b t"],
    aim: Aim,
    watch: Watch = unwatched,
) -> pl.DataFrame:
    """Plan every head of a checkpoint by its logits on some sequences; the columns are those of a run's.

    A bias that the checkpoint adds is no known function of the lag, so heads with one are exact, and so are
    those whose logits it caps.

    Args:
        model: A Hugging Face model with one stack of layers.
        ids: Tokens, without padding.
        aim: Length and tolerance.
        watch: Shown the layers planned.

    Returns:
        A row per layer and head, counted from 0.

    Raises:
        UnsupportedError: If the model has two stacks or attention sinks, or no attention kernel could be
            observed, or it does not take sequences of that length.
    """
    if model.config.is_encoder_decoder:  # pyright: ignore[reportAttributeAccessIssue]
        raise UnsupportedError(f"{type(model).__name__} has two stacks; plans are made for one.")
    modules = attention_modules(model)
    rows: list[dict[str, object]] = []
    done: set[int] = set()

    config: Any = model.config

    def receive(call: Call) -> None:
        if call.module not in modules:
            return
        refuse_sinks(call)
        layer = modules.index(call.module)
        ctx, encoding, causal = _received(call, hidden=_slides(config, layer, aim.length))
        heads = forecast(ctx, encoding, aim.length, aim.tolerance, causal=causal)
        rows.extend(_row(layer, head.head, head) for head in heads)
        done.add(layer)
        watch(Progress("attention", len(done), len(modules)))

    given = {"use_cache": False} if "use_cache" in config.to_dict() else {}
    with evaluating(model), runs_at(ids.shape[1], model), recorded(model, receive, attend=True):
        model(input_ids=ids.to(next(model.parameters()).device), **given)
    return pl.DataFrame(rows, schema=COLUMNS)


def _first(ctx: Context, n: int) -> Context:
    """The first n tokens, which all examples have; a mask that hides padding alone then hides nothing."""
    mask = None if ctx.mask is None else ctx.mask[..., :n]
    if mask is not None and mask.shape[-2:-1] != (1,):
        mask = mask[..., :n, :]
    mask = None if mask is None or bool(mask.all()) else mask
    q_pos, k_pos = ctx.q_pos[..., :n], ctx.k_pos[..., :n]
    return replace(ctx, q=ctx.q[:, :, :n], k=ctx.k[:, :, :n], q_pos=q_pos, k_pos=k_pos, mask=mask)


def _slides(config: Any, layer: int, length: int) -> bool:
    """Whether a layer would see less than all of a sequence of some length, through a sliding window."""
    text = config.get_text_config()
    window, kinds = getattr(text, "sliding_window", None), getattr(text, "layer_types", None)
    return bool(window) and window < length and (kinds is None or kinds[layer] == "sliding_attention")


def _received(call: Call, *, hidden: bool) -> tuple[Context, Encoding, bool]:
    """What a kernel was given, the encoding that is left to apply, and whether it sees the past alone.

    Args:
        call: The kernel's call.
        hidden: Whether pairs would be hidden at the length planned for, even if none are here.
    """
    groups, n = call.q.shape[1] // call.k.shape[1], call.q.shape[2]
    q, k = call.q.float(), call.k.float().repeat_interleave(groups, 1)
    if call.scale is not None:
        q = q * (call.scale * q.shape[-1] ** 0.5)
    everything = bool(call.allowed.all())
    causal = not everything and bool((call.allowed == torch.ones_like(call.allowed).tril()).all())
    pos = torch.arange(n, device=q.device)[None]
    ctx = Context(q, k, pos, pos, mask=None if (everything or causal) and not hidden else call.allowed)
    if call.logits is not None or call.softcap is not None:
        return ctx, Unseen(Unseen.Config()), causal
    return ctx, (NoPE if call.bias is None else Added)(NoPE.Config()), causal


def _row(layer: int, number: int, head: HeadPlan) -> dict[str, object]:
    found = head.certificate
    return {
        "layer": layer,
        "head": number,
        "reach_bound": None if math.isnan(head.reach_bound) else head.reach_bound,
        "degree": found and found.polynomial.degree,
        "rank": found and found.rank,
        "features": found and found.features,
        "error_bound": found and found.error_bound,
        "speedup_estimate": head.speedup_estimate,
        "choice": head.choice,
        "reason": head.reason,
    }
