"""From a kernel to the encoding behind it."""

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.checkpoints.audit.bias import find_buckets, lag_table, linear_slopes, row_centred, split_logits
from spectrope.checkpoints.audit.compare import GAIN
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning, describe_mask
from spectrope.checkpoints.audit.records import HeadRecord, Position
from spectrope.checkpoints.audit.restarts import applied_positions, named_positions
from spectrope.checkpoints.audit.rotary import Layout, Rotation, fit_rotation
from spectrope.checkpoints.probes.constant_content import LayerKernel
from spectrope.spectral import lag_effects, lag_effects_of_product

UNEVEN = 0.1  # Largest departure of a phase from a line, in radians, that is left to rounding.
TOEPLITZ = 1e-3  # Largest distance from Toeplitz of a kernel that is called relative.
NEAR, FAR = 32, 32  # Lags of a head's kernel that are kept: all the nearest, and some beyond, each way.


def measure(
    kernel: LayerKernel, declared: LayerEncoding, absolute: bool, noise: float
) -> tuple[LayerEncoding, float, tuple[HeadRecord, ...]]:
    """The encoding that a layer's kernel applies, its factor on dot products, and a record per head.

    Args:
        kernel: From the probe with constant content.
        declared: Whose buckets are tried first, as different ones may share the observed lags alike.
        absolute: Whether the layer's input carries an absolute term.
        noise: Relative rounding error of the model's arithmetic.
    """
    call = kernel.call
    mask = describe_mask(call.allowed)
    scale, bias = split_logits(call)
    q, growth = unscaled(call.q.double(), noise)
    rotation = fit_rotation(q, call.k.double(), kernel.sources, noise)
    still = rotation is None and not _varies(q, noise) and not _varies(call.k.double(), noise)
    encoding = LayerEncoding(
        "none" if still else "rotary" if rotation else "unknown",
        mask=mask,
        query_scale=growth,
        sees_future=bool(call.allowed.triu(1).any()),
    )
    if rotation is not None:
        turning = turning_of(rotation, declared.turning, call.q.shape[2], noise)
        encoding = replace(encoding, turning=replace(turning, positions=_positions(q, rotation, declared)))
    if bias is not None:
        size = (call.logits if call.logits is not None else bias).abs()
        largest = size.masked_fill(~call.allowed, 0.0).max().item()
        exact = call.logits is None
        encoding = _with_bias(encoding, bias, call.allowed[0], declared, noise, largest, exact=exact)
    encoding, factor = _scaled_before(encoding, scale, rotation)
    return encoding, scale * factor, _heads(kernel, scale, bias, mask, encoding, absolute)


def _scaled_before(
    encoding: LayerEncoding, scale: float, rotation: Rotation | None
) -> tuple[LayerEncoding, float]:
    """The encoding without the factor of dot products where queries carry it before they turn, and that."""
    if encoding.turning is None or rotation is None or rotation.query_gain is None or rotation.gain is None:
        return encoding, 1.0
    factor = rotation.head_dim**-0.5
    if scale != 1 or abs(rotation.query_gain / factor - 1) > GAIN:
        return encoding, 1.0
    return replace(encoding, turning=replace(encoding.turning, gain=rotation.gain / factor)), factor


def unscaled(q: Float[Tensor, "b h t d"], noise: float) -> tuple[Float[Tensor, "b h t d"], float | None]:
    """Queries freed of a factor that grows with position, and that factor at the last position, if any.

    A factor shared by all heads and contents is told from a rotation, which keeps norms.
    """
    norms = q.norm(dim=-1)
    growth = (norms / norms[..., :1]).flatten(0, 1)
    if bool((growth - 1).abs().max() <= 20 * noise) or bool((growth - growth[:1]).abs().max() > 20 * noise):
        return q, None
    return q / growth[0][:, None], growth[0, -1].item()


