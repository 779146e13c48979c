"""Compare two encodings of a layer: declared and effective, or those of two checkpoints."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import pad

from spectrope.checkpoints.audit.catalogue import code_of
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning
from spectrope.checkpoints.audit.rotary import FREQUENCY, fit_schedule, rounded
from spectrope.encodings import geometric

SLOPE = 2e-3  # Likewise of a slope; ALiBi computed in bfloat16 keeps within it.
GAIN = 1e-3
PROGRESSION = 2e-5  # Departure from a geometric progression below which frequencies were not rounded.
LOOKUP = "relative positions"  # Respect in which terms that depend on lag and content differ.
ROUNDING = 2**-7  # Relative rounding of two numbers in bfloat16.


@dataclass(frozen=True)
class Discrepancy:
    """One property in which an expected encoding and the effective one differ.

    Args:
        what: The property.
        expected: Expected value.
        effective: Measured value.
        note: Possible explanation.
        by: Name of the expectation, such as "declared".
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
    """All properties in which a measured encoding differs from the expected one; properties that are None in
    the expected encoding are not compared.

    Args:
        expected: Declared, or measured on another model.
        effective: Measured.
        length: Positions of the measurement.
        noise: Relative rounding error of the model's arithmetic.
    """
    discrepancies = list(mask_findings(expected, effective, length))
    discrepancies += _order(expected.normalised_after, effective.normalised_after)
    if expected.kind is not None and expected.kind != effective.kind:
        if effective.kind == "unknown" and any("norm" in one.what for one in discrepancies):
            return discrepancies  # by which no pairs keep their norms
        return [
            *discrepancies,
            Discrepancy("encoding", expected.describe(), effective.describe(expected.turning)),
        ]
    if expected.turning is not None and effective.turning is not None:
        discrepancies += rotation_findings(expected.turning, effective.turning, length, noise)
    if expected.slopes is not None and effective.slopes is not None:
        discrepancies += _slopes(expected.slopes, effective.slopes, max(SLOPE, noise))
    if expected.buckets is not None and expected.buckets != effective.buckets:
        discrepancies.append(
            Discrepancy("buckets", str(expected.buckets), str(effective.buckets or "none of T5's"))
        )
    if expected.relative is not None and expected.relative != effective.relative:
        discrepancies.append(Discrepancy(LOOKUP, str(expected.relative), str(effective.relative)))
    return [*discrepancies, *_around(expected, effective, noise)]


def _around(expected: LayerEncoding, effective: LayerEncoding, noise: float) -> Iterator[Discrepancy]:
    """What differs around the positional kernel: factors, caps and sinks of logits, and values."""
    grown = [*_growth("query scale", expected.query_scale, effective.query_scale, noise)]
    yield from grown or _scale(expected.scale, effective.scale, noise)  # Queries that grow hide the scale.
    yield from _growth("key scale", expected.key_scale, effective.key_scale, noise)
    yield from _softcap(expected.softcap, effective.softcap)
    yield from _sinks(expected.sinks, effective.sinks, noise)
    wanted, got = expected.values_vary, effective.values_vary
    if wanted is not None and got is not None and wanted != got:
        yield values_differ(wanted)


def values_differ(wanted: bool) -> Discrepancy:
    """That values vary with the position where they should not, or the reverse."""
    words = {False: "the same at every position", True: "varying with the position"}
    return Discrepancy("values", words[wanted], words[not wanted])


def mask_findings(expected: LayerEncoding, effective: LayerEncoding, length: int) -> Iterator[Discrepancy]:
    """Where directions and masks differ.

    If a query attends to future keys contrary to the declaration, windows are determined from its past keys.
    """
    turned = list(_direction(expected, effective))
    yield from turned
    if expected.mask is not None and effective.mask is not None:
        past = effective.mask.past if turned and effective.sees_future else None
        yield from _mask(expected.mask, past or effective.mask, length, ahead=bool(turned))


def _direction(expected: LayerEncoding, effective: LayerEncoding) -> Iterator[Discrepancy]:
    wanted, got = expected.sees_future, effective.sees_future
    words = {False: "past keys alone", True: "past and future keys"}
    if wanted is not None and got is not None and wanted != got:
        ahead = effective.mask.ahead if effective.mask else 0
        note = f"up to {ahead} ahead" if got and ahead else ""
        yield Discrepancy("direction of the mask", words[wanted], words[got], note)


def rotation_findings(
    expected: Turning, effective: Turning, length: int, noise: float
) -> Iterator[Discrepancy]:
    """Where rotations differ; angles that are in no proportion to the position hide how fast they turn."""
    if None not in (expected.pairing, effective.pairing) and expected.pairing != effective.pairing:
        yield Discrepancy("pairing", str(expected.pairing), str(effective.pairing))
    uneven = effective.phase_error > 10 * noise + 8 * 2**-24 * length + expected.phase_error
    if uneven and (effective.positions or effective.rounding):
        yield _uneven(effective)
    else:
        yield from _turning(expected, effective, length, noise)
        if uneven:
            yield _uneven(effective)
    if None in (expected.sense, effective.sense) or expected.sense == effective.sense:
        yield from _first(expected, effective, length)  # which what turns the wrong way does not have
    yield from _gain(expected, effective, noise)


def _first(expected: Turning, effective: Turning, length: int) -> Iterator[Discrepancy]:
    """Where the first token is at another position, in keys or on both sides."""
    if effective.key_offset is not None and (expected.key_offset or 0) != effective.key_offset:
        yield Discrepancy("position of keys", _key_position(expected), _key_position(effective))
    elif effective.position and expected.position == 0 and abs(effective.position) < length - 1:
        note = "harmless: queries and keys are shifted alike"
        yield Discrepancy("first position", str(expected.position), str(effective.position), note)


def _key_position(one: Turning) -> str:
    if not one.key_offset:
        return "that of queries"
    return f"{abs(one.key_offset)} {'ahead of' if one.key_offset > 0 else 'behind'} queries"


def _turning(expected: Turning, effective: Turning, length: int, noise: float) -> Iterator[Discrepancy]:
    """Where direction, coordinates and frequencies differ."""
    turned = None not in (expected.sense, effective.sense) and expected.sense != effective.sense
    if turned and abs(effective.position or 0) == length - 1:
        yield Discrepancy("positions", "those of the tokens", f"count backwards from {length - 1}")
    elif turned:
        yield Discrepancy("sense of rotation", str(expected.sense), _senses(expected, effective))
    if (expected.start, expected.width) != (effective.start, effective.width):
        yield _fraction(expected, effective)
    else:
        if effective.sense == 0 and expected.sense != 0:
            effective = replace(effective, frequencies=tuple(map(abs, effective.frequencies)))
        if off := differing_pairs(expected, effective, length, noise):
            width = _other_width(expected, effective, length, noise)
            yield (
                _frequencies(expected, effective, off)
                if width is None
                else _fraction(expected, replace(effective, width=width))
            )


def _senses(expected: Turning, effective: Turning) -> str:
    """The other sense, or the pairs that turn the other way."""
    if effective.sense:
        return str(effective.sense)
    sign = expected.sense or 1
    others = [j for j, f in enumerate(effective.frequencies) if sign * f < -effective.errors[j]]
    return f"pairs {', '.join(map(str, others))} turn the other way"


def _uneven(effective: Turning) -> Discrepancy:
    """Angles that are in no proportion to the position, by what explains them."""
    if effective.positions:
        return Discrepancy("positions", "those of the tokens", effective.positions)
    note = f"as when computed in low precision: {effective.rounding} rounded" if effective.rounding else ""
    return Discrepancy(
        "angles",
        "in proportion to position",
        f"off by up to {effective.phase_error:.2g} rad",
        note or "no rounding and no other positions explain them",
        residual=effective.phase_error,
    )


def _fraction(expected: Turning, effective: Turning) -> Discrepancy:
    """Another part of the coordinates, or another place of the same part."""
    share, other = (f"{one.fraction:.4g}" for one in (expected, effective))
    if share != other:
        return Discrepancy("rotated fraction", share, other)
    first, second = (
        f"coordinates {one.start} to {one.start + one.width - 1}" for one in (expected, effective)
    )
    return Discrepancy("rotated fraction", first, second)


def _gain(expected: Turning, effective: Turning, noise: float) -> Iterator[Discrepancy]:
    """Where rotated coordinates have another factor: that of the schedule, or one on a single side."""
    if expected.gain is None or effective.gain is None or is_near(expected.gain, effective.gain, noise):
        return
    ratio = effective.gain / expected.gain
    queries, keys = effective.gains or (1.0, 1.0)
    if not is_near(queries, keys, noise) and is_near(expected.gain, 1.0, noise):
        side, factor = ("queries", queries) if is_near(keys, 1.0, noise) else ("keys", keys)
        yield Discrepancy(
            "attention scale", f"{side} as projected", f"{side} times {factor:.5g}", residual=abs(ratio - 1)
        )
        return
    got = f"{effective.gain**0.5:.5g}"
    if not is_near(queries, keys, noise):
        got = f"{queries:.5g} on queries and {keys:.5g} on keys"
    yield Discrepancy("attention factor", f"{expected.gain**0.5:.5g}", got, residual=abs(ratio**0.5 - 1))


def is_near(a: float, b: float, noise: float) -> bool:
    """Whether two measured factors agree up to rounding."""
    return abs(a - b) <= max(GAIN, 2 * noise) * abs(a)


def differing_pairs(expected: Turning, effective: Turning, length: int, noise: float) -> list[int]:
    """Pairs whose frequencies differ by more than `FREQUENCY`, standard errors and what can be resolved."""
    bounds = _bounds(effective, length, noise)
    pairs = zip(expected.frequencies, effective.frequencies, bounds, strict=True)
    return [j for j, (a, b, bound) in enumerate(pairs) if abs(a - b) > FREQUENCY * abs(a) + bound]


def _bounds(effective: Turning, length: int, noise: float) -> list[float]:
    """By how much each measured frequency may be off, in radians per position."""
    uneven = 8 * effective.phase_error / length
    return [max(5 * error, uneven) + 4 * noise / length for error in effective.errors]


