"""Which coordinates each attention module turns, and by the frequencies of which rotary module."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import evaluating, runs_at, trained_length
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.extension.rotations import RotaryModule
from spectrope.checkpoints.probes.constant_content import LayerKernel, constant_content
from spectrope.core import UnsupportedError
from spectrope.encodings import Pairing, multiply_pairs

POSITIONS = 64  # At most, over which queries and keys are compared.
VARIATION = 1e-3  # Relative, below which they are equal at all positions, in float32.
PAIRINGS: tuple[Pairing, ...] = ("halves", "adjacent")


@dataclass(frozen=True, eq=False)
class AppliedRotation:
    """The rotation that an attention module's queries and keys have when they reach the kernel.

    Args:
        rotary: The rotary module whose frequencies it has.
        layout: The coordinates of queries and keys that turn.
    """

    rotary: RotaryModule
    layout: Layout


AppliedRotations = dict[str, AppliedRotation | None]


def applied_rotations(
    model: nn.Module, modules: list[str], rotations: Sequence[RotaryModule]
) -> AppliedRotations:
    """Find the rotation of each attention module by undoing it.

    With the same content at every position, queries and keys whose rotation is undone are equal at all
    positions. The frequencies of every rotary module are tried on the first and on the last coordinates, in
    pairs of halves and of neighbours, and so is no rotation at all; that which leaves least variation holds.

    Args:
        model: A Hugging Face model.
        modules: Dotted names of attention modules.
        rotations: Its rotary modules.

    Returns:
        By the names of the attention modules; None for those that turn nothing.

    Raises:
        UnsupportedError: If queries or keys of a module vary with the position under all of these.
    """
    found: AppliedRotations = {}
    length = min(POSITIONS, trained_length(model) or POSITIONS)
    within = max(VARIATION, 8 * torch.finfo(next(model.parameters()).dtype).eps)

    def receive(kernel: LayerKernel) -> None:
        q, k = kernel.call.q.double(), kernel.call.k.double()
        tried: list[tuple[float, AppliedRotation | None]] = [(max(_variation(q), _variation(k)), None)]
        for rotary in rotations:
            back = _waves(rotary, length).conj()
            for layout in _layouts(rotary.width, q.shape[-1]):
                left = max(_variation(turned(x, layout, back)) for x in (q, k))
                tried.append((left, AppliedRotation(rotary, layout)))
        least, found[kernel.call.module] = min(tried, key=lambda one: one[0])
        if not least <= within:
            raise UnsupportedError(
                f"{kernel.call.module} of {type(model).__name__} does not turn pairs of its first or last "
                f"coordinates by the frequencies of {' or '.join(one.name for one in rotations)} alone; "
                "`spectrope audit` says what it applies."
            )

    with evaluating(model), runs_at(length, model):
        constant_content(model, modules, length, receive)
    return found


def turned(
    x: Float[Tensor, "b h t d"], layout: Layout, factor: Complex[Tensor, "#b #h t m"]
) -> Float[Tensor, "b h t d"]:
    """Pairs of x times complex factors; the coordinates beside them stay."""
    stop = layout.start + layout.width
    part = x[..., layout.start : stop]
    part = multiply_pairs(part if x.dtype is torch.float64 else part.float(), factor, layout.pairing)
    return torch.cat([x[..., : layout.start], part.to(x.dtype), x[..., stop:]], -1)


def _waves(rotary: RotaryModule, length: int) -> Complex[Tensor, "1 1 t m"]:
    """The rotation of each pair at each position."""
    places = torch.arange(length, dtype=torch.float64)[:, None]
    angles = places * rotary.frequencies.double().cpu()
    return torch.polar(torch.ones_like(angles), angles)[None, None]


def _layouts(width: int, d: int) -> Iterator[Layout]:
    """Pairs of the first coordinates, and of the last."""
    for start in dict.fromkeys((0, d - width)) if width <= d else ():
        yield from (Layout(pairing, start, width) for pairing in PAIRINGS)


def _variation(x: Float[Tensor, "b h t d"]) -> float:
    """Deviation from the mean over positions, relative to the size of x."""
    size = float(x.norm())
    return float((x - x.mean(2, keepdim=True)).norm()) / size if size else 0.0
