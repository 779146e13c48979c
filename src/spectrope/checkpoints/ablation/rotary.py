"""Heads of a checkpoint with a changed rotation: bands removed, frozen or kept, or only content or
position."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import Call, after, recorded
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.extension.applied import AppliedRotations, turned
from spectrope.checkpoints.extension.rotations import rotations_of
from spectrope.core import UnsupportedError
from spectrope.encodings import Band
from spectrope.lab import BandFill, fill_of, mean_lags

ROTARY_FILLS = ("position-only", "content-only")
OFF_SINK = "remove-band-off-sink"
BARE = 1e-3  # Share of the largest output by which heads may differ from the kernel's through rounding.
STILL = Layout("halves", 0, 0)  # Of modules that turn nothing.


def needs_rotation(fill: str) -> bool:
    """Whether a fill of a checkpoint changes rotations or takes queries and keys apart."""
    return fill in ROTARY_FILLS or "@" in fill


@dataclass(frozen=True)
class SiteMeans:
    """Means over the tokens of a data set in one attention module, of queries and keys before rotation.

    Args:
        queries: With shape (h, d).
        keys: With shape (g, d).
        lags: Mean lag at which each head attends, with shape (h,).
    """

    queries: Float[Tensor, "h d"]
    keys: Float[Tensor, "g d"]
    lags: Float[Tensor, " h"]


@dataclass(frozen=True, eq=False)
class RotatedHeads:
    """One call of a rotary attention module, with the rotation that was applied.

    Args:
        call: Queries and keys after rotation, values and mask.
        waves: Factor of each coordinate pair at each position, :math:`g e^{ip\\omega_j}`, (b, t, m).
        layout: The coordinates of queries and keys that turn.
    """

    call: Call
    waves: Complex[Tensor, "b t m"]
    layout: Layout

    @cached_property
    def unit(self) -> Complex[Tensor, "b 1 t m"]:
        """The rotation alone, without a gain."""
        return (self.waves / self.waves.abs())[:, None]

    @cached_property
    def frequencies(self) -> Float[Tensor, " m"]:
        """Radians per position."""
        return (self.unit[0, 0, 1] * self.unit[0, 0, 0].conj()).angle()

    def content(self, x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b h t d"]:
        """Queries or keys before rotation."""
        return self._times(x, (self.waves[:, None] * self.waves[:, None].abs().square().reciprocal()).conj())

    def pattern(self) -> Float[Tensor, "b h t t"]:
        """The pattern of the call as it was made."""
        return self._softmax(self._scores(self.call.q, self.call.k))

    def intact(self) -> Float[Tensor, "b t f"]:
        """Heads side by side, unchanged."""
        return self._attend(self._scores(self.call.q, self.call.k))

    def require_bare(self, heads: Float[Tensor, "b t f"]) -> None:
        """Refuse heads that do not enter the projection as the kernel puts them out, since fills do.

        Raises:
            UnsupportedError: If their module gates or normalises them in between.
        """
        intact = self.intact()
        least = max(BARE, 16 * torch.finfo(heads.dtype).eps) * heads.abs().max()
        if intact.shape != heads.shape or bool((intact - heads).abs().max() > least):
            raise UnsupportedError(
                f"{self.call.module} changes its heads between kernel and projection, as gates do, so "
                "fills that change rotations are not supported."
            )

    def output(self, fill: str, means: SiteMeans | None) -> Float[Tensor, "b t f"]:
        """Heads side by side under a fill."""
        if fill == "content-only":
            everything = torch.ones_like(self.frequencies, dtype=torch.bool)
            return self._attend(self._scores(*self._held(everything, None)))
        if fill == "position-only":
            assert means is not None
            return self._attend(self._scores(*self._average(means)))
        chosen = fill_of(fill)
        assert isinstance(chosen, BandFill)
        inside = self._members(chosen.band)
        changed = ~inside if chosen.change == "keep" else inside
        lags = means.lags if chosen.change == "freeze" and means is not None else None
        scores = self._scores(*self._held(changed, lags))
        if chosen.kind == OFF_SINK:
            intact = self._scores(self.call.q, self.call.k)
            scores = torch.cat([intact[..., :1], scores[..., 1:]], -1)
        return self._attend(scores)

    def silenced(self, band: Band) -> Float[Tensor, "b t f"]:
        """Heads side by side whose logits leave out the pairs of a band, content included."""
        kept = (~self._members(band)).to(self.waves).expand_as(self.waves)[:, None]
        return self._attend(self._scores(self._times(self.call.q, kept), self.call.k))

    def _members(self, band: Band) -> Bool[Tensor, " m"]:
        """Whether each pair belongs to a band; those that do not turn belong to none."""
        order = self.frequencies.abs().argsort(descending=True, stable=True)
        order = order[self.frequencies[order] != 0]
        chosen, inside = band.among(len(order)), torch.zeros_like(self.frequencies, dtype=torch.bool)
        inside[order[chosen.start : chosen.stop]] = True
        return inside

    def _held(
        self, changed: Bool[Tensor, " m"], lags: Float[Tensor, " h"] | None
    ) -> tuple[Float[Tensor, "b h t d"], Float[Tensor, "b g t d"]]:
        """Queries and keys whose changed pairs are at lag 0, or at a lag per head."""
        still = torch.where(changed, self.unit.conj(), torch.ones_like(self.unit))
        held = still
        if lags is not None:
            angles = lags[:, None, None].to(self.frequencies) * self.frequencies
            held = torch.where(changed, still * torch.polar(torch.ones_like(angles), angles), still)
        return self._times(self.call.q, held), self._times(self.call.k, still)

    def _average(self, means: SiteMeans) -> tuple[Tensor, Tensor]:
        """Mean queries and keys at every position, rotated."""
        q, k = means.queries.to(self.call.q), means.keys.to(self.call.k)
        waves = self.waves[:, None]
        return (
            self._times(q[:, None].expand_as(self.call.q), waves),
            self._times(k[:, None].expand_as(self.call.k), waves),
        )

    def _times(self, x: Float[Tensor, "b h t d"], factor: Complex[Tensor, "..."]) -> Tensor:
        """Rotating pairs of x times complex factors; the coordinates beside them stay."""
        return turned(x, self.layout, factor) if self.layout.width else x

    def _scores(self, q: Tensor, k: Tensor) -> Float[Tensor, "b h t t"]:
        return replace(self.call, q=q, k=k).unmasked()

    def _softmax(self, scores: Tensor) -> Float[Tensor, "b h t t"]:
        scores = scores.masked_fill(~self.call.allowed, torch.finfo(scores.dtype).min)
        if self.call.sinks is None:
            return scores.softmax(-1)
        beside = self.call.sinks.to(scores)[None, :, None, None].expand(*scores.shape[:3], 1)
        return torch.cat([scores, beside], -1).softmax(-1)[..., :-1]

    def _attend(self, scores: Tensor) -> Float[Tensor, "b t f"]:
        v = self.call.v
        assert v is not None
        v = v.repeat_interleave(scores.shape[1] // v.shape[1], 1)
        return (self._softmax(scores).to(v.dtype) @ v).transpose(1, 2).flatten(2)


def rotary_name(model: nn.Module) -> str:
    """Name of the module that computes the rotation of all layers.

    Raises:
        UnsupportedError: If there is none, or several.
    """
    rotations = rotations_of(model)
    if len(rotations) > 1:
        raise UnsupportedError(
            f"{type(model).__name__} has {len(rotations)} rotary modules; frequency bands are only "
            f"supported in models in which one module rotates all layers, such as Llama."
        )
    return rotations[0].name


@contextlib.contextmanager
def rotations_recorded(
    model: nn.Module, applied: AppliedRotations, sink: Callable[[RotatedHeads], None]
) -> Iterator[None]:
    """Context manager that passes every attention call of the model to `sink`, with its rotation.

    Args:
        model: A Hugging Face model in which one module turns all layers.
        applied: The rotation of each attention module; see `applied_rotations`.
        sink: Receives the calls.

    Raises:
        UnsupportedError: If the model does not rotate by one module that returns cosines and sines.
    """
    waves: list[Any] = []

    def note(_: str, output: Any) -> None:
        pair = isinstance(output, tuple) and len(output) == 2
        if not (pair and all(isinstance(part, Tensor) and part.ndim == 3 for part in output)):
            raise UnsupportedError(
                f"{type(model).__name__} does not rotate by cosines and sines per position, which frequency "
                f"bands require."
            )
        waves[:] = [output]

    def hand_over(call: Call) -> None:
        cos, sin = waves[0]
        rotation = applied[call.module]
        sink(rotated_heads(call, cos, sin, STILL if rotation is None else rotation.layout))

    with after(model, [rotary_name(model)], note), recorded(model, hand_over, attend=True):
        yield


def rotated_heads(
    call: Call, cos: Float[Tensor, "b t d"], sin: Float[Tensor, "b t d"], layout: Layout
) -> RotatedHeads:
    """A call with the rotation whose cosines and sines a rotary module returned.

    Each cosine comes once, or twice: next to itself, or in the second half. This says nothing of the
    coordinates that turn, since attention may put any of these in its own order, as that of GLM does.

    Args:
        call: The call.
        cos: Cosines of all pairs.
        sin: Sines, likewise.
        layout: The coordinates that turn, of width 0 if none do.

    Raises:
        UnsupportedError: If the call does not show its values and its scale, or cosines are not one or two
            per pair.
    """
    waves = torch.complex(*(part.float().contiguous() for part in _once(cos, sin, layout.width // 2)))
    if call.v is None or call.scale is None:
        raise UnsupportedError("frequency bands need attention whose values and scale are seen.")
    return RotatedHeads(call, waves, layout)


def _once(cos: Tensor, sin: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of so many pairs, each once."""
    given = cos.shape[-1]
    if pairs == 0:
        return cos[..., :0], sin[..., :0]
    if given not in (pairs, 2 * pairs):
        raise UnsupportedError(f"a rotary module returns {given} cosines for {pairs} pairs of coordinates.")
    if given == 2 * pairs:
        beside = torch.equal(cos[..., ::2], cos[..., 1::2])
        chosen = slice(None, None, 2) if beside else slice(pairs)
        cos, sin = cos[..., chosen], sin[..., chosen]
    return cos, sin