def turning_of(rotation: Rotation, declared: Turning | None, length: int, noise: float) -> Turning:
    """A measured rotation as it is compared with a declared one.

    Args:
        rotation: As measured.
        declared: Gives the frequencies of the pairs that turn too slowly to be seen.
        length: Positions of the measurement.
        noise: Relative rounding error of the model's arithmetic.
    """
    resolved = 40 * noise / length
    signs = {
        f > 0
        for f, error in zip(rotation.frequencies, rotation.errors, strict=True)
        if abs(f) > max(5 * error, resolved)
    }
    sense = 0 if len(signs) > 1 else (1 if True in signs else -1)
    turning = Turning(
        start=rotation.start,
        width=rotation.width,
        head_dim=rotation.head_dim,
        frequencies=tuple(f * (sense or 1) for f in rotation.frequencies),
        errors=rotation.errors,
        gain=rotation.gain,
        pairing=rotation.pairing if rotation.width > 2 else None,
        phase_error=rotation.phase_error,
        sense=sense if signs else None,
        key_offset=rotation.key_offset,
    )
    return turning if declared is None else _completed(turning, declared, resolved)


def _completed(turning: Turning, declared: Turning, resolved: float) -> Turning:
    """A rotation with the declared pairs that turn too slowly to be seen, at their declared frequencies.

    Their standard errors say that within them nothing was measured.
    """
    if declared.start != turning.start or declared.width <= turning.width:
        return turning
    if turning.pairing == "halves":  # whose pairs lie elsewhere when there are more of them
        return turning
    unseen = declared.frequencies[len(turning.frequencies) :]
    if any(abs(frequency) > resolved for frequency in unseen):
        return turning
    return replace(
        turning,
        width=declared.width,
        frequencies=(*turning.frequencies, *unseen),
        errors=(*turning.errors, *(resolved for _ in unseen)),
    )


def _positions(q: Float[Tensor, "b h t d"], rotation: Rotation, declared: LayerEncoding) -> str:
    """What the positions do by which queries turn, where their angles are in no proportion to the token's."""
    if declared.turning is None or rotation.phase_error < UNEVEN:
        return ""
    if (rotation.start, rotation.width) != (declared.turning.start, declared.turning.width):
        return ""
    layout = Layout(rotation.seen_pairing, rotation.start, rotation.width)
    frequencies = torch.tensor(declared.turning.frequencies, dtype=torch.float64, device=q.device)
    positions = applied_positions(layout.planes(q.flatten(0, 1)), frequencies)
    return "" if positions is None else named_positions(positions)


def _varies(x: Float[Tensor, "b h t d"], noise: float) -> bool:
    return bool((x - x[..., :1, :]).abs().max() > 20 * noise * x.square().mean().sqrt())


def _with_bias(
    encoding: LayerEncoding,
    bias: Float[Tensor, "h i j"],
    allowed: Bool[Tensor, "#h i j"],
    declared: LayerEncoding,
    noise: float,
    largest: float,
    *,
    exact: bool,
) -> LayerEncoding:
    """The encoding with the family of its bias, unless rows alone vary."""
    centred = row_centred(bias, allowed)
    if centred.abs().max().item() <= 50 * noise * largest:
        return encoding
    if encoding.kind != "none":
        return replace(encoding, kind="unknown")
    if (slopes := linear_slopes(centred, allowed)) is not None:
        return replace(encoding, kind="linear bias", slopes=tuple(slopes.tolist()))
    table = lag_table(bias, allowed, noise)
    if table is None:
        return replace(encoding, kind="unknown")
    buckets = find_buckets(*table, declared.buckets, 0.0 if exact else 4 * noise * largest)
    return replace(encoding, kind="lag bias" if buckets is None else "bucketed bias", buckets=buckets)


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
    hidden = bias is not None and mask.shape not in ("causal", "bidirectional")
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
    q, k = kernel.call.q[0, head].double(), kernel.call.k[0].double()
    k, causal, n = k[head * len(k) // kernel.call.q.shape[1]], mask.shape.startswith("causal"), len(q)
    if bias is None and kernel.call.softcap is None:
        effects = lag_effects_of_product(scale * q, k, causal)
    else:
        scores = kernel.call.capped(scale * q @ k.T)
        effects = lag_effects(scores if bias is None else scores + bias[head], causal)
    lag = torch.arange(0 if causal else 1 - n, n)
    kept = _kept(n) if causal else torch.cat([n - 1 - _kept(n).flip(0)[:-1], n - 1 + _kept(n)])
    values = effects.lags[kept] - effects.lags[0 if causal else n - 1]
    share = effects.share.item()
    distance = None if math.isnan(share) else max(1 - share, 0.0)
    return distance, tuple(lag[kept].tolist()), tuple(values.tolist())
