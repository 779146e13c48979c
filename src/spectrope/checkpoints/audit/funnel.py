"""Funnel's logits: Transformer-XL's summands, a term of segments, and a first token without either."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.compare import LOOKUP, Discrepancy
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.places import Places
from spectrope.checkpoints.audit.relative import RelativeTerm
from spectrope.checkpoints.audit.relative_fit import LEAST, ROUNDED, Reading, read_logits
from spectrope.checkpoints.audit.relative_parts import (
    Mistake,
    Summands,
    constant,
    projected,
    sinusoids,
    transformer_xl,
)

BLURRED = 0.1  # Rounding error of an angle, in radians, from which factorized positions are not read.


def funnel_parts(model: nn.Module, module: str, states: Float[Tensor, "b c"]) -> Summands | None:
    """The summands of a layer's logits; None where its weights are not those of the library's class.

    All tokens are of one segment, whose summand has no effect on the softmax.
    """
    own: Any = model.get_submodule(module)
    device = next(own.parameters()).device
    x = states.double().to(device)
    try:
        heads = own.r_w_bias.shape[0]
        queries, keys = (projected(one, x).unflatten(-1, (heads, -1)) for one in (own.q_head, own.k_head))
        biases = own.r_w_bias.detach().double(), own.r_r_bias.detach().double()
        segment = (queries + own.r_s_bias.detach().double()) * own.seg_embed[1].detach().double()
        r, table = own.r_kernel.detach().double(), partial(sinusoids, dtype=own.r_kernel.dtype)
    except AttributeError:
        return None
    same = constant("segment", queries.shape[-1] ** -0.5, segment.sum(-1))
    return transformer_xl(queries, keys, r, biases, table, [same])


def read_funnel(call: Call, parts: Summands, term: RelativeTerm, noise: float, places: Places) -> Reading:
    """Explain a layer's logits, also those of the first token, which has no relative position.

    Args:
        call: Of the layer's kernel, which shows its logits.
        parts: Their summands.
        term: The relative term as declared.
        noise: Relative rounding error of the model's arithmetic.
        places: Positions of queries and keys.
    """
    if places.unit > 1:
        parts = replace(parts, mistakes=[*parts.mistakes, _in_units(parts, places.unit)])
    reading = read_logits(call, parts, term, noise, places)
    further = [] if reading.findings else [*_apart(call, parts, reading.scale, noise, places)]
    if not bool(call.allowed.all()):
        share = f"{int((~call.allowed).sum())} of {call.allowed.numel()} keys hidden"
        further.append(Discrepancy("mask", "unlimited", share))
    return replace(reading, findings=(*reading.findings, *further))


def blind(declaration: Declaration, length: int, noise: float) -> str:
    """Why the relative term of a family that pools cannot be read in this arithmetic; "" where it can."""
    if declaration.get("attention_type") != "factorized" or noise * length <= BLURRED:
        return ""
    return "factorized positions, whose angles are computed in low precision, give equal lags other logits"


def position_noise(declaration: Declaration, length: int, noise: float) -> float:
    """Relative error of logits, in which factorized positions add up the errors of two angles."""
    return noise * (1 + length / 4 * (declaration.get("attention_type") == "factorized"))


def _in_units(parts: Summands, unit: int) -> Mistake:
    """Lags that are counted in pooled positions."""
    counted = [
        replace(part, values=lambda at, part=part: part.values(at // unit)) if part.relative else part
        for part in parts.declared
    ]
    return Mistake(LOOKUP, "lags of tokens", f"lags divided by {unit}, of pooled positions", lambda: counted)


def _apart(
    call: Call, parts: Summands, scale: float | None, noise: float, places: Places
) -> Iterator[Discrepancy]:
    """Where the first token has a relative term although it is kept apart."""
    if call.logits is None or scale is None or not places.apart:
        return
    content, bias, *_ = parts.declared
    none = torch.zeros(1, dtype=torch.long)
    wanted = sum(scale * part.values(none)[..., 0].cpu() for part in (content, bias))
    seen = call.logits.double()[:, :, ~places.related]
    off = (seen - torch.as_tensor(wanted)[..., None]).abs().max().item()
    sizes = call.logits.double().abs().max().item()
    if off > ROUNDED * max(noise, LEAST) * max(2 * sizes, 1e-30):
        got = f"logits off by up to {off:.3g}"
        yield Discrepancy("relative term", "none of the first token, which is kept apart", got)
