r"""What lies between projections and rotated vectors, where these are no multiples of those.

Coordinate d of a head's first vector for content b is :math:`x_{bd} = n_b w_d s_{bd}`, where s is what a
projection puts out, n is 1 unless a norm gives each content a size of its own, and w are factors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.sides import HeadSide, Sides
from spectrope.checkpoints.audit.starts import ORDERS, serialised
from spectrope.encodings import Pairing

FACTORS = "factors of"  # Begins the respect in which factors on single coordinates differ.
EXPLAINED = 1e-3  # Largest share of the vectors' norm that is left unexplained.
ALIKE = 1e-2  # Relative departure of factors that differ.
SHOWN = 4  # Pairs that are named.
EVERY = "1 in every pair"


@dataclass(frozen=True)
class Between:
    """How the first vectors of one head follow from those of a projection.

    Args:
        pairing: How the weights lay out the pairs.
        ratio: Size that the second content is given over that of the first.
        weights: Factor on each coordinate, in the order of the weights; but for a common one, if the ratio
            is not 1.
    """

    pairing: Pairing
    ratio: float
    weights: Float[Tensor, " w"]


def between_findings(
    sides: Sides, sources: list[Float[Tensor, "b _"]], noise: float
) -> Iterator[Discrepancy]:
    """Norms that are no modules, and factors on single coordinates.

    Args:
        sides: Of a layer; factors on single coordinates are looked for where its heads turn.
        sources: What the layer's inner modules put out at the first position.
        noise: Relative rounding error of the model's arithmetic.
    """
    found = {side: _of_side(sides.side(side), sources, noise) for side in ("queries", "keys")}
    within = max(ALIKE, 8 * noise)
    for side, heads in found.items():
        if any(abs(one.ratio - 1) > within for one in heads):
            note = "vectors have other sizes than those projected, by another factor for each input"
            yield Discrepancy(f"norm of {side}", "none", "one that is no module of the layer", note)
        elif heads and all(one.rotation is not None for one in sides.side(side)):
            yield from _uneven(side, heads, within)


def _of_side(heads: list[HeadSide], sources: list[Float[Tensor, "b _"]], noise: float) -> list[Between]:
    """How all heads of one side follow from a projection; empty if one of them does not."""
    found = [_of_head(one, sources, noise) for one in heads]
    return [one for one in found if one is not None] if None not in found else []


def _of_head(one: HeadSide, sources: list[Float[Tensor, "b _"]], noise: float) -> Between | None:
    within, first = max(EXPLAINED, 8 * noise), one.x[:2, 0, 0]
    if (one.rotation.width if one.rotation else first.shape[1]) < 4 or len(one.x) < 2:
        return None
    if one.rotation is None:
        vectors: dict[Pairing, Tensor] = {ORDERS[0]: first}
    else:
        z = one.rotation.layout.planes(first)
        vectors = {order: serialised(z, order) for order in ORDERS}
    tried = (_in_source(source[:2].double(), x, order) for source in sources for order, x in vectors.items())
    left, best = min(filter(None, tried), key=lambda one: one[0], default=(1.0, None))
    return best if left < within else None


def _in_source(
    source: Float[Tensor, "2 n"], x: Float[Tensor, "2 w"], order: Pairing
) -> tuple[float, Between] | None:
    """The run of a source that explains vectors best, and the share that it leaves unexplained.

    Crosswise products :math:`x_0 s_1` and :math:`x_1 s_0` are multiples of each other.
    """
    if source.shape[1] < x.shape[1]:
        return None
    runs = source.unfold(1, x.shape[1], 1)  # (2, runs, w)
    a, b = x[0] * runs[1], x[1] * runs[0]
    ratio = (a * b).sum(1) / b.square().sum(1).clamp(min=1e-300)
    left = (a - ratio[:, None] * b).norm(dim=1) / a.norm(dim=1).clamp(min=1e-300)
    left = torch.where((ratio > 0) & (a.norm(dim=1) > 0), left, torch.inf)
    best = int(left.argmin())
    if not bool(left[best].isfinite()):
        return None
    run = runs[:, best] * torch.stack([torch.ones_like(ratio[best]), 1 / ratio[best]])[:, None]
    weights = (x * run).sum(0) / run.square().sum(0).clamp(min=1e-300)
    return left[best].item(), Between(order, 1 / ratio[best].item(), weights)


def _uneven(side: str, heads: list[Between], within: float) -> Iterator[Discrepancy]:
    """Pairs that have other factors than most, of all heads or of each that departs."""
    found = [_of_pairs(one, within) for one in heads]
    if len({text for text, _ in found}) == 1:
        text, residual = found[0]
        if text:
            yield Discrepancy(f"{FACTORS} {side}", EVERY, text, residual=residual)
        return
    for head, (text, residual) in enumerate(found):
        if text:
            respect = f"{FACTORS} {side} of head {head}"
            yield Discrepancy(respect, EVERY, text, head=head, residual=residual)


def _of_pairs(one: Between, within: float) -> tuple[str, float]:
    """The pairs of one head that have other factors than most, in words, and the largest departure."""
    share = one.weights / one.weights.median()
    m, halves = len(share) // 2, one.pairing == "halves"
    pairs = share.view(2, m).T if halves else share.view(m, 2)
    off = ((pairs - 1).abs() > within).any(1).nonzero().flatten().tolist()
    shown = [f"{' and '.join(_rounded(pairs[j].tolist()))} in pair {j}" for j in off[:SHOWN]]
    more = f" and others in {len(off) - SHOWN} more" if len(off) > SHOWN else ""
    return ", ".join(shown) + more, (share - 1).abs().max().item()


def _rounded(values: list[float]) -> list[str]:
    """Factors of one pair, once where both coordinates have the same."""
    return list(dict.fromkeys(f"{value:.3g}" for value in values))