@dataclass
class MeanSums:
    """Sums over tokens, from which the means of a module follow.

    Args:
        queries: Of queries before rotation, with shape (h, d).
        keys: Of keys, with shape (g, d).
        lags: Of the lags at which heads attend, with shape (h,).
        tokens: How many tokens.
    """

    queries: Tensor | float = 0.0
    keys: Tensor | float = 0.0
    lags: Tensor | float = 0.0
    tokens: int = 0

    def add(self, heads: RotatedHeads, real: Bool[Tensor, "b t"]) -> None:
        """Add the tokens of one call."""
        weights = real[:, None, :, None].double()
        q, k = heads.content(heads.call.q), heads.content(heads.call.k)
        self.queries = self.queries + (q.double() * weights).sum((0, 2))
        self.keys = self.keys + (k.double() * weights).sum((0, 2))
        self.lags = self.lags + (_lags(heads).double() * weights[..., 0]).sum((0, 2))
        self.tokens += int(real.sum())

    def means(self) -> SiteMeans:
        """The means."""
        sums = (self.queries, self.keys, self.lags)
        queries, keys, lags = (torch.as_tensor(total) / self.tokens for total in sums)
        return SiteMeans(queries, keys, lags)


def _lags(heads: RotatedHeads) -> Float[Tensor, "b h t"]:
    """Mean lag of each query of each head, over the attention that sinks leave."""
    pattern = heads.pattern()
    places: Int[Tensor, " t"] = torch.arange(pattern.shape[-1], device=pattern.device)
    lag = (places[:, None] - places).to(pattern.dtype)
    return mean_lags(pattern, lag, with_sinks=heads.call.sinks is not None)
