"""RoPE on two or three axes: axial, mixed, and in sections (M-RoPE)."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import require, require_least, torch_stream
from spectrope.encodings.base import Encoding, EncodingConfig, Scope, Side, Tag
from spectrope.encodings.parts import Constant, Pairing, multiply_pairs
from spectrope.encodings.positions.axes import coordinates
from spectrope.encodings.schedules.base import geometric

ROTATION = frozenset({Tag.SHIFT_INVARIANT, Tag.CONTENT_FREE, Tag.ISOMETRIC})


class PlaneRotary(Encoding):
    r"""Base of rotations by several coordinates: :math:`R(x, p)_j = x_j e^{i \langle p, \omega_j\rangle}`."""

    family = "rotary"
    pairing: Pairing = "adjacent"

    def directions(self) -> Float[Tensor, "#h m a"]:
        """Frequencies of each pair on each axis, in radians per unit, in float64."""
        raise NotImplementedError

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        places = coordinates(pos, self.axes).double()
        angles = torch.einsum("bta,hma->bhtm", places, self.directions())
        return multiply_pairs(x, torch.polar(torch.ones_like(angles), angles), self.pairing)


class AxialRoPE(PlaneRotary, name="axial_rope"):
    r"""RoPE on several axes, each of which rotates its own coordinate pairs:
    :math:`\omega_j = \mathrm{base}^{-2\lfloor j/a\rfloor/(d/a)}\text{ on axis } j \bmod a`.

    Pairs 0, a, 2a, ... turn with the first coordinate, pairs 1, a + 1, ... with the second, and so on.
    Each axis has RoPE's frequencies for a head of 1/a of the width. A plain position p stands for (p, ...,
    p).

    References:
        Rotary Position Embedding for Vision Transformer (Heo et al., 2024), axial frequencies.
    """

    tags = ROTATION

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Axes, frequencies and layout."""

        head_dim: int = 16  # Width of queries and keys.
        n_axes: Literal[2, 3] = 2
        base: float = 100.0  # Sides of pictures are shorter than texts.
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            require(self.head_dim > 0 and self.head_dim % 2 == 0, self, "head_dim", "even and positive")
            enough = self.head_dim >= 2 * self.n_axes
            require(enough, self, "head_dim", f"at least {2 * self.n_axes}, a pair for each axis")
            require(self.base > 0, self, "base", "positive")

    def setup(self, config: "AxialRoPE.Config") -> None:
        self.pairing, self.axes = config.pairs, config.n_axes
        pair = torch.arange(config.head_dim // 2)
        width = config.head_dim / config.n_axes
        speed = config.base ** -(2 * (pair // config.n_axes).double() / width)
        on_axis = torch.nn.functional.one_hot(pair % config.n_axes, config.n_axes).double()
        self.frequencies = Constant((speed[:, None] * on_axis)[None])

    def directions(self) -> Float[Tensor, "#h m a"]:
        return self.frequencies.value


class MixedRoPE(PlaneRotary, name="mixed_rope"):
    r"""Two-dimensional RoPE in which both coordinates rotate every pair:
    :math:`R(x, (u, v))_j = x_j e^{i(u\omega^u_{hj} + v\omega^v_{hj})}`.

    This distinguishes diagonal directions, which axial frequencies cannot. Frequencies start as those of a
    head of half the width, :math:`\mathrm{base}^{-4j/d}` in two orthogonal directions, rotated by a random
    angle per head. Unless fixed, they are trained directly, per head and layer. A plain position p stands for
    (p, p).

    References:
        Rotary Position Embedding for Vision Transformer (Heo et al., 2024), mixed learnable frequencies.
    """

    scope = Scope.LAYER
    axes = 2

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Frequencies and layout."""

        n_heads: int = 16
        head_dim: int = 16  # Width of queries and keys; a multiple of 4.
        base: float = 10.0
        learned: bool = True
        seed: int = 0  # Names the directions at the start.
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            whole = self.head_dim > 0 and self.head_dim % 4 == 0
            require(
                whole, self, "head_dim", "a positive multiple of 4", "Frequencies come in two directions."
            )
            require_least(self, 1, "n_heads")
            require(self.base > 0, self, "base", "positive")

    frequencies: Tensor

    def setup(self, config: "MixedRoPE.Config") -> None:
        self.pairing = config.pairs
        start = mixed_directions(config).to(torch.get_default_dtype())
        self.tags = ROTATION | {Tag.LEARNED} if config.learned else ROTATION
        if config.learned:
            self.frequencies = nn.Parameter(start)
        else:
            self.fixed = Constant(mixed_directions(config))

    def directions(self) -> Float[Tensor, "h m 2"]:
        return self.frequencies.double() if Tag.LEARNED in self.tags else self.fixed.value


def mixed_directions(config: "MixedRoPE.Config") -> Float[Tensor, "h m 2"]:
    """Frequencies at the start: two orthogonal directions of each magnitude, at a random angle per head."""
    stream = torch_stream(config.seed, "mixed rope")
    angle = 2 * math.pi * torch.rand(config.n_heads, 1, generator=stream, dtype=torch.float64)
    magnitude = config.base ** -(
        4 * torch.arange(config.head_dim // 4, dtype=torch.float64) / config.head_dim
    )
    along = torch.stack([angle.cos() * magnitude, angle.sin() * magnitude], -1)
    across = torch.stack([-angle.sin() * magnitude, angle.cos() * magnitude], -1)
    return torch.cat([along, across], 1)


class MRoPE(PlaneRotary, name="mrope"):
    r"""RoPE whose coordinate pairs are divided among time, height and width:
    :math:`R(x, p)_j = x_j e^{i p_{s(j)} \omega_j}`.

    Frequencies are RoPE's for the whole width; s(j) is the coordinate that rotates pair j. With "sections",
    the first pairs rotate with time, the next with height, and the last with width. "interleaved" assigns
    pairs to the three in turn until height and width have theirs, or the pairs end, as the slices of the
    class in transformers do; the rest rotate with time. A plain position
    p means (p, p, p), so on text this is RoPE. `mrope_positions` computes positions for an image between
    texts.

    References:
        Qwen2-VL (Wang et al., 2024), M-RoPE; interleaved as in Qwen3-VL's class in transformers.
    """

    tags = ROTATION
    axes = 3

    @dataclass(frozen=True, kw_only=True)
    class Config(EncodingConfig):
        """Sections, frequencies and layout."""

        head_dim: int = 16  # Width of queries and keys.
        height: float = 0.375  # Share of the pairs that turn with height, rounded down.
        width: float = 0.375  # The same of width; time has the rest.
        layout: Literal["sections", "interleaved"] = "sections"
        base: float = 10000.0
        pairs: Pairing = "adjacent"

        def __post_init__(self) -> None:
            require(self.head_dim > 0 and self.head_dim % 2 == 0, self, "head_dim", "even and positive")
            for name in ("height", "width"):
                require(0 <= getattr(self, name) <= 1, self, name, "a share, from 0 to 1")
            require(self.height + self.width <= 1, self, "width", "at most what height leaves, 1 - height")
            require(self.base > 0, self, "base", "positive")

        @property
        def sections(self) -> tuple[int, int, int]:
            """Pairs that turn with time, height and width."""
            time, height, width = self.axes.bincount(minlength=3).tolist()
            return time, height, width

        @property
        def axes(self) -> Tensor:
            """The axis with which each pair turns: 0 time, 1 height, 2 width."""
            pairs = self.head_dim // 2
            height, width = int(self.height * pairs), int(self.width * pairs)
            return mrope_axes(
                (pairs - height - width, height, width), interleaved=self.layout == "interleaved"
            )

    def setup(self, config: "MRoPE.Config") -> None:
        self.pairing = config.pairs
        on_axis = torch.nn.functional.one_hot(config.axes, 3).double()
        self.frequencies = Constant((geometric(config.base, config.head_dim)[:, None] * on_axis)[None])

    def directions(self) -> Float[Tensor, "#h m a"]:
        return self.frequencies.value


def mrope_axes(sections: tuple[int, int, int], *, interleaved: bool) -> Tensor:
    """The axis of each pair: 0 time, 1 height, 2 width.

    Args:
        sections: Pairs of each axis.
        interleaved: Whether pairs 1, 4, 7, ... are of height and 2, 5, 8, ... of width, as many as they have.
    """
    if not interleaved:
        return torch.repeat_interleave(torch.arange(3), torch.tensor(sections))
    axes = torch.zeros(sum(sections), dtype=torch.long)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes
