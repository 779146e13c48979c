"""Frequency bands of an encoding, and encodings in which one band is removed or frozen, or all others are
removed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from spectrope.core import ConfigError, Configured, UnsupportedError, require
from spectrope.encodings.base import Encoding, Side
from spectrope.encodings.composite import Composite
from spectrope.encodings.context import Context, Form, Tag
from spectrope.encodings.drope import DRoPE
from spectrope.encodings.per_head import PerHead
from spectrope.encodings.rope import RoPE

BandChange = Literal["remove", "freeze", "keep"]


@dataclass(frozen=True, kw_only=True, order=True)
class Band(Configured):
    """One of several contiguous groups of frequencies; band 0 holds the highest.

    The rotating pairs of a head are divided into groups of equal size. The Fourier components of a lag bias
    are divided at geometrically spaced wave numbers, as the frequencies of rotary pairs are spaced.
    """

    index: int  # Number of the band, from 0, highest frequencies first.
    of: int  # Number of bands.

    def __post_init__(self) -> None:
        require(self.of >= 1, self, "of", "at least 1")
        require(0 <= self.index < self.of, self, "index", f"between 0 and {self.of - 1}")

    def among(self, n: int) -> range:
        """Places of the band among n frequencies, highest first; with at most n bands, none is empty."""
        return range(n * self.index // self.of, n * (self.index + 1) // self.of)

    def waves(self, n: int) -> range:
        """Wave numbers of the band among 1, ..., n - 1; with at most n - 1 bands, none is empty.

        Wave number 0 is a constant, in no band.
        """
        last = self.of - self.index
        low, high = (min(n, max(1 + step, round(n ** (step / self.of)))) for step in (last - 1, last))
        return range(low, high)


@dataclass(frozen=True, eq=False)
class RotatingPairs:
    """The coordinate pairs of one head that turn with the position.

    Args:
        frequencies: Radians per position, with shape (m,), in float64.
        coordinates: The two coordinates of each pair, with shape (m, 2).
    """

    frequencies: Float[Tensor, " m"]
    coordinates: Int[Tensor, "m 2"]

    @property
    def turning(self) -> int:
        """How many pairs rotate at a frequency other than 0."""
        return int(self.frequencies.count_nonzero())

    def members(self, band: Band) -> Int[Tensor, " k"]:
        """Numbers of the pairs in a band; pairs that do not rotate belong to no band."""
        order = self.frequencies.abs().argsort(descending=True, stable=True)
        order = order[self.frequencies[order] != 0]
        chosen = band.among(len(order))
        return order[chosen.start : chosen.stop]


def most_bands(encoding: Encoding, width: int, length: int) -> int:
    """The largest number of bands of which none is empty in any head.

    Rotating pairs bound it, or, without them, the waves of a lag kernel, which may be zero.

    Args:
        encoding: Encoding of a layer.
        width: Width of its queries and keys.
        length: Number of tokens of a sequence.

    Raises:
        UnsupportedError: If it changes queries and keys otherwise than by steady rotations.
    """
    if isinstance(encoding, PerHead):
        return min(most_bands(part, width, length) for _, part in encoding.parts())
    return rotating_pairs(encoding, width).turning or length - 1


@torch.no_grad()
def rotating_pairs(encoding: Encoding, width: int) -> RotatingPairs:
    """The pairs of one head that an encoding rotates; empty for an encoding without rotation.

    Args:
        encoding: Encoding of the head.
        width: Width of its queries and keys.

    Raises:
        UnsupportedError: If it changes queries and keys in another way, or at frequencies that depend on the
            sequence.
    """
    if not encoding.turns:
        nothing = torch.zeros(0, dtype=torch.float64)
        return RotatingPairs(nothing, torch.zeros(0, 2, dtype=torch.int64))
    if isinstance(encoding, Composite) and not isinstance(encoding, PerHead):
        turning = [term for term in encoding.terms if term.turns]
        if len(turning) == 1:
            place = encoding.acts_on(width)
            inner = rotating_pairs(turning[0], len(place))
            return RotatingPairs(inner.frequencies, inner.coordinates + place.start)
    if isinstance(encoding, RoPE | DRoPE) and Tag.SHIFT_INVARIANT in encoding.tags:
        return RotatingPairs(_frequencies(encoding, width), _coordinates(width // 2, encoding.pairing))
    raise UnsupportedError(
        f"{type(encoding).__name__} has no bands of rotating pairs: bands need rotations at steady "
        "frequencies, as of rope, partial_dims and drope, or a bias of the lag."
    )


def _frequencies(encoding: RoPE | DRoPE, width: int) -> Float[Tensor, " m"]:
    if isinstance(encoding, DRoPE):
        return torch.full((width // 2,), encoding.omega, dtype=torch.float64)
    device = next((tensor.device for tensor in (*encoding.parameters(), *encoding.buffers())), None)
    return encoding.angles(torch.ones(1, 1, dtype=torch.float64, device=device))[0, 0].double().cpu()


def _coordinates(m: int, pairing: str) -> Int[Tensor, "m 2"]:
    if pairing == "adjacent":
        return torch.arange(2 * m).view(m, 2)
    return torch.stack([torch.arange(m), torch.arange(m, 2 * m)], 1)


def kernel_band(kernel: Float[Tensor, "lags h"], band: Band) -> Float[Tensor, "lags h"]:
    r"""The Fourier components of a kernel whose wave numbers lie in a band.

    With lags :math:`-(n-1),\dots,n-1`, the kernel is a sum of waves of :math:`k` periods in
    :math:`2n-1` positions. The bands and the constant add up to the kernel.

    Args:
        kernel: Values at lags -(n-1), ..., n-1, in logit units.
        band: Which wave numbers.
    """
    spectrum = torch.fft.rfft(kernel, dim=0)
    chosen = band.waves(spectrum.shape[0])
    kept = torch.zeros_like(spectrum)
    kept[chosen.start : chosen.stop] = spectrum[chosen.start : chosen.stop]
    return torch.fft.irfft(kept, n=kernel.shape[0], dim=0)


class Banded(Encoding):
    r"""An encoding with one frequency band changed in all heads.

    Logits of a rotation are sums over pairs of
    :math:`\mathrm{Re}(q_j \bar k_j e^{i(m-n)\omega_j})/\sqrt d`. In changed pairs the lag :math:`m-n` is
    replaced by a constant: 0 where the rotation is removed, a mean lag where it is frozen. For a lag bias,
    the changed Fourier components are removed. A frozen component would be a constant, which cancels in the
    softmax, so removing and freezing are equivalent there.

    Args:
        inner: The encoding.
        band: The band.
        change: "remove" and "freeze" change the band; "keep" removes all others.
        width: Width of queries and keys.
        n_heads: Heads of the layer.
        causal: Whether attention is causal; the bias is then extended evenly to future lags.
        lags: Mean lag of each head, with shape (h,), at which "freeze" holds the rotation.

    Raises:
        ConfigError: If `change` is none of these, or a rotation is to be frozen and `lags` are missing.
        UnsupportedError: If the encoding has no frequency bands.
    """

    form = Form.DOT_PLUS_BIAS

    def __init__(
        self,
        inner: Encoding,
        band: Band,
        change: BandChange,
        *,
        width: int,
        n_heads: int,
        causal: bool,
        lags: Float[Tensor, " h"] | None = None,
    ) -> None:
        super().__init__()
        if change not in get_args(BandChange):
            raise ConfigError(f"change must be one of {', '.join(get_args(BandChange))}; got {change!r}.")
        if change == "freeze" and inner.turns and lags is None:
            raise ConfigError("lags must give the mean lag of each head at which a rotation is frozen.")
        if inner.form in (Form.GENERAL, Form.DOT_PLUS_BIAS) or not inner.factors:
            raise UnsupportedError(
                f"{type(inner).__name__} has no frequency bands: its bias is not a function of the lag alone."
            )
        self.inner, self.band, self.change, self.causal = inner, band, change, causal
        self.form = Form.DOT if inner.form is Form.DOT else Form.DOT_PLUS_BIAS
        self.tags, self.logit_scale, self.axes = inner.tags, inner.logit_scale, inner.axes
        self.changed = torch.stack(list(_changed(inner, band, change, width, n_heads)))
        self.lags = lags if change == "freeze" else None

    def scaled(self, q: Float[Tensor, "b h i d"]) -> Float[Tensor, "b h i d"]:
        return self.inner.scaled(q)

    def rotate(self, x: Float[Tensor, "b h t d"], pos: Tensor, side: Side) -> Float[Tensor, "b h t d"]:
        whole = self.inner.rotate(x, pos, side)
        if not bool(self.changed.any()):
            return whole
        changed = self.changed.to(x.device)[None, :, None]
        return torch.where(changed, self._held(x, pos, side), whole)

    def _held(self, x: Tensor, pos: Tensor, side: Side) -> Tensor:
        """Vectors turned by a constant: queries by the mean lag of their head, keys not at all."""
        if self.lags is None or side == "key":
            return self.inner.rotate(x, torch.zeros_like(pos), side)
        held = [
            self.inner.rotate(x, torch.full_like(pos, float(lag), dtype=torch.float64), side)[:, head]
            for head, lag in enumerate(self.lags)
        ]
        return torch.stack(held, 1)

    def bias(self, ctx: Context) -> Tensor | None:
        whole = self.inner.bias(ctx)
        if self.inner.form is Form.DOT or whole is None:
            return whole
        if ctx.lag.is_floating_point():
            raise UnsupportedError("frequency bands of a bias need whole-numbered positions.")
        n = int(ctx.lag.abs().max()) + 1
        lags = torch.arange(1 - n, n, dtype=torch.float64, device=ctx.q.device)
        kernel = self.inner.lag_bias(lags.abs() if self.causal else lags)
        part = kernel_band(kernel, self.band)
        if self.change != "keep":
            part = kernel - part
        return part[ctx.lag + n - 1].movedim(-1, -3).to(whole.dtype)


def _changed(
    encoding: Encoding, band: Band, change: BandChange, width: int, n_heads: int
) -> Iterator[Bool[Tensor, " d"]]:
    """Which coordinates of each head lose their rotation."""
    if isinstance(encoding, PerHead):
        for heads, part in encoding.parts():
            yield from _changed(part, band, change, width, heads.stop - heads.start)
        return
    pairs = rotating_pairs(encoding, width)
    inside = torch.zeros(width, dtype=torch.bool)
    inside[pairs.coordinates[pairs.members(band)].flatten()] = True
    turning = torch.zeros(width, dtype=torch.bool)
    turning[pairs.coordinates.flatten()] = True
    yield from [turning & ~inside if change == "keep" else inside] * n_heads


class SparesSink(Encoding):
    """An encoding that uses one encoding for the first key and another for all others.

    Attention to the first token often serves as a sink. Leaving it unchanged separates the effect of an
    intervention on that key from its effect on all others.

    Args:
        changed: Encoding of all other keys.
        intact: Encoding of the first key.
    """

    form = Form.GENERAL

    def __init__(self, changed: Encoding, intact: Encoding) -> None:
        super().__init__()
        self.changed, self.intact = changed, intact
        self.tags = changed.tags

    def logits(self, ctx: Context) -> Float[Tensor, "b h i j"]:
        first = Context(ctx.q, ctx.k[:, :, :1], ctx.q_pos, ctx.k_pos[:, :1], ctx.x_q, None, None)
        logits = self.changed.logits(ctx)
        return torch.cat([self.intact.logits(first).to(logits.dtype), logits[..., 1:]], -1)
