"""Find the query heads and key-value heads that deviate from the declaration."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from spectrope.checkpoints.adapters import Call
from spectrope.checkpoints.audit.compare import (
    Discrepancy,
    is_near,
    mask_findings,
    rotation_findings,
    values_differ,
)
from spectrope.checkpoints.audit.encoding import LayerEncoding, Turning, describe_mask
from spectrope.checkpoints.audit.sides import HeadSide, Place, Sides
from spectrope.checkpoints.audit.turning import turning_of, varies

ORDER = "heads of"  # Begins the respect in which heads differ from those projected.

POOLED = frozenset(
    (
        "encoding",
        "pairing",
        "sense of rotation",
        "rotated fraction",
        "base",
        "scaling",
        "frequencies",
        "angles",
        "positions",
    )
)

BACKWARDS = "SPE107"


def by_head(
    findings: list[Discrepancy], sides: Sides, declared: Turning | None, length: int, noise: float
) -> list[Discrepancy]:
    """A layer's findings, with those of single heads in the place of what all heads together show.

    Where every head of both sides departs, the finding is the layer's and stays as it is.

    Args:
        findings: Of all heads together.
        sides: What each head does.
        declared: The rotation declared; None for a layer without one.
        length: Positions of the measurement.
        noise: Relative rounding error of the model's arithmetic.
    """
    grouped = len(sides.side("keys")) < len(sides.side("queries"))
    if declared is not None:
        findings = _starts(_turns(findings, sides, declared, length, noise), sides, grouped)
    return [*findings, *_factors(sides, noise, grouped)]


def _turns(
    findings: list[Discrepancy], sides: Sides, declared: Turning, length: int, noise: float
) -> list[Discrepancy]:
    """Heads that turn otherwise than declared."""
    telling = {place: one for place, one in sides.of.items() if bool(one.x.any())}  # Others were pruned.
    by_place = {place: _head(one, declared, length, noise) for place, one in telling.items()}
    wrong = {place: one for place, one in by_place.items() if one is not None}
    if not wrong or len(wrong) == len(by_place):
        return findings
    rest = [finding for finding in findings if finding.what not in POOLED]
    for side in ("queries", "keys"):
        own = [one for (of, _), one in wrong.items() if of == side]
        if own and len(own) == sum(of == side for of, _ in by_place):
            return [*rest, replace(own[0], what=f"{own[0].what} of {side} alone", head=None)]
    grouped = len(sides.side("keys")) < len(sides.side("queries"))
    return [*rest, *(_named(place, one, grouped) for place, one in wrong.items())]


def _named(place: Place, finding: Discrepancy, grouped: bool) -> Discrepancy:
    side, head = place
    return replace(finding, what=f"{finding.what} of {side} of {owner(place, grouped)}", head=head)


def owner(place: Place, grouped: bool) -> str:
    """What a head of one side is called, where key-value heads may be fewer."""
    side, head = place
    return f"{'key-value head' if side == 'keys' and grouped else 'head'} {head}"


def _head(one: HeadSide, declared: Turning, length: int, noise: float) -> Discrepancy | None:
    """The first respect in which one head departs from the rotation declared, if it does."""
    if one.rotation is None:
        return Discrepancy(
            "rotation", "as of the layer", "of no known layout" if varies(one.x, noise) else "none"
        )
    turning = turning_of(one.x, one.rotation, declared, noise)
    about = rotation_findings(replace(declared, gain=None), turning, length, noise)
    return next((finding for finding in about if finding.what in POOLED), None)


def _starts(findings: list[Discrepancy], sides: Sides, grouped: bool) -> list[Discrepancy]:
    """Findings with the heads whose first position is not that of most queries, unless all keys share it.

    What turns the wrong way has no first position.
    """
    if any(finding.code == BACKWARDS for finding in findings):
        return findings
    usual = sides.start("queries")
    places = {
        place: one.rotation.position
        for place, one in sides.of.items()
        if one.rotation is not None and one.rotation.position is not None
    }
    off = {place: start - usual for place, start in places.items() if usual is not None and start != usual}
    keys = [start for (side, _), start in places.items() if side == "keys"]
    if not off or (len(set(keys)) == 1 and all(side == "keys" for side, _ in off)):
        return findings
    rest = [finding for finding in findings if finding.what != "position of keys"]
    return [*rest, *(_shifted(place, by, grouped) for place, by in off.items())]


def _shifted(place: Place, by: int, grouped: bool) -> Discrepancy:
    way, (side, head) = "ahead of" if by > 0 else "behind", place
    text = f"{abs(by)} {way} it"
    found = Discrepancy("position of keys", "that of most queries", text, head=head)
    return replace(found, what=f"position of {side} of {owner(place, grouped)}")


def _factors(sides: Sides, noise: float, grouped: bool) -> Iterator[Discrepancy]:
    """Heads that are multiplied by another factor than most of their side."""
    for place, one in sides.of.items():
        usual = sides.gains[place[0]]
        if usual is None or one.gain is None or is_near(usual, one.gain, noise):
            continue
        ratio = one.gain / usual
        text = f"{ratio:.4g} times as large"
        yield _named(
            place,
            Discrepancy("attention scale", "as of other heads", text, residual=abs(ratio - 1)),
            grouped,
        )


def values_by_head(
    findings: list[Discrepancy], call: Call, wanted: bool | None, noise: float
) -> list[Discrepancy]:
    """A layer's findings, with those of single heads where the values of some heads alone are wrong."""
    if call.v is None or wanted is None:
        return findings
    heads = range(call.v.shape[1])
    wrong = [head for head in heads if varies(call.v[:, head : head + 1].double(), noise) != wanted]
    if len(wrong) == len(heads):
        return findings
    rest, grouped = [one for one in findings if one.what != "values"], len(heads) < call.q.shape[1]
    found = values_differ(wanted)
    places = ((head, owner(("keys", head), grouped)) for head in wrong)
    return [*rest, *(replace(found, what=f"values of {name}", head=head) for head, name in places)]


