"""Where two encodings of a layer differ: declared and effective, or those of two checkpoints."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spectrope.checkpoints.audit.catalogue import code_of
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning
from spectrope.checkpoints.audit.rotary import rounded

FREQUENCY = 1e-4  # Relative error of a frequency beyond which it differs.
SLOPE = 2e-3  # Likewise of a slope; ALiBi computed in bfloat16 keeps within it.
GAIN = 1e-3
ROUNDING = 2**-7  # Relative rounding of two numbers in bfloat16.
COARSE = 2**-8  # Radians per position that rounding an angle to bfloat16 costs at most, in the fastest pair.


@dataclass(frozen=True)
class Discrepancy:
    """One respect in which an expected encoding and the effective one differ.

    Args:
        what: The respect.
        expected: What was expected in it.
        effective: What was measured.
        note: What it looks like.
        by: How the expectation is called.
        head: Query head, or key-value head where `what` says so; None for a whole layer.
        residual: Largest relative departure, where it is a number.
    """

    what: str
    expected: str
    effective: str
    note: str = ""
    by: str = "declared"
    head: int | None = None
    residual: float | None = None

    @property
    def code(self) -> str:
        """Of the catalogue."""
        return code_of(self.what)

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.what}: {self.expected} {self.by}, {self.effective} effective{note}"


def compare(
    expected: LayerEncoding, effective: LayerEncoding, length: int, noise: float
) -> list[Discrepancy]:
    """Every respect in which a measured encoding departs from the one expected; None in it is not compared.

    Args:
        expected: Declared, or measured on another model.
        effective: Measured.
        length: Positions of the measurement.
        noise: Relative rounding error of the model's arithmetic.
    """
    discrepancies = list(_direction(expected.sees_future, effective.sees_future))
    if expected.kind is not None and expected.kind != effective.kind:
        return [*discrepancies, Discrepancy("encoding", expected.describe(), effective.describe())]
    if expected.turning is not None and effective.turning is not None:
        discrepancies += rotation_findings(expected.turning, effective.turning, length, noise)
    if expected.slopes is not None and effective.slopes is not None:
        discrepancies += _slopes(expected.slopes, effective.slopes, max(SLOPE, noise))
    if expected.buckets is not None and expected.buckets != effective.buckets:
        discrepancies.append(
            Discrepancy("buckets", str(expected.buckets), str(effective.buckets or "none of T5's"))
        )
    if expected.mask is not None and effective.mask is not None:
        discrepancies += _mask(expected.mask, effective.mask, length)
    discrepancies += _query_scale(expected.query_scale, effective.query_scale, noise)
    return discrepancies


def _direction(expected: bool | None, effective: bool | None) -> Iterator[Discrepancy]:
    words = {False: "past keys alone", True: "past and future keys"}
    if expected is not None and effective is not None and expected != effective:
        yield Discrepancy("direction of the mask", words[expected], words[effective])


def rotation_findings(
    expected: Turning, effective: Turning, length: int, noise: float
) -> Iterator[Discrepancy]:
    if (
        expected.pairing is not None
        and effective.pairing is not None
        and expected.pairing != effective.pairing
    ):
        yield Discrepancy("pairing", expected.pairing, effective.pairing)
    if expected.sense is not None and effective.sense is not None and expected.sense != effective.sense:
        yield Discrepancy("sense of rotation", str(expected.sense), str(effective.sense))
    if effective.positions:
        yield Discrepancy("positions", "those of the tokens", effective.positions)
        return
    if effective.key_offset:
        way = "ahead of" if effective.key_offset > 0 else "behind"
        yield Discrepancy("position of keys", "that of queries", f"{abs(effective.key_offset)} {way} queries")
    if (expected.start, expected.width) != (effective.start, effective.width):
        yield Discrepancy("rotated fraction", f"{expected.fraction:.4g}", f"{effective.fraction:.4g}")
    elif off := differing_pairs(expected, effective, length, noise):
        yield _frequencies(expected, effective, off)
    bound = 10 * noise + 8 * 2**-24 * length
    if effective.phase_error > bound + expected.phase_error:
        yield Discrepancy(
            "angles",
            "in proportion to position",
            f"off by up to {effective.phase_error:.2g} rad",
            "as when computed in low precision" if effective.phase_error <= COARSE * length else "",
        )
    if (
        expected.gain is not None
        and effective.gain is not None
        and not _near(expected.gain, effective.gain, noise)
    ):
        yield Discrepancy("attention factor", f"{expected.gain**0.5:.5g}", f"{effective.gain**0.5:.5g}")


def _near(a: float, b: float, noise: float) -> bool:
    return abs(a - b) <= max(GAIN, 10 * noise) * abs(a)


def differing_pairs(expected: Turning, effective: Turning, length: int, noise: float) -> list[int]:
    """Pairs whose frequencies differ by more than `FREQUENCY`, standard errors and what can be resolved."""
    bounds = [5 * error + 4 * noise / length for error in effective.errors]
    pairs = zip(expected.frequencies, effective.frequencies, bounds, strict=True)
    return [j for j, (a, b, bound) in enumerate(pairs) if abs(a - b) > FREQUENCY * abs(a) + bound]


def _frequencies(expected: Turning, effective: Turning, off: list[int]) -> Discrepancy:
    """Which part of the schedule differs, in words where words suffice."""
    errors = {
        j: abs(effective.frequencies[j] / expected.frequencies[j] - 1) for j in off if expected.frequencies[j]
    }
    worst = max(off, key=lambda j: errors.get(j, math.inf))
    pair = f"pair {worst} at {expected.frequencies[worst]:.5g}"
    got = f"{effective.frequencies[worst]:.5g} rad per position"
    if errors.get(worst, math.inf) < ROUNDING:
        return Discrepancy("frequencies", pair, got, "within the rounding of bfloat16")
    wanted = expected.fit()
    fit = effective.fit(expected.base or wanted.base)
    if fit.scaling == wanted.scaling == "none":
        return Discrepancy("base", rounded(wanted.base), rounded(fit.base))
    is_known = expected.base is not None and fit.scaling != "per pair"  # else slowdowns are against a guess
    if is_known and fit.scaling != wanted.scaling:
        return Discrepancy("scaling", str(wanted), str(fit))
    return Discrepancy("frequencies", pair, got, f"{len(off)} of {len(expected.frequencies)} pairs")


def _slopes(
    expected: tuple[float, ...], effective: tuple[float, ...], tolerance: float
) -> Iterator[Discrepancy]:
    pairs = list(zip(expected, effective, strict=True))
    off = [head for head, (a, b) in enumerate(pairs) if abs(a - b) > tolerance * abs(a)]
    if off:
        sets = zip(sorted(expected), sorted(effective), strict=True)
        reordered = all(abs(a - b) <= tolerance * abs(a) for a, b in sets)
        note = "the same slopes in another order" if reordered else f"heads {', '.join(map(str, off))}"
        a, b = pairs[off[0]]
        yield Discrepancy(
            "slopes", f"{a:.6g} in head {off[0]}", f"{b:.6g}", note, head=off[0], residual=abs(b / a - 1)
        )


def _mask(expected: Mask, effective: Mask, length: int) -> Iterator[Discrepancy]:
    """A window that holds the whole sequence is none, and what looks both ways is not declared by size."""
    if expected.size is not None and expected.size >= length:
        expected = Mask("unlimited")
    whole = effective.shape in ("causal", "bidirectional")
    if expected.shape == "unlimited" and whole:
        return
    if effective.shape == "bidirectional window" and expected.shape == "causal window":
        return
    if expected != effective:
        yield Discrepancy("mask", str(expected), str(effective))


def _query_scale(expected: float | None, effective: float | None, noise: float) -> Iterator[Discrepancy]:
    wanted, got = expected or 1.0, effective or 1.0
    if not _near(wanted, got, noise):
        yield Discrepancy("query scale", f"grows to {wanted:.5g}", f"grows to {got:.5g}")
