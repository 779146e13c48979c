"""Explain measured logits by their summands: the relative position that stands for each lag, and factors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.bias import lag_table
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.places import Places
from spectrope.checkpoints.audit.relative import RelativeTerm
from spectrope.checkpoints.audit.relative_mistakes import FittedSummands, Logits, fits, part_values
from spectrope.checkpoints.audit.relative_parts import Summand, Summands

ROUNDED = 8  # Rounding errors of the largest summands that logits may be off by.
LEAST = 2**-20  # Rounding error of a long sum in float32.
ANGLES = 2**-22  # Error of an angle computed in float32, over the angle.


@dataclass(frozen=True, eq=False)
class Reading:
    """What a layer's logits are made of.

    Args:
        term: The relative term that they hold; None for none.
        scale: Factor on products of queries and keys; None where it was not found.
        findings: Where the relative term departs from the declared one.
    """

    term: RelativeTerm | None
    scale: float | None
    findings: tuple[Discrepancy, ...]


def read_logits(
    call: Call, parts: Summands, term: RelativeTerm, noise: float, places: Places | None = None
) -> Reading:
    """Explain the logits of constant content by the declared summands, or by mistakes in them.

    Args:
        call: Of the layer's kernel, which shows its logits.
        parts: Their summands.
        term: The relative term as declared.
        noise: Relative rounding error of the model's arithmetic.
        places: Positions of queries and keys, where they are not those of the tokens.
    """
    seen = _by_lag(call, noise, places)
    if seen is None:
        found = (Discrepancy("relative term", str(term), "logits that differ at equal lags"),)
        return Reading(replace(term, words="other logits"), None, found)
    scale, findings, held = explained(seen, parts, term, noise)
    return Reading(held, scale, tuple(findings))


def _by_lag(call: Call, noise: float, places: Places | None) -> Logits | None:
    """Logits by content, head and lag; None where equal lags get unequal ones."""
    if call.logits is None:
        return None
    b, h = call.logits.shape[:2]
    allowed, lag = call.allowed[0, :1], None
    if places is not None:
        allowed, lag = allowed & places.related, places.lag
    found = lag_table(call.logits.flatten(0, 1), allowed, noise, lag)
    return None if found is None else Logits(found[0], found[1].unflatten(0, (b, h)))


def explained(
    seen: Logits, parts: Summands, term: RelativeTerm, noise: float
) -> tuple[float | None, list[Discrepancy], RelativeTerm | None]:
    """The factor on products, findings, and the term that the logits hold."""
    declared, content = parts.declared, parts.declared[0].factor
    plain = [part_values(part, term.lookup.of(seen.lag)) for part in declared]
    within = _rounding(plain, declared, seen, noise, term)
    whole = torch.stack([part.factor * value for part, value in zip(declared, plain, strict=True)]).sum(0)
    wrong = ((seen.values - whole).abs() > within).any(-1).any(0)
    if not bool(wrong.any()):
        return content, [], term
    for fit in fits(seen, parts, term):
        if fit.error <= within:
            scale = content * (fit.ratios[0] if fit.departs(0, 1.0, within) else 1.0)
            if not any(fit.departs(n, 0.0, within) for n, part in enumerate(declared) if part.relative):
                return scale, [], None
            lookup, words = fit.lookup or term.lookup, "" if fit.lookup else fit.words
            seen_term = replace(term, lookup=lookup, words=words)
            return scale, _findings(fit, declared, term, within), seen_term
    off = wrong.nonzero().flatten().tolist()
    if len(off) == len(wrong):
        return None, [_unexplained(seen, whole, term)], replace(term, words="other logits")
    findings = [one for head in off for one in _of_head(head, seen, parts, term, whole, within)]
    return content, findings, term


def _rounding(
    values: Sequence[Tensor], parts: Sequence[Summand], seen: Logits, noise: float, term: RelativeTerm
) -> float:
    """By how much rounding may move a logit."""
    sizes = [part.factor * value.abs().max().item() for part, value in zip(parts, values, strict=True)]
    angles = ANGLES * seen.lag.abs().max().item() if term.table == "sinusoids" else 0.0
    return (ROUNDED * max(noise, LEAST) + angles) * max(sum(sizes), 1e-30)


def _findings(
    fit: FittedSummands, parts: Sequence[Summand], term: RelativeTerm, within: float
) -> list[Discrepancy]:
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
    head: int, seen: Logits, parts: Summands, term: RelativeTerm, whole: Tensor, within: float
) -> Iterator[Discrepancy]:
    """The findings of one head."""
    alone, own = seen.of(head), Summands(_heads(parts.declared, head), [])
    for fit in fits(alone, own, term):
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


def _heads(parts: Sequence[Summand], head: int) -> list[Summand]:
    """Summands of one head."""
    return [replace(part, values=lambda at, part=part: part.values(at)[:, head : head + 1]) for part in parts]
