"""What layers apply when training begins, and where a later step departs from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import evaluating, runs_at
from spectrope.checkpoints.audit.anchored import anchored
from spectrope.checkpoints.audit.bias import linear_slopes, split_logits
from spectrope.checkpoints.audit.compare import Discrepancy, compare
from spectrope.checkpoints.audit.encoding import LayerEncoding, Turning
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.rotary import fit_rotation, phase_slopes
from spectrope.checkpoints.audit.turning import varies
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content
from spectrope.checkpoints.training.heard import HeardLayer

START = "at the start"
WITHIN = 1e-3  # Relative difference of norms within which a module's output is what a rotation has turned.


@dataclass(frozen=True)
class ExpectedLayer:
    """What one layer applies when training begins.

    Args:
        encoding: Of kind "rotary", "linear bias", "none" or, where nothing here watches it, "unknown".
        layout: Which coordinates turn, of a rotation.
        n_heads: Query heads.
    """

    encoding: LayerEncoding
    layout: Layout | None
    n_heads: int


def expected_layers(model: nn.Module, modules: list[str], length: int) -> dict[str, ExpectedLayer]:
    """Measure some layers with constant content, by the audit's own probe.

    Args:
        model: A Hugging Face model, or an `OwnModel`.
        modules: Dotted names of attention modules.
        length: Positions.
    """
    found: dict[str, ExpectedLayer] = {}
    noise = float(torch.finfo(next(model.parameters()).dtype).eps)

    def receive(kernel: LayerKernel) -> None:
        found[kernel.call.module] = _expected(kernel, noise)

    with evaluating(model), runs_at(length, model):
        constant_content(model, modules, length, receive)
    return found


def _expected(kernel: LayerKernel, noise: float) -> ExpectedLayer:
    q, k, n_heads = kernel.call.q.double(), kernel.call.k.double(), kernel.call.q.shape[1]
    rotation = fit_rotation(q, k, kernel.sources, noise)
    if rotation is not None:
        turning = Turning(
            start=rotation.start,
            width=rotation.width,
            head_dim=rotation.head_dim,
            frequencies=_forward(rotation.frequencies),
            sense=_sense(rotation.frequencies),
            errors=rotation.errors,
            gain=rotation.gain,
            pairing=rotation.seen_pairing,
            phase_error=rotation.phase_error,
        )
        return ExpectedLayer(LayerEncoding("rotary", turning=turning), rotation.layout, n_heads)
    if varies(q, noise) or varies(k, noise):
        return ExpectedLayer(LayerEncoding("unknown"), None, n_heads)
    _, bias = split_logits(kernel.call)
    if bias is None:
        return ExpectedLayer(LayerEncoding("none"), None, n_heads)
    slopes = linear_slopes(bias, kernel.call.allowed[0])
    if slopes is None:
        return ExpectedLayer(LayerEncoding("unknown"), None, n_heads)
    return ExpectedLayer(LayerEncoding("linear bias", slopes=tuple(slopes.tolist())), None, n_heads)


def _sense(frequencies: tuple[float, ...]) -> int:
    """The sense in which the fastest pair turns."""
    return 1 if max(frequencies, key=abs) > 0 else -1


def _forward(frequencies: tuple[float, ...]) -> tuple[float, ...]:
    """Frequencies in the sense in which the fastest pair turns."""
    sense = _sense(frequencies)
    return tuple(sense * f for f in frequencies)


def departures(expected: ExpectedLayer, heard: HeardLayer, *, readable: bool) -> Iterator[Discrepancy]:
    """Where a step's own queries and keys show another encoding than the layer had.

    Args:
        expected: Of the layer.
        heard: Of the step.
        readable: Whether its rotation could be read when training began (`watched`).
    """
    match expected.encoding.kind:
        case "rotary":
            unread = LayerEncoding("unknown") if readable and heard.q.any() and heard.k.any() else None
            now = _rotation(expected, heard) or unread
        case "linear bias":
            now = _linear(heard)
            slopes = expected.encoding.slopes or ()
            expected = replace(
                expected, encoding=replace(expected.encoding, slopes=tuple(slopes[h] for h in heard.heads))
            )
        case "none":
            now = _unturned(heard)
        case _:
            return
    if now is not None:
        for one in compare(anchored(expected.encoding), now, heard.q.shape[1], heard.noise):
            yield replace(one, by=START)


def watched(expected: ExpectedLayer, heard: HeardLayer) -> bool:
    """Whether a change of the layer's encoding would be detected."""
    kind = expected.encoding.kind
    return kind == "linear bias" or (kind != "unknown" and _sources(expected.layout, heard) is not None)


