"""Explanations of measured logits: the lookup that stands for lags, or a mistake in it, and factors."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.audit.bias import MAX_DISTANCES, N_BUCKETS, Buckets
from spectrope.checkpoints.audit.compare import GAIN, LOOKUP
from spectrope.checkpoints.audit.relative import Lags, LogBuckets, Lookup, RelativeTerm
from spectrope.checkpoints.audit.relative_parts import Summand, Summands

SIZES = tuple(2**power for power in range(2, 11))  # Of buckets and reaches that are tried.
DEPENDENT = 1e-12  # Share of the largest eigenvalue below which summands are linearly dependent.
SHIFTS = (1, -1, 2, -2)
Where = Callable[[Int[Tensor, " n"]], Int[Tensor, " n"]]


@dataclass(frozen=True, eq=False)
class Logits:
    """Measured logits by lag.

    Args:
        lag: Lags that occur, ascending; several times where pairs of one lag may differ.
        values: The logits of each, by content and head.
    """

    lag: Int[Tensor, " n"]
    values: Float[Tensor, "b h n"]

    def of(self, head: int) -> "Logits":
        """Those of one head."""
        return replace(self, values=self.values[:, head : head + 1])

    @property
    def length(self) -> int:
        """Positions of the sequence."""
        return int(self.lag.abs().max()) + 1

    @property
    def limit(self) -> int:
        """The lag from which on logits of the past no longer change."""
        past = self.values[..., self.lag >= 0]
        least = 1e-4 * (past - past[..., :1]).abs().max()
        moving = (past - past[..., -1:]).abs().amax((0, 1)) > least
        return int(self.lag[self.lag >= 0][moving].max()) + 1 if bool(moving.any()) else 0


@dataclass(frozen=True, eq=False)
class FittedSummands:
    """Summands with the factors that explain logits best.

    Args:
        words: How they depart from the declared ones, "" where they do not.
        ratios: Factor of each summand over the declared one.
        sizes: Largest value of each summand under its declared factor.
        error: Largest logit that is left unexplained.
        what: The respect in which they depart, as a finding's.
        expected: What is declared in that respect; "" stands for the lookup.
        lookup: Another lookup that a configuration could have declared; None where it is none.
    """

    words: str
    ratios: tuple[float, ...]
    sizes: tuple[float, ...]
    error: float
    what: str = LOOKUP
    expected: str = ""
    lookup: Lookup | None = None

    def departs(self, part: int, ratio: float, within: float) -> bool:
        """Whether a summand has another factor than `ratio` times the declared one, beyond rounding."""
        gap = abs(self.ratios[part] - ratio)
        return gap > GAIN and gap * self.sizes[part] > 2 * within


def fits(seen: Logits, parts: Summands, term: RelativeTerm) -> Iterator[FittedSummands]:
    """Explanations of logits, the simplest first.

    Args:
        seen: The logits.
        parts: Their summands.
        term: The relative term as declared.
    """
    declared, usual = parts.declared, term.lookup.of
    every = [usual] * len(declared)
    yield fitted("", declared, every, seen)
    for words, where in _mistakes(term, seen.limit):
        yield from _moved(words, where, declared, term, seen)
    others = [*_others(term, seen.limit, seen.length)]
    for other in others:
        yield replace(fitted(str(other), declared, [other.of] * len(every), seen), lookup=other)
    for other in others:
        yield from _moved(f"{other}, mirrored", lambda lag, of=other.of: of(-lag), declared, term, seen)
    yield from _shifted_keys(seen, declared, term)
    for one in parts.mistakes:
        fit = fitted(one.words, one.parts(), every, seen)
        yield replace(fit, what=one.what, expected=one.expected)


def fitted(words: str, parts: Sequence[Summand], lookups: Sequence[Where], seen: Logits) -> FittedSummands:
    """The factors under which summands explain logits best, in the sense of least squares.

    Of those that explain them as well, they are the nearest to the declared ones.
    """
    values = [
        part.factor * part_values(part, where(seen.lag)) for part, where in zip(parts, lookups, strict=True)
    ]
    sizes = tuple(value.abs().max().item() for value in values)
    rows = torch.stack([value.flatten() for value in values])
    norms = rows.norm(dim=1).clamp(min=1e-300)
    units, wanted = rows / norms[:, None], seen.values.flatten()
    left = wanted - rows.sum(0)
    products = torch.linalg.pinv(units @ units.T, rtol=DEPENDENT, hermitian=True) @ (units @ left)
    ratios = (1 + products / norms).where(torch.tensor(sizes) > 0, 1.0)
    error = (ratios @ rows - wanted).abs().max().item()
    return FittedSummands(words, tuple(ratios.tolist()), sizes, error)


def part_values(part: Summand, at: Int[Tensor, " n"]) -> Float[Tensor, "b h n"]:
    """A summand at relative positions, without its factor."""
    return part.values(at).cpu().expand(-1, -1, len(at))


def _moved(
    words: str, where: Where, parts: Sequence[Summand], term: RelativeTerm, seen: Logits
) -> Iterator[FittedSummands]:
    """Another lookup in all summands, then in single ones where these have tables of their own."""
    usual = [term.lookup.of] * len(parts)
    yield fitted(words, parts, [where] * len(parts), seen)
    if term.table == "sinusoids" or len(term.parts) == 1:
        return
    for n, part in enumerate(parts):
        if part.relative:
            yield fitted(f"{words} in {part.name}", parts, [*usual[:n], where, *usual[n + 1 :]], seen)


def _shifted_keys(seen: Logits, parts: Sequence[Summand], term: RelativeTerm) -> Iterator[FittedSummands]:
    """Keys at other positions than queries: the lags that keys look up are off the other way."""
    if "position to content" not in term.parts:
        return
    for by in SHIFTS:
        count = f"{abs(by)} position{'s' * (abs(by) > 1)}"
        words = f"those of keys {count} {'earlier' if by > 0 else 'later'}"
        signs = [-by if part.name == "position to content" else by for part in parts]
        yield fitted(words, parts, [lambda lag, s=s: term.lookup.of(lag + s) for s in signs], seen)
        sides = ("after", "before") if by > 0 else ("before", "after")
        words = f"the rows {abs(by)} {sides[0]} them, those {abs(by)} {sides[1]} them in position to content"
        yield fitted(words, parts, [lambda lag, s=s: term.lookup.of(lag) + s for s in signs], seen)


def _mistakes(term: RelativeTerm, limit: int) -> Iterator[tuple[str, Where]]:
    """Relative positions that are mistaken for those of the lags, and what they are in words."""
    lookup = term.lookup
    yield "those of the mirrored lags", lambda lag: lookup.of(-lag)
    for by in SHIFTS:
        words = f"those of lags {abs(by)} {'larger' if by > 0 else 'smaller'}"
        yield words, lambda lag, by=by: lookup.of(lag + by)
    if term.table == "sinusoids":
        return
    for by in SHIFTS:
        words = f"the rows {abs(by)} {'after' if by > 0 else 'before'} them"
        yield words, lambda lag, by=by: lookup.of(lag) + by
    if isinstance(lookup, LogBuckets):
        yield f"{lookup}, rounded down", lookup.of_floors
    if isinstance(lookup, Lags) and lookup.ahead is not None:
        shorter, moved = Lags(limit, limit + 1), limit + 1 - lookup.ahead
        yield f"{shorter}, from the first row of the table", lambda lag: shorter.of(lag) + moved


def _others(term: RelativeTerm, limit: int, length: int) -> Iterator[Lookup]:
    """Lookups that a configuration of the family could have declared, or that follow the length."""
    match term.lookup:
        case Lags():
            yield from (Lags(), Lags(limit, limit)) if term.table == "sinusoids" else ()
            yield from (Lags(limit, limit + 1), Lags(limit - 1, limit)) if term.table == "learned" else ()
        case LogBuckets(n, reach):
            yield Lags(n - 1, n)
            sizes, reaches = dict.fromkeys((n, *SIZES)), dict.fromkeys((reach, length, n, *SIZES))
            yield from (LogBuckets(a, b) for a in sizes for b in reaches if b - 1 > a // 2)
        case Buckets(both, n, reach):
            sizes = dict.fromkeys((n, *N_BUCKETS))
            reaches = dict.fromkeys((reach, length, *MAX_DISTANCES))
            for a, b, way in itertools.product(sizes, reaches, (both, not both)):
                yield from (Buckets(way, a, b),) if b > a // (4 if way else 2) else ()
