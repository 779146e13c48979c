"""Explain measured logits by their summands: the relative position that stands for each lag, and factors."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import MAX_DISTANCES, N_BUCKETS, Buckets, lag_table
from spectrope.checkpoints.audit.compare import GAIN, Discrepancy
from spectrope.checkpoints.audit.relative import Lags, LogBuckets, Lookup, RelativeTerm
from spectrope.checkpoints.audit.relative_parts import Part, Parts

ROUNDED = 8  # Rounding errors of the largest summands that logits may be off by.
LEAST = 2**-20  # Rounding error of a long sum in float32.
ANGLES = 2**-22  # Error of an angle computed in float32, over the angle.
SIZES = tuple(2**power for power in range(2, 11))  # Of buckets and reaches that are tried.
SHIFTS = (1, -1, 2, -2)
Where = Callable[[Int[Tensor, " n"]], Int[Tensor, " n"]]


@dataclass(frozen=True, eq=False)
class Logits:
    """Measured logits by lag.

    Args:
        lag: Lags that occur, ascending.
        values: The logits of each, by content and head.
    """

    lag: Int[Tensor, " n"]
    values: Float[Tensor, "b h n"]

    def of(self, head: int) -> "Logits":
        """Those of one head."""
        return replace(self, values=self.values[:, head : head + 1])


@dataclass(frozen=True, eq=False)
class Reading:
    """What a layer's logits are made of.

    Args:
        term: The relative term that they hold; None for none.
        scale: Factor on products of queries and keys; None where it was not found.
        bias: Logits of the first content less those products, with shape (h, i, j).
        findings: Where the relative term departs from the declared one.
    """

    term: RelativeTerm | None
    scale: float | None
    bias: Float[Tensor, "h i j"]
    findings: tuple[Discrepancy, ...]


@dataclass(frozen=True, eq=False)
class _Fit:
    """Summands with the factors that explain the logits best.

    Args:
        words: How the relative positions depart from the declared ones, "" where they do not.
        ratios: Factor of each summand over the declared one.
        sizes: Largest value of each summand under its declared factor.
        error: Largest logit that is left unexplained.
        what: The respect in which they depart from the declared ones.
        expected: What is declared in that respect; "" stands for the lookup.
    """

    words: str
    ratios: tuple[float, ...]
    sizes: tuple[float, ...]
    error: float
    what: str = "relative positions"
    expected: str = ""

    def departs(self, part: int, ratio: float, within: float) -> bool:
        """Whether a summand has another factor than `ratio` times the declared one, beyond rounding."""
        gap = abs(self.ratios[part] - ratio)
        return gap > GAIN and gap * self.sizes[part] > 2 * within


def read_logits(call: Call, parts: Parts, term: RelativeTerm, noise: float) -> Reading:
    """Explain the logits of constant content by the declared summands, or by mistakes in them.

    Args:
        call: Of the layer's kernel, which shows its logits.
        parts: Their summands.
        term: The relative term as declared.
        noise: Relative rounding error of the model's arithmetic.
    """
    products = call.products()[0].double()
    seen = _by_lag(call, noise)
    if call.logits is None or seen is None:
        text = "logits that differ at equal lags"
        logits = products if call.logits is None else call.logits[0].double()
        found = (Discrepancy("relative term", str(term), text),)
        return Reading(replace(term, words="other logits"), None, logits, found)
    return _reading(call, *_explained(seen, parts, term, noise), _content(parts.declared, seen.lag)[0])


def _reading(
    call: Call,
    scale: float | None,
    findings: list[Discrepancy],
    term: RelativeTerm | None,
    products: Float[Tensor, " h"],
) -> Reading:
    assert call.logits is not None
    logits = call.logits[0].double().masked_fill(~call.allowed[0], 0.0)
    return Reading(term, scale, logits - (scale or 0.0) * products[:, None, None], tuple(findings))


def _by_lag(call: Call, noise: float) -> Logits | None:
    """Logits by content, head and lag; None where equal lags get unequal ones."""
    if call.logits is None:
        return None
    b, h = call.logits.shape[:2]
    found = lag_table(call.logits.flatten(0, 1).double(), call.allowed[0, :1], noise)
    return None if found is None else Logits(found[0], found[1].unflatten(0, (b, h)))


def _content(parts: Sequence[Part], lag: Int[Tensor, " n"]) -> Float[Tensor, "b h"]:
    """Products of queries and keys without their factor."""
    return parts[0].values(lag[:1])[..., 0].cpu()


def _explained(
    seen: Logits, parts: Parts, term: RelativeTerm, noise: float
) -> tuple[float | None, list[Discrepancy], RelativeTerm | None]:
    """The factor on products, findings, and the term that the logits hold."""
    declared, content = parts.declared, parts.declared[0].factor
    plain = [_values(part, term.lookup.of(seen.lag)) for part in declared]
    within = _rounding(plain, declared, seen, noise, term)
    whole = sum(part.factor * value for part, value in zip(declared, plain, strict=True))
    wrong = ((seen.values - whole).abs() > within).any(-1).any(0)
    if not bool(wrong.any()):
        return content, [], term
    for fit in _fits(seen, parts, term):
        if fit.error <= within:
            scale = content * (fit.ratios[0] if fit.departs(0, 1.0, within) else 1.0)
            if not any(fit.departs(n, 0.0, within) for n, part in enumerate(declared) if part.relative):
                return scale, [], None
            return scale, _findings(fit, declared, term, within), replace(term, words=fit.words)
    off = wrong.nonzero().flatten().tolist()
    if len(off) == len(wrong):
        return None, [_unexplained(seen, whole, term)], replace(term, words="other logits")
    findings = [one for head in off for one in _of_head(head, seen, parts, term, whole, within)]
    return content, findings, term


def _values(part: Part, at: Int[Tensor, " n"]) -> Float[Tensor, "b h n"]:
    return part.values(at).cpu().expand(-1, -1, len(at))


def _rounding(
    values: Sequence[Tensor], parts: Sequence[Part], seen: Logits, noise: float, term: RelativeTerm
) -> float:
    """By how much rounding may move a logit."""
    sizes = [part.factor * value.abs().max().item() for part, value in zip(parts, values, strict=True)]
    angles = ANGLES * seen.lag.abs().max().item() if term.table == "sinusoids" else 0.0
    return (ROUNDED * max(noise, LEAST) + angles) * max(sum(sizes), 1e-30)


def _fits(seen: Logits, parts: Parts, term: RelativeTerm) -> Iterator[_Fit]:
    """Explanations of the logits, the simplest first."""
    yield _fit("", parts.declared, [term.lookup.of] * len(parts.declared), seen)
    relative = [n for n, part in enumerate(parts.declared) if part.relative]
    usual = [term.lookup.of] * len(parts.declared)
    for words, where in _other_lookups(seen, term):
        yield _fit(words, parts.declared, [where] * len(usual), seen)
        for n in relative if len(term.parts) > 1 and term.table == "learned" else []:
            about = f"{words} in {parts.declared[n].name}"
            yield _fit(about, parts.declared, [*usual[:n], where, *usual[n + 1 :]], seen)
    yield from _shifted_keys(seen, parts, term)
    for one in parts.mistakes:
        fit = _fit(one.words, one.parts, [term.lookup.of] * len(one.parts), seen)
        yield replace(fit, what=one.what, expected=one.expected)


def _shifted_keys(seen: Logits, parts: Parts, term: RelativeTerm) -> Iterator[_Fit]:
    """Keys at other positions than queries: their own lags are then off the other way."""
    if "position to content" not in term.parts:
        return
    for by in SHIFTS:
        ahead = f"those of keys {abs(by)} position{'s' * (abs(by) > 1)} {'earlier' if by > 0 else 'later'}"
        signs = [-by if part.name == "position to content" else by for part in parts.declared]
        yield _fit(ahead, parts.declared, [lambda lag, s=s: term.lookup.of(lag + s) for s in signs], seen)


def _fit(words: str, parts: Sequence[Part], lookups: Sequence[Where], seen: Logits) -> _Fit:
    values = [
        part.factor * _values(part, where(seen.lag)) for part, where in zip(parts, lookups, strict=True)
    ]
    sizes = tuple(value.abs().max().item() for value in values)
    columns = torch.stack([value.flatten() for value in values], 1)
    ratios = torch.linalg.lstsq(columns, seen.values.reshape(-1, 1), driver="gelsd").solution[:, 0]
    ratios = ratios.where(torch.tensor(sizes) > 0, 1.0)
    error = (columns @ ratios - seen.values.flatten()).abs().max().item()
    return _Fit(words, tuple(ratios.tolist()), sizes, error)


def _other_lookups(seen: Logits, term: RelativeTerm) -> Iterator[tuple[str, Where]]:
    """Relative positions that are mistaken for those of the lags, and what they are in words."""
    lookup = term.lookup
    yield "those of the mirrored lags", lambda lag: lookup.of(-lag)
    for by in SHIFTS:
        words = f"those of lags {abs(by)} {'larger' if by > 0 else 'smaller'}"
        yield words, lambda lag, by=by: lookup.of(lag + by)
    if term.table == "learned":
        for by in SHIFTS:
            words = f"the rows {abs(by)} {'after' if by > 0 else 'before'} them"
            yield words, lambda lag, by=by: lookup.of(lag) + by
    limit = _limit(seen)
    length = int(seen.lag.abs().max()) + 1
    for other in _other_kinds(lookup, limit, length, sinusoidal=term.table == "sinusoids"):
        yield str(other), other.of
        yield f"{other}, mirrored", lambda lag, other=other: other.of(-lag)
    if term.table == "learned" and isinstance(lookup, Lags) and lookup.ahead is not None:
        shorter, by = Lags(limit, limit + 1), limit + 1 - lookup.ahead
        yield f"{shorter}, from the first row of the table", lambda lag: shorter.of(lag) + by


def _other_kinds(lookup: Lookup, limit: int, length: int, *, sinusoidal: bool) -> Iterator[Lookup]:
    """Lookups that a configuration of the family could have declared instead, or that follow the length."""
    if isinstance(lookup, Lags) and sinusoidal:
        yield from (Lags(), Lags(limit, limit))
    elif isinstance(lookup, Lags):
        yield from (Lags(limit, limit + 1), Lags(limit - 1, limit))
    elif isinstance(lookup, LogBuckets):
        n, reach = lookup.n_buckets, lookup.max_distance
        yield Lags(n - 1, n)
        sizes, reaches = dict.fromkeys((n, *SIZES)), dict.fromkeys((reach, length, n, *SIZES))
        yield from (LogBuckets(a, b) for a in sizes for b in reaches if b - 1 > a // 2)
    elif isinstance(lookup, Buckets):
        sizes = dict.fromkeys((lookup.n_buckets, *N_BUCKETS))
        reaches = dict.fromkeys((lookup.max_distance, length, *MAX_DISTANCES))
        for a, b, both in itertools.product(sizes, reaches, (lookup.bidirectional, not lookup.bidirectional)):
            yield from [Buckets(both, a, b)] if b > a // (4 if both else 2) else []


def _limit(seen: Logits) -> int:
    """The lag from which on logits of the past no longer change."""
    past = seen.values[..., seen.lag >= 0]
    gaps = (past - past[..., -1:]).abs().amax((0, 1)) > 1e-4 * (past - past[..., :1]).abs().max()
    return int(gaps.nonzero().max()) + 1 if bool(gaps.any()) else 0


def _findings(fit: _Fit, parts: Sequence[Part], term: RelativeTerm, within: float) -> list[Discrepancy]:
    """What an explanation of the logits departs from the declared one in."""
    about = fit.expected or str(term.lookup)
    findings = [Discrepancy(fit.what, about, fit.words)] if fit.words else []
    usual = fit.ratios[0] if fit.departs(0, 1.0, within) else 1.0
    for n, (part, ratio) in enumerate(zip(parts, fit.ratios, strict=True)):
        if n == 0 or not (fit.departs(n, usual, within) and fit.departs(n, 1.0, within)):
            continue
        text = f"{ratio:.4g} times it"
        for words, whole in (("none", 0.0), ("its negative", -1.0)):
            text = text if fit.departs(n, whole, within) else words
        residual = abs(ratio - 1)
        what = f"relative term, {part.name}"
        findings.append(Discrepancy(what, f"{part.factor:.5g} times the product", text, residual=residual))
    return findings


def _unexplained(seen: Logits, whole: Tensor, term: RelativeTerm) -> Discrepancy:
    off = (seen.values - whole).abs().max().item()
    return Discrepancy("relative term", str(term), f"logits off by up to {off:.3g}")


def _of_head(
    head: int, seen: Logits, parts: Parts, term: RelativeTerm, whole: Tensor, within: float
) -> Iterator[Discrepancy]:
    """The findings of one head."""
    alone, own = seen.of(head), Parts(_heads(parts.declared, head), [])
    for fit in _fits(alone, own, term):
        if fit.error <= within:
            found = _findings(fit, own.declared, term, within)
            if fit.departs(0, 1.0, within):
                text = f"{fit.ratios[0]:.4g} times as large"
                found.append(
                    Discrepancy("attention scale", "as of other heads", text, residual=abs(fit.ratios[0] - 1))
                )
            yield from (replace(one, what=f"{one.what} of head {head}", head=head) for one in found)
            return
    one = _unexplained(alone, whole[:, head : head + 1], term)
    yield replace(one, what=f"relative term of head {head}", head=head)


def _heads(parts: Sequence[Part], head: int) -> list[Part]:
    """Summands of one head."""
    return [replace(part, values=lambda at, part=part: part.values(at)[:, head : head + 1]) for part in parts]
