"""The encoding of one layer, measured or declared, under one description that can be compared."""

from dataclasses import dataclass
from typing import Literal

import torch

from spectrope.checkpoints.audit.bias import Buckets
from spectrope.checkpoints.audit.mask import Mask
from spectrope.checkpoints.audit.schedule import Fit, fit_schedule
from spectrope.encodings.pairs import Pairing

Kind = Literal["none", "rotary", "linear bias", "bucketed bias", "lag bias", "unknown"]


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

    @property
    def fraction(self) -> float:
        """Share of the coordinates that turn."""
        return self.width / self.head_dim

    def fit(self, base: float | None = None) -> Fit:
        """The schedule in words.

        Args:
            base: To measure slowdowns against where the frequencies are in no progression; None takes the own
                one, or that by which the second pair is slower than the first.
        """
        own = self.base or _base_of(self.frequencies)
        return fit_schedule(torch.tensor(self.frequencies, dtype=torch.float64), base or own)


def _base_of(frequencies: tuple[float, ...]) -> float:
    """The base by the two fastest pairs, right where they are left unscaled."""
    first, second = (*frequencies, *frequencies)[:2]
    return (first / second) ** len(frequencies) if second > 0 and first > second else 10000.0


@dataclass(frozen=True)
class LayerEncoding:
    """What one layer applies, or is declared to apply; None is what is not known.

    Args:
        kind: Its family.
        turning: The rotation, if rotary.
        slopes: Logit units lost per position of distance, per head, if linear.
        buckets: How lags share entries of a table, if bucketed.
        mask: Which keys each query sees.
        query_scale: Factor on queries at the last position over that at the first.
    """

    kind: Kind | None = None
    turning: Turning | None = None
    slopes: tuple[float, ...] | None = None
    buckets: Buckets | None = None
    mask: Mask | None = None
    query_scale: float | None = None

    def describe(self, base: float | None = None) -> str:
        """One line for a table; `base` is what slowdowns are measured against."""
        if self.turning is not None:
            turning = self.turning
            part = "" if turning.width == turning.head_dim else f", {turning.fraction:.3g} of width"
            warm = (
                ""
                if turning.gain is None or abs(turning.gain - 1) < 1e-3
                else f", logits × {turning.gain:.4g}"
            )
            return f"rotary, {turning.fit(base)}{part}{warm}"
        if self.slopes is not None:
            return f"linear bias, slopes {self.slopes[0]:.4g} … {self.slopes[-1]:.4g}"
        return str(self.buckets) if self.buckets is not None else self.kind or "not declared"