def _rotation(expected: ExpectedLayer, heard: HeardLayer) -> LayerEncoding | None:
    """The rotation between what the projections put out and what the kernel received."""
    sources = _sources(expected.layout, heard)
    if sources is None or expected.layout is None or expected.encoding.turning is None:
        return None
    turned = [expected.layout.planes(x) for x in (heard.q.double(), heard.k.double())]
    plain = [expected.layout.planes(x) for x in sources]
    frequencies, errors, phase_error = phase_slopes(
        torch.cat([after * before.conj() for after, before in zip(turned, plain, strict=True)])
    )
    gains = [_gain(after, before) for after, before in zip(turned, plain, strict=True)]
    turning = replace(
        expected.encoding.turning,
        frequencies=_forward(tuple(frequencies.tolist())),
        sense=_sense(tuple(frequencies.tolist())),
        errors=tuple(errors.tolist()),
        phase_error=phase_error,
        gain=gains[0] * gains[1],
        gains=(gains[0], gains[1]),
    )
    return LayerEncoding("rotary", turning=turning)


def _gain(after: Complex[Tensor, "h n m"], before: Complex[Tensor, "h n m"]) -> float:
    return (after.abs() / before.abs().clamp(min=1e-300)).median().item()


def _linear(heard: HeardLayer) -> LayerEncoding | None:
    """Slopes of what is added to the products."""
    n = heard.q.shape[1]
    allowed = torch.ones(1, n, n, dtype=torch.bool)
    if heard.added is None:
        return LayerEncoding("none")
    slopes = linear_slopes(heard.added.double().cpu(), allowed.tril() if heard.causal else allowed)
    return (
        LayerEncoding("unknown")
        if slopes is None
        else LayerEncoding("linear bias", slopes=tuple(slopes.tolist()))
    )


def _unturned(heard: HeardLayer) -> LayerEncoding | None:
    """Nothing, where queries are still what some module put out; None where no module's output is theirs."""
    if _sources(None, heard) is not None:
        return LayerEncoding("none")
    whole = Layout("adjacent", 0, heard.q.shape[2] - heard.q.shape[2] % 2)
    halves = replace(whole, pairing="halves")
    turned = any(_sources(layout, heard) is not None for layout in (whole, halves))
    return LayerEncoding("unknown") if turned else None


def _sources(
    layout: Layout | None, heard: HeardLayer
) -> tuple[Float[Tensor, "h n d"], Float[Tensor, "h n d"]] | None:
    """Queries and keys before a rotation, among what inner modules put out; None where they are not there."""
    q, k = (_source(x.double(), layout, heard.parts, heard.noise) for x in (heard.q, heard.k))
    return None if q is None or k is None else (q, k)


def _source(
    x: Float[Tensor, "h n d"], layout: Layout | None, parts: Mapping[str, Tensor], noise: float
) -> Float[Tensor, "h n d"] | None:
    """For each head, the stretch of some module's output whose pairs have its norms, up to one factor."""
    found: list[Tensor] = []
    stretches = [
        rows.double().unflatten(1, (-1, x.shape[-1])).transpose(0, 1)
        for rows in parts.values()
        if rows.shape[1] % x.shape[-1] == 0
    ]
    if not stretches:
        return None
    candidates = torch.cat(stretches)
    sizes = candidates if layout is None else layout.planes(candidates).abs()
    for one in x:
        wanted = one if layout is None else layout.planes(one).abs()
        factor = (sizes * wanted).sum((1, 2), keepdim=True) / wanted.square().sum()
        gaps = (sizes - factor * wanted).norm(dim=(1, 2)) / sizes.norm(dim=(1, 2)).clamp(min=1e-300)
        best = int(gaps.argmin())
        if not float(gaps[best]) <= max(WITHIN, 4 * noise):
            return None
        found.append(candidates[best])
    return torch.stack(found)
