"""The encoding of one layer, measured or declared, under one description that can be compared."""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from spectrope.checkpoints.audit.bias import Buckets
from spectrope.checkpoints.audit.relative import RelativeTerm
from spectrope.checkpoints.audit.rotary import FREQUENCY, Fit, fit_schedule
from spectrope.encodings import Pairing

MaskShape = Literal[
    "causal",
    "bidirectional",
    "causal window",
    "bidirectional window",
    "causal chunk",
    "block-sparse",
    "unlimited",
    "other",
]


@dataclass(frozen=True)
class Mask:
    """Shape of a mask.

    Args:
        shape: What it is; "unlimited" stands for causal or bidirectional where a declaration says neither;
            "other" is what no rule fits.
        size: Keys that a causal window holds, the query's own among them; keys on either side for a window
            that looks both ways; positions per chunk or block; None where there is no limit.
        past: The rule of its keys up to the query's own, of a measured one.
        ahead: How many positions after the query the last key seen is, at most, of a measured one.
        words: What is known of one that no rule fits.
    """

    shape: MaskShape
    size: int | None = None
    past: "Mask | None" = field(default=None, compare=False)
    ahead: int = field(default=0, compare=False)
    words: str = field(default="", compare=False)

    @property
    def description(self) -> str:
        """Its rule, or how it departs from the nearest one."""
        return self.words or str(self)

    def __str__(self) -> str:
        return self.shape if self.size is None else f"{self.shape} {self.size}"


def describe_mask(allowed: Bool[Tensor, "b h i j"]) -> Mask:
    """The rule behind a mask; (i, j) are query and key of the same sequence.

    Args:
        allowed: Which keys each query may see; rows of the batch and heads must agree, or it is "other".
    """
    first = allowed[0, 0]
    if not bool((allowed == first).all()):
        return Mask("other", words="another one in each sequence or head")
    i = torch.arange(len(first), device=first.device, dtype=torch.int32)  # half the memory of int64
    lag = i[:, None] - i[None, :]
    rule = _rule(first, lag)
    ahead = -min(int(lag.masked_fill(~first, 0).min()), 0)
    return replace(rule, past=_rule(first & (lag >= 0), lag), ahead=ahead)


def _rule(allowed: Bool[Tensor, "n n"], lag: Int[Tensor, "n n"]) -> Mask:
    candidates = _candidates(allowed, lag)
    fitting = next((mask for mask in candidates if torch.equal(_drawn(mask, lag), allowed)), None)
    if fitting is not None:
        return fitting
    if not bool(allowed.any()):
        return Mask("other", words="no key at all")
    nearest = min(candidates, key=lambda mask: int((_drawn(mask, lag) != allowed).sum()))
    return Mask("other", words=_nearly(nearest, _drawn(nearest, lag) != allowed))


def _nearly(mask: Mask, off: Bool[Tensor, "n n"]) -> str:
    """How a mask departs from the rule that is nearest to it."""
    if torch.equal(off, torch.eye(len(off), dtype=torch.bool, device=off.device)):
        return f"{mask} without the query's own key"
    query, key = divmod(int(off.flatten().to(torch.uint8).argmax()), len(off))
    return f"{mask} but for {int(off.sum())} pairs, the first of query {query} and key {key}"


def _candidates(allowed: Bool[Tensor, "n n"], lag: Int[Tensor, "n n"]) -> list[Mask]:
    reach = int(lag.masked_fill(~allowed, -len(lag)).max()) if bool(allowed.any()) else 0
    hidden = (~allowed[:, 0]).nonzero()
    masks = [
        Mask("causal"),
        Mask("bidirectional"),
        *([Mask("causal window", reach + 1)] if reach >= 0 else []),
        *([Mask("bidirectional window", reach)] if reach > 0 else []),
    ]
    return [*masks, Mask("causal chunk", int(hidden[0]))] if len(hidden) else masks


def _drawn(mask: Mask, lag: Int[Tensor, "n n"]) -> Bool[Tensor, "n n"]:
    size = mask.size or 1
    match mask.shape:
        case "causal":
            return lag >= 0
        case "causal window":
            return (lag >= 0) & (lag < size)
        case "bidirectional window":
            return lag.abs() <= size
        case "causal chunk":
            chunk = torch.arange(len(lag), device=lag.device) // size
            return (lag >= 0) & (chunk[:, None] == chunk[None, :])
        case _:
            return torch.ones_like(lag, dtype=torch.bool)


Kind = Literal["none", "rotary", "linear bias", "bucketed bias", "lag bias", "relative term", "unknown"]