def masks_by_head(
    findings: list[Discrepancy], call: Call, declared: LayerEncoding, length: int
) -> list[Discrepancy]:
    """A layer's findings, with those of single heads in the place of a mask that heads do not share.

    Args:
        findings: Of all heads together.
        call: Whose mask has one head, or one per query head.
        declared: The layer's declaration.
        length: Positions of the measurement.
    """
    heads = call.allowed.shape[1]
    if heads == 1 or bool((call.allowed == call.allowed[:, :1]).all()):
        return findings
    rest = [finding for finding in findings if finding.what not in ("mask", "direction of the mask")]
    return [*rest, *_masks(call.allowed, declared, length)]


def _masks(allowed: Any, declared: LayerEncoding, length: int) -> Iterator[Discrepancy]:
    for head in range(allowed.shape[1]):
        part = allowed[:, head : head + 1]
        seen = LayerEncoding(mask=describe_mask(part), sees_future=bool(part.triu(1).any()))
        for finding in mask_findings(declared, seen, length):
            yield replace(finding, what=f"{finding.what} in head {head}", head=head)


def order_findings(sides: Sides) -> Iterator[Discrepancy]:
    """Sides whose heads are not the projected ones in their order.

    Each head of the queries should be there once; those of the keys may be repeated in runs of one length.
    """
    for side in ("queries", "keys"):
        order = sides.order(side)
        again = [[head for head, one in enumerate(order) if one == of] for of in sorted({*order})]
        repeated = [heads for heads in again if len(heads) > 1]
        uneven = len({*map(len, again)}) > 1 or (bool(repeated) and side == "queries")
        if order == sorted(order) and (not uneven or sides.alike(side)):
            continue
        if repeated:
            runs = ", or in runs" if side == "keys" else ""
            got = " and ".join(f"one projected head in heads {_listed(heads)}" for heads in repeated)
            yield Discrepancy(f"{ORDER} {side}", f"each projected head once{runs}", got)
        else:
            note = "numbers of the heads as projected"
            yield Discrepancy(f"{ORDER} {side}", _listed(sorted(order)), _listed(order), note)


def _listed(heads: Sequence[int]) -> str:
    return ", ".join(map(str, heads))