def _other_width(expected: Turning, effective: Turning, length: int, noise: float) -> int | None:
    """The rotated width, other than declared, at which the declared schedule gives the frequencies seen.

    Where neighbours turn together, the width shows in the frequencies alone once the slowest pairs turn too
    little to be seen. A base that would explain them as well is the less likely cause.
    """
    if effective.pairing != "adjacent" or expected.base is None or expected.fit().scaling != "none":
        return None
    got = torch.tensor(effective.frequencies, dtype=torch.float64)
    errors = torch.tensor(_bounds(effective, length, noise), dtype=torch.float64)
    for width in range(4, effective.head_dim + 1, 2):
        wanted = geometric(expected.base, width).double()
        missing, more = max(width // 2 - len(got), 0), max(len(got) - width // 2, 0)
        seen, wanted = pad(got, (0, missing)), pad(wanted, (0, more))
        within = FREQUENCY * wanted + pad(errors, (0, missing), value=40 * noise / length)
        if width != expected.width and bool(((seen - wanted).abs() <= within).all()):
            return width
    return None


def _frequencies(expected: Turning, effective: Turning, off: list[int]) -> Discrepancy:
    """Which part of the schedule differs, in words where words suffice."""
    errors = {
        j: abs(effective.frequencies[j] / expected.frequencies[j] - 1) for j in off if expected.frequencies[j]
    }
    worst = max(off, key=lambda j: errors.get(j, math.inf))
    pair = f"pair {worst} at {expected.frequencies[worst]:.5g}"
    got = f"{effective.frequencies[worst]:.5g} rad per position"
    wanted = expected.fit()
    close = fit_schedule(torch.tensor(effective.frequencies), wanted.base, PROGRESSION)
    rounds = close.scaling != "none" or wanted.scaling != "none"
    if rounds and errors.get(worst, math.inf) < ROUNDING:
        return Discrepancy("frequencies", pair, got, "within the rounding of low precision")
    if order := _order_of(expected, effective, off):
        return Discrepancy("frequencies", pair, got, order)
    fit = replace(effective, base=expected.base or wanted.base).fit()
    if fit.scaling == wanted.scaling == "none":
        return Discrepancy("base", rounded(wanted.base), rounded(fit.base))
    is_known = expected.base is not None and fit.scaling != "per pair"  # else slowdowns are against a guess
    if is_known and fit.scaling != wanted.scaling:
        twice = wanted.scaling == "none" and fit.scaling == "linear" and abs(fit.factor - 0.5) < GAIN
        note = "as when the rotation is applied twice" if twice else ""
        return Discrepancy("scaling", str(wanted), str(fit), note)
    return Discrepancy("frequencies", pair, got, f"{len(off)} of {len(expected.frequencies)} pairs")


def _order_of(expected: Turning, effective: Turning, off: list[int]) -> str:
    """Which other order the declared frequencies have, in words; "" if they are others."""
    wanted, got = ([one.frequencies[j] for j in off] for one in (expected, effective))
    bound = max(effective.bounds[j] for j in off)

    def alike(some: list[float], others: list[float]) -> bool:
        return all(abs(a - b) <= FREQUENCY * abs(a) + bound for a, b in zip(some, others, strict=True))

    if len(off) < 2 or not alike(sorted(wanted), sorted(got)):
        return ""
    if len(off) == 2:
        return f"pairs {off[0]} and {off[1]} have each other's"
    whole = len(off) >= len(expected.frequencies) - 1  # One in the middle stays where it is.
    return f"the declared ones in {'reverse' if whole and alike(wanted[::-1], got) else 'another order'}"


def _slopes(
    expected: tuple[float, ...], effective: tuple[float, ...], tolerance: float
) -> Iterator[Discrepancy]:
    """One finding of all heads, or one of each that differs."""
    if len(expected) != len(effective):
        yield Discrepancy("slopes", f"{len(expected)} heads", f"{len(effective)} heads")
        return
    pairs = list(enumerate(zip(expected, effective, strict=True)))
    off = [(head, a, b) for head, (a, b) in pairs if abs(a - b) > tolerance * abs(a)]
    sets = zip(sorted(expected), sorted(effective), strict=True)
    reordered = all(abs(a - b) <= tolerance * abs(a) for a, b in sets)
    note = "the same slopes in another order" if reordered else ""
    if off and len(off) < len(pairs):
        for head, a, b in off:
            residual = abs(b / a - 1)
            yield Discrepancy(
                f"slopes of head {head}", f"{a:.6g}", f"{b:.6g}", note, head=head, residual=residual
            )
    elif off:
        ratios = [b / a for _, a, b in off]
        alike = max(ratios) - min(ratios) <= tolerance * max(map(abs, ratios))
        every = f"heads {', '.join(str(head) for head, _, _ in off)}"
        note = note or (f"all heads, {ratios[0]:.4g} times" if alike else every)
        (head, a, b), residual = off[0], max(abs(ratio - 1) for ratio in ratios)
        yield Discrepancy("slopes", f"{a:.6g} in head {head}", f"{b:.6g}", note, residual=residual)


def rough_lines(off: Mapping[int, float]) -> Iterator[Discrepancy]:
    """Biases that follow a line as if in low precision.

    Args:
        off: By how much each head that departs does so.
    """
    if off:
        worst = max(off, key=lambda head: off[head])
        got = f"off by up to {off[worst]:.2g} in head {worst}"
        note = "as when biases are computed in low precision"
        yield Discrepancy("slopes", "biases in proportion to the distance", got, note)


def _mask(expected: Mask, effective: Mask, length: int, *, ahead: bool) -> Iterator[Discrepancy]:
    """A window that holds the whole sequence is none, and what looks both ways is not declared by size.

    Args:
        expected: As declared.
        effective: As measured; where queries see the future against the declaration, its past half.
        length: Positions of the measurement.
        ahead: Whether directions differ, so that windows are compared on the side that both have.
    """
    if expected.size is not None and expected.size >= length - (expected.shape == "bidirectional window"):
        expected = Mask("unlimited")
    whole = effective.shape in ("causal", "bidirectional")
    if expected.shape == "unlimited" and whole:
        return
    if effective.shape == "bidirectional window" and expected.shape == "causal window":
        return
    one_sided = ahead and expected.shape == "bidirectional window"
    if one_sided and expected.size is not None:
        expected = Mask("causal window", expected.size + 1)
    unlike = expected.shape == effective.shape == "other" and expected.words != effective.words
    if expected != effective or (unlike and expected.words and effective.words):
        first, second = (_of_past(one) if one_sided else one.description for one in (expected, effective))
        yield Discrepancy("mask", first, second)


def _of_past(mask: Mask) -> str:
    """Past keys that a mask shows, in words that do not say how it was declared."""
    if mask.shape == "causal window" and mask.size:
        return f"past keys up to lag {mask.size - 1}"
    return "all past keys" if mask.shape == "causal" else mask.description


def _scale(expected: float | None, effective: float | None, noise: float) -> Iterator[Discrepancy]:
    if expected is None or effective is None or is_near(expected, effective, noise):
        return
    ratio = effective / expected
    note = f"{ratio:.4g} times as large"
    yield Discrepancy("attention scale", f"{expected:.5g}", f"{effective:.5g}", note, residual=abs(ratio - 1))


def _order(expected: bool | None, effective: bool | None) -> Iterator[Discrepancy]:
    words = {False: "the norm first", True: "the rotation first"}
    if None not in (expected, effective) and expected != effective:
        yield Discrepancy("order of norm and rotation", words[bool(expected)], words[bool(effective)])


def _softcap(expected: float | None, effective: float | None) -> Iterator[Discrepancy]:
    if expected is None or effective is None or is_near(expected, effective, 0.0):
        return
    first, second = ("none" if cap == 0 else f"{cap:g}" for cap in (expected, effective))
    yield Discrepancy("cap of logits", first, second)


def _sinks(
    expected: tuple[float, ...] | None, effective: tuple[float, ...] | None, noise: float
) -> Iterator[Discrepancy]:
    if expected is None or effective is None or len(expected) == len(effective) == 0:
        return
    if len(expected) != len(effective):
        first, second = (f"of {len(one)} heads" if one else "none" for one in (expected, effective))
        yield Discrepancy("attention sinks", first, second)
        return
    off = [
        (head, a, b)
        for head, (a, b) in enumerate(zip(expected, effective, strict=True))
        if abs(a - b) > max(GAIN, 4 * noise) * max(abs(a), 1e-3)
    ]
    for head, a, b in off:
        yield Discrepancy(f"attention sinks of head {head}", f"{a:.5g}", f"{b:.5g}", head=head)


def _growth(
    what: str, expected: float | None, effective: float | None, noise: float
) -> Iterator[Discrepancy]:
    wanted, got = expected or 1.0, effective or 1.0
    if not is_near(wanted, got, 5 * noise):
        yield Discrepancy(what, f"grows to {wanted:.5g}", f"grows to {got:.5g}")
