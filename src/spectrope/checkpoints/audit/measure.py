"""Identify the encoding behind a measured kernel."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import (
    Buckets,
    find_buckets,
    lag_table,
    lags,
    linear_slopes,
    row_centred,
    split_logits,
)
from spectrope.checkpoints.audit.compare import GAIN
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, describe_mask
from spectrope.checkpoints.audit.known import Known
from spectrope.checkpoints.audit.records import HeadRecord, Position
from spectrope.checkpoints.audit.relative_fit import Reading
from spectrope.checkpoints.audit.rotary import Rotation, fit_rotation
from spectrope.checkpoints.audit.sides import Sides, each_head
from spectrope.checkpoints.audit.turning import turning_of, unscaled, varies
from spectrope.checkpoints.probes.constant_content import LayerKernel
from spectrope.spectral import lag_effects, lag_effects_of_product

TOEPLITZ = 1e-3  # Largest distance from Toeplitz of a kernel that is called relative.
TABLES_ROUNDED = 2**-8  # Noise up to which sines and cosines in bfloat16 change the norms of pairs.
SEEN = 50  # Roundings of the largest number beyond which a part of a kernel is seen.
LATEST = 8  # The last of so many equal parts of the queries is where biases are compared with their lines.
NEAR, FAR = 32, 32  # Lags of a head's kernel that are kept: all the nearest, and some beyond, each way.


@dataclass(frozen=True)
class LayerMeasurement:
    """What a layer applies.

    Args:
        encoding: Of all heads together.
        heads: A record per query head.
        sides: What each head of the queries and of the keys does by itself.
        rough: Heads whose biases depart from their lines beyond rounding, and by how much at most.
    """

    encoding: LayerEncoding
    heads: tuple[HeadRecord, ...]
    sides: Sides
    rough: Mapping[int, float]


def measure(
    kernel: LayerKernel,
    declared: LayerEncoding,
    absolute: bool,
    noise: float,
    reading: Reading | None = None,
    known: Known | None = None,
) -> LayerMeasurement:
    """The encoding that a layer's kernel applies, of all heads and by head.

    Args:
        kernel: From the probe with constant content.
        declared: Whose buckets are tried first, as different ones may share the observed lags alike.
        absolute: Whether the layer's input carries an absolute term.
        noise: Relative rounding error of the model's arithmetic.
        reading: What its logits are made of, where the declared encoding depends on the content.
        known: What was found of other layers' biases.
    """
    call, known = kernel.call, known or Known()
    mask = describe_mask(call.allowed)
    scale, bias = split_logits(call) if reading is None else (reading.scale or 0.0, None)
    q, growth = unscaled(call.q.double(), noise)
    k, key_growth = unscaled(call.k.double(), noise)
    fixed = not varies(q, noise) and not varies(k, noise)
    rotation, tolerance = (None, noise) if fixed else _rotation(q, k, kernel, declared, noise)
    sides = each_head(q, k, kernel.sources, rotation, tolerance)
    if kernel.norms_after:
        sides = sides.without_gains()
    encoding = LayerEncoding(
        "none" if fixed else "rotary" if rotation else "unknown",
        mask=mask,
        query_scale=growth,
        key_scale=key_growth,
        sees_future=bool(call.allowed.triu(1).any()),
        softcap=call.softcap or 0.0 if call.logits is None else None,
        sinks=_sinks(call),
        values_vary=None if call.v is None else varies(call.v.double(), noise),
        normalised_after=None if fixed else bool(kernel.norms_after),
    )
    if rotation is not None:
        turning = turning_of(q, rotation, declared.turning, noise)
        encoding = replace(encoding, turning=sides.agreed(turning))
    if reading is not None:
        kind = "none" if reading.term is None else "relative term"
        encoding = replace(encoding, kind=kind, relative=reading.term)
    elif bias is not None:
        encoding = _with_bias(encoding, bias, call, declared, noise, known)
    if call.logits is not None and declared.scale and abs(scale / declared.scale - 1) <= 10 * noise:
        scale = declared.scale  # fitted to logits, it is known to no more than this
    encoding = replace(encoding, scale=reading.scale) if reading else _scaled(encoding, scale, sides)
    rough = {} if bias is None or not encoding.slopes else _rough(bias, call, encoding.slopes, noise)
    return LayerMeasurement(encoding, _heads(kernel, scale, bias, mask, encoding, absolute), sides, rough)


def _rotation(
    q: Float[Tensor, "b h t d"],
    k: Float[Tensor, "b g t d"],
    kernel: LayerKernel,
    declared: LayerEncoding,
    noise: float,
) -> tuple[Rotation | None, float]:
    """The rotation of all heads, and the rounding error at which pairs keep their norms.

    Where they do not keep them in the model's own arithmetic, tables of low precision may explain it.
    """
    rotation = fit_rotation(q, k, kernel.sources, noise)
    if rotation is not None or declared.turning is None or noise >= TABLES_ROUNDED:
        return rotation, noise
    coarse = fit_rotation(q, k, kernel.sources, TABLES_ROUNDED)
    if coarse is None or not turning_of(q, coarse, declared.turning, noise).rounding:
        return None, noise
    return coarse, TABLES_ROUNDED


def _sinks(call: Call) -> tuple[float, ...] | None:
    """Logits of attention sinks by head; None where they are more than one number per head."""
    if call.sinks is None:
        return ()
    return tuple(call.sinks.double().flatten().tolist()) if call.sinks.numel() == call.q.shape[1] else None


def _scaled(encoding: LayerEncoding, scale: float, sides: Sides) -> LayerEncoding:
    """The encoding with the factor of dot products, also where queries carry it before they turn."""
    turning = encoding.turning
    if turning is None:
        known = [gain for gain in sides.gains.values() if gain is not None]
        if len(known) < 2 and scale == 1:  # what carries no factor in its product may carry it before
            return replace(encoding, scale=None)
        return replace(encoding, scale=scale * math.prod(known))
    factor = turning.head_dim**-0.5
    if turning.gains is None or scale != 1 or abs(turning.gains[0] / factor - 1) > GAIN:
        return replace(encoding, scale=scale)
    gains = turning.gains[0] / factor, turning.gains[1]
    return replace(encoding, scale=factor, turning=replace(turning, gain=gains[0] * gains[1], gains=gains))


def _with_bias(
    encoding: LayerEncoding,
    bias: Float[Tensor, "h i j"],
    call: Call,
    declared: LayerEncoding,
    noise: float,
    known: Known,
) -> LayerEncoding:
    """The encoding with the family of its bias, unless rows alone vary."""
    allowed, exact = call.allowed[0], call.logits is None
    every = (bias[None] if call.logits is None else call.logits).unbind()
    largest = torch.stack([known.of(_largest, one, allowed) for one in every]).amax(0)
    if bool((known.of(_largest_seen, bias, allowed) <= SEEN * noise * largest).all()):
        return encoding
    within = 0.0 if exact else 4 * noise * largest.max().item()
    added = known.of(_family_of, bias, allowed, declared.buckets, noise, within)
    kind, slopes = added.kind if encoding.kind == "none" else "unknown", added.slopes
    if slopes and declared.slopes and not exact:
        slopes = _known_slopes(slopes, declared.slopes, largest * noise / (bias.shape[-1] - 1))
    return replace(encoding, kind=kind, slopes=slopes, buckets=added.buckets)


def _known_slopes(
    slopes: Sequence[float], declared: Sequence[float], within: Float[Tensor, " h"]
) -> tuple[float, ...]:
    """Slopes that are fitted to logits; those declared where the fit does not tell them apart."""
    pairs = zip(slopes, declared, within.tolist(), strict=True)
    return tuple(wanted if abs(got - wanted) <= bound else got for got, wanted, bound in pairs)


def _family_of(
    bias: Float[Tensor, "h i j"],
    allowed: Bool[Tensor, "#h i j"],
    declared: Buckets | None,
    noise: float,
    within: float,
) -> LayerEncoding:
    """The family of a bias, whose values are known within so much."""
    if (slopes := linear_slopes(bias, allowed)) is not None:
        return LayerEncoding("linear bias", slopes=tuple(slopes.tolist()))
    table = lag_table(bias, allowed, noise)
    if table is None:
        return LayerEncoding("unknown")
    buckets = find_buckets(*table, declared, within)
    return LayerEncoding("lag bias" if buckets is None else "bucketed bias", buckets=buckets)


def _rough(
    bias: Float[Tensor, "h i j"], call: Call, slopes: Sequence[float], noise: float
) -> dict[int, float]:
    """Heads whose biases over past keys depart from their lines by more than rounding, and how far.

    The last queries see keys at all distances.
    """
    rows = slice(-max(1, bias.shape[1] // LATEST), None)
    distance, past = lags(*bias.shape[1:])[rows].abs().double(), call.allowed[0, :1].tril()[:, rows]
    parts = [bias[None], *([] if call.logits is None else [call.logits])]
    off = {}
    for head, slope in enumerate(slopes):
        gap = row_centred(bias[head, rows][None].double() + slope * distance, past).abs().max().item()
        largest = max(x[:, head, rows].masked_fill(~past, 0.0).abs().max().item() for x in parts)
        if gap > SEEN * noise * largest:
            off[head] = gap
    return off


def _largest(x: Float[Tensor, "h i j"], allowed: Bool[Tensor, "#h i j"]) -> Float[Tensor, " h"]:
    """Largest size of each head over the allowed pairs."""
    pairs = zip(x, allowed.expand_as(x), strict=True)
    return torch.stack([one.masked_fill(~seen, 0.0).abs().max().double() for one, seen in pairs])


def _largest_seen(x: Float[Tensor, "h i j"], allowed: Bool[Tensor, "#h i j"]) -> Float[Tensor, " h"]:
    """The same of what softmax does not ignore."""
    pairs = zip(x, allowed.expand_as(x), strict=True)
    return torch.stack([row_centred(one[None].double(), seen[None]).abs().max() for one, seen in pairs])


def _heads(
    kernel: LayerKernel,
    scale: float,
    bias: Float[Tensor, "h i j"] | None,
    mask: Mask,
    encoding: LayerEncoding,
    absolute: bool,
) -> tuple[HeadRecord, ...]:
    """A record per query head; kernels that do not vary need no sums."""
    n_heads, slopes = kernel.call.q.shape[1], encoding.slopes
    if encoding.kind == "none" and encoding.query_scale is None:
        position: Position = "absolute" if absolute else "NoPE"
        return tuple(HeadRecord(head, position, None, None, (), ()) for head in range(n_heads))
    biased = bias is not None or kernel.call.logits is not None
    hidden = biased and mask.shape not in ("causal", "bidirectional")
    records = []
    for head in range(n_heads):
        distance, lags, curve = (None, (), ()) if hidden else _curve(kernel, head, scale, bias, mask)
        relative = distance is not None and distance <= TOEPLITZ
        position = "relative" if relative and not absolute else "mixed"
        records.append(HeadRecord(head, position, distance, slopes[head] if slopes else None, lags, curve))
    return tuple(records)


def _kept(n: int) -> Int[Tensor, " kept"]:
    """Distances below n at which kernels are sampled, ascending from 0."""
    if n <= NEAR + FAR:
        return torch.arange(n)
    return torch.cat([torch.arange(NEAR), torch.linspace(NEAR, n - 1, FAR).round().long()])


def _curve(
    kernel: LayerKernel, head: int, scale: float, bias: Float[Tensor, "h i j"] | None, mask: Mask
) -> tuple[float | None, tuple[int, ...], tuple[float, ...]]:
    """Distance from Toeplitz of one head's logits, and its lag effects at some lags."""
    call = kernel.call
    group = head * call.k.shape[1] // call.q.shape[1]
    q, k = call.q[0, head].double(), call.k[0, group].double()
    causal, n = mask.shape.startswith("causal"), len(q)
    if call.logits is not None:
        effects = lag_effects(call.logits[0, head].double().masked_fill(call.hidden(head), 0.0), causal)
    elif bias is None and call.softcap is None:
        effects = lag_effects_of_product(scale * q, k, causal)
    else:
        scores = call.capped(scale * q @ k.T)
        effects = lag_effects(scores if bias is None else scores + bias[head], causal)
    lag = torch.arange(0 if causal else 1 - n, n)
    kept = _kept(n) if causal else torch.cat([n - 1 - _kept(n).flip(0)[:-1], n - 1 + _kept(n)])
    values = effects.lags[kept] - effects.lags[0 if causal else n - 1]
    share = effects.share.item()
    distance = None if math.isnan(share) else max(1 - share, 0.0)
    return distance, tuple(lag[kept].tolist()), tuple(values.tolist())