@dataclass(frozen=True)
class Turning:
    """How coordinate pairs of queries and keys turn with position.

    Args:
        start: First rotated coordinate.
        width: Rotated coordinates.
        head_dim: Width of queries and keys.
        frequencies: Radians per position of each pair.
        errors: Standard error of each; zeros where they are declared.
        gain: Factor on the logits of rotated coordinates; None where it was not seen.
        pairing: How the weights lay out the pairs; None where nothing says.
        phase_error: Largest departure of a phase from a straight line, in radians.
        base: As declared; None where the rotation is measured.
        sense: 1 where later positions turn the first coordinate of a pair towards the second, -1 where
            the other way, 0 where pairs disagree (frequencies then keep signs); None where nothing says.
        position: That by which queries have turned at the first token; None where it was not seen.
        key_offset: Positions by which keys are ahead of queries; None where it was not seen.
        gains: Factors on rotated queries and on rotated keys, of a measured rotation; None where not seen.
        rounding: The low precision in which the angles were computed, "" for none.
        positions: What positions do instead of counting the tokens, "" where they count them.
        resolution: Error of every frequency in addition to the standard errors: the rounding of the model's
            arithmetic and departures of phases from straight lines, in radians per position; 0 if declared.
    """

    start: int
    width: int
    head_dim: int
    frequencies: tuple[float, ...]
    errors: tuple[float, ...]
    gain: float | None
    pairing: Pairing | None
    phase_error: float = 0.0
    base: float | None = None
    sense: int | None = None
    position: int | None = None
    key_offset: int | None = None
    gains: tuple[float, float] | None = None
    rounding: str = ""
    positions: str = ""
    resolution: float = 0.0

    @property
    def fraction(self) -> float:
        """Share of the coordinates that turn."""
        return self.width / self.head_dim

    @property
    def bounds(self) -> tuple[float, ...]:
        """Error allowed for each frequency, in radians per position."""
        return tuple(5 * error + self.resolution for error in self.errors)

    def agrees(self, declared: "Turning") -> bool:
        """Whether the frequencies are those declared, within the error of the measurement."""
        if (self.start, self.width) != (declared.start, declared.width):
            return False
        pairs = zip(self.frequencies, declared.frequencies, self.bounds, strict=True)
        return all(abs(one - other) <= FREQUENCY * abs(other) + bound for one, other, bound in pairs)

    def fit(self, declared: "Turning | None" = None) -> Fit:
        """The simplest schedule that the frequencies are compatible with.

        Args:
            declared: Declared rotation: its schedule is returned if the frequencies agree with it, and
                slowdowns are relative to its base. None uses the own base, or the ratio of the first two
                frequencies.
        """
        if declared is not None and declared is not self and self.agrees(declared):
            return declared.fit()
        base = (declared and declared.base) or self.base or _base_of(self.frequencies)
        return fit_schedule(_tensor(self.frequencies), base, bounds=_tensor(self.bounds))


def _tensor(values: tuple[float, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _base_of(frequencies: tuple[float, ...]) -> float:
    """The base by the two fastest pairs, right where they are left unscaled."""
    first, second = (*frequencies, *frequencies)[:2]
    return (first / second) ** len(frequencies) if second > 0 and first > second else 10000.0


@dataclass(frozen=True)
class LayerEncoding:
    r"""What one layer applies, or is declared to apply; None is what is not known.

    Args:
        kind: Its family.
        turning: The rotation, if rotary.
        slopes: Logit units lost per position of distance, per head, if linear.
        buckets: How lags share entries of a table, if bucketed.
        relative: The term that depends on lag and content, if there is one.
        mask: Which keys each query sees.
        query_scale: Factor on queries at the last position over that at the first.
        key_scale: The same of keys, which no architecture known here declares.
        sees_future: Whether some query sees a key after it; None where nothing says.
        scale: Factor on dot products of queries and keys as projected.
        softcap: The cap c of logits :math:`c \tanh(x / c)`, 0 for none.
        sinks: Logit per head of a further term in softmax's denominator, empty for none.
        values_vary: Whether values depend on the position.
        normalised_after: Whether queries or keys are normalised after their rotation.
    """

    kind: Kind | None = None
    turning: Turning | None = None
    slopes: tuple[float, ...] | None = None
    buckets: Buckets | None = None
    relative: RelativeTerm | None = None
    mask: Mask | None = None
    query_scale: float | None = None
    key_scale: float | None = None
    sees_future: bool | None = None
    scale: float | None = None
    softcap: float | None = None
    sinks: tuple[float, ...] | None = None
    values_vary: bool | None = None
    normalised_after: bool | None = None

    def describe(self, declared: Turning | None = None) -> str:
        """One line for a table; a rotation is described as declared if it agrees with the declared one."""
        if self.turning is not None:
            turning = self.turning
            part = "" if turning.width == turning.head_dim else f", {turning.fraction:.3g} of width"
            warm = (
                ""
                if turning.gain is None or abs(turning.gain - 1) < 1e-3
                else f", logits × {turning.gain:.4g}"
            )
            rotation = f"rotary, {turning.fit(declared)}{part}{warm}"
            return f"{rotation}; {self._bias or 'another bias'}" if self.kind == "unknown" else rotation
        return self._bias or (str(self.relative) if self.relative else self.kind or "not declared")

    @property
    def _bias(self) -> str:
        """A bias of a known form, in words."""
        if self.slopes is not None:
            return f"linear bias, slopes {self.slopes[0]:.4g} … {self.slopes[-1]:.4g}"
        return "" if self.buckets is None else str(self.buckets)
