"""Substitute the declared encoding for the effective one, in one layer and one property."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Complex, Float
from torch import Tensor

from spectrope.checkpoints.adapters.interface import SINKS
from spectrope.checkpoints.adapters.substitute import Given
from spectrope.checkpoints.audit.between import FACTORS
from spectrope.checkpoints.audit.bias import lags
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning
from spectrope.checkpoints.audit.exercised import MASKS
from spectrope.checkpoints.audit.heads import ORDER
from spectrope.checkpoints.audit.layout import Layout
from spectrope.checkpoints.audit.measure import LayerMeasurement
from spectrope.checkpoints.audit.sides import HeadSide
from spectrope.checkpoints.probes.constant_token import looked_up
from spectrope.core import UnsupportedError
from spectrope.encodings import multiply_pairs

ROTATIONS = frozenset(
    {"SPE101", "SPE102", "SPE104", "SPE105", "SPE106", "SPE107", "SPE108", "SPE109", "SPE110", "SPE111"}
    | {"SPE402"}
)
Substitution = Callable[[Given], Given]


@dataclass(frozen=True, eq=False)
class Rows:
    """What a table of positions puts out instead of the rows that it looks up.

    Args:
        vectors: Of the tokens in their order, from the first one on.
    """

    vectors: Float[Tensor, "n w"]

    def instead_of(self, output: Any) -> Any:
        """The output of the table's module with these vectors in the place of its own.

        Raises:
            UnsupportedError: If it has more positions than there are vectors.
        """
        own = looked_up(output)
        if own.shape[-2] > len(self.vectors):
            raise UnsupportedError("the declared table has fewer rows than tokens")
        right = self.vectors[: own.shape[-2]].to(own).expand_as(own)
        return (right, *output[1:]) if isinstance(output, tuple) else right


# Why nothing takes the place of what findings of these codes are about.
REASONS = {
    "SPE112": "the values that the architecture would make are unknown",
    "SPE113": "a norm and a rotation cannot be exchanged after they were applied",
    "SPE114": "the output of the norm cannot be recovered after it",
    "SPE301": "the code adds this bias outside its attention function",
    "SPE401": "the term enters before the first layer",
    "SPE403": "the declared growth is known only at the last position",
    "SPE501": "it concerns a serving mode, and a plain forward pass has no fault",
    "SPE601": "the configuration does not say which of its fields is meant",
}
UNSEEN = "the kernel does not rotate pairs that could be rotated back"


@dataclass(frozen=True, eq=False)
class Turned:
    """Turn queries and keys back, and then as declared.

    Args:
        back: By side and head, the layout of the pairs and the factor on each at each position; None where a
            head does not turn.
        angles: Radians of each declared pair at each position; None where the layer is declared not to turn.
        layouts: By side and head, the coordinates that the declared pairs are.
    """

    back: dict[tuple[str, int], tuple[Layout, Complex[Tensor, "t m"]] | None]
    angles: Float[Tensor, "t n"] | None
    layouts: dict[tuple[str, int], Layout]

    def __call__(self, given: Given) -> Given:
        return replace(given, q=self._side("queries", given.q), k=self._side("keys", given.k))

    def _side(self, side: str, x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b h t d"]:
        heads = [self._head(x[:, head : head + 1], (side, head)) for head in range(x.shape[1])]
        return torch.cat(heads, 1)

    def _head(self, x: Float[Tensor, "b 1 t d"], place: tuple[str, int]) -> Float[Tensor, "b 1 t d"]:
        t, known = x.shape[2], self.back[place]
        if known is not None:
            layout, factors = known
            x = multiplied(x, layout, 1 / factors[:t].to(x.device))
        if self.angles is not None:
            angles = self.angles[:t].to(x.device)
            x = multiplied(x, self.layouts[place], torch.polar(torch.ones_like(angles), angles))
        return x


def multiplied(
    x: Float[Tensor, "b h t d"], layout: Layout, factors: Complex[Tensor, "t m"]
) -> Float[Tensor, "b h t d"]:
    """Some pairs of x times factors, the other coordinates as they are."""
    stop = layout.start + layout.width
    part = multiply_pairs(x[..., layout.start : stop].float(), factors[None, None], layout.pairing)
    return torch.cat([x[..., : layout.start], part.to(x.dtype), x[..., stop:]], -1)


def substitution_of(
    finding: Discrepancy,
    declared: LayerEncoding,
    measured: LayerMeasurement,
    table: Float[Tensor, "buckets h"] | None,
    length: int,
    misapplied: Collection[str] = (),
) -> Substitution | str:
    """What puts a layer right in the respect of a finding, or why nothing can.

    Args:
        finding: Of the layer.
        declared: Its declaration.
        measured: What it applies.
        table: Of its biases by bucket and head; None without one.
        length: Positions of the measurement.
        misapplied: Codes of what the attention function applies otherwise than it was given it; softmax
            attention then takes its place.
    """
    code, effective = finding.code, measured.encoding
    if code in misapplied:
        allowed = drawn(declared, length) if code in MASKS else None
        return lambda given: replace(
            given, mask=given.mask if allowed is None else _cut(allowed, given), plain=True
        )
    if code == "SPE110" and declared.buckets is not None:
        return _biased(declared, table, length)
    if code in ROTATIONS:
        return _turned(declared, measured, length)
    if code in ("SPE302", "SPE303"):
        return _biased(declared, table, length)
    if code in MASKS:
        allowed = drawn(declared, length)
        return lambda given: replace(given, mask=_cut(allowed, given))
    if finding.what.startswith(FACTORS):
        return "whether these factors come before or after the rotation is not known"
    if code == "SPE103" and declared.turning and effective.turning:
        return _gained(declared.turning, effective.turning)
    if code == "SPE404":
        return _scaled(finding, declared, effective, measured)
    if code == "SPE405":
        return lambda given: replace(given, options=given.options | {"softcap": declared.softcap or None})
    if code == "SPE406" and declared.sinks is not None:
        return _sunk(declared.sinks)
    if finding.what.startswith(ORDER):
        return _reordered(finding, measured)
    if code == "SPE407":
        return lambda given: replace(given, plain=True)
    return REASONS.get(code, "no known encoding could replace it")


def _reordered(finding: Discrepancy, measured: LayerMeasurement) -> Substitution | str:
    """Put the heads of one side back into the order in which they were projected."""
    queries = finding.what.endswith("queries")
    order = measured.sides.order("queries" if queries else "keys")
    if sorted(order) != [*range(len(order))]:
        return "some of the heads that were projected do not reach the kernel"
    back = torch.tensor(order).argsort()
    if queries:
        return lambda given: replace(given, q=given.q[:, back.to(given.q.device)])
    return lambda given: replace(given, k=given.k[:, back.to(given.k.device)])


def _turned(declared: LayerEncoding, measured: LayerMeasurement, length: int) -> Substitution | str:
    """Turn every head back by what was measured of it, and then as declared."""
    sides = measured.sides.of
    if measured.encoding.kind not in ("rotary", "none", "unknown") or declared.kind not in ("rotary", "none"):
        return "the declared encoding is of another family, which lies outside the queries and keys"
    if measured.encoding.kind == "unknown" and measured.encoding.turning is None:
        return UNSEEN
    if any(one.rotation is None and _moves(one) for one in sides.values()):
        return UNSEEN
    back = {place: None if one.rotation is None else _phases(one) for place, one in sides.items()}
    turning = declared.turning
    if turning is None:
        return Turned(back, None, {})
    positions = torch.arange(length, dtype=torch.float64)[:, None]
    angles = positions * torch.tensor(turning.frequencies, dtype=torch.float64) * (turning.sense or 1)
    effective = measured.encoding.turning
    layouts = {place: _layout(turning, effective, one) for place, one in sides.items()}
    return Turned(back, angles.float(), layouts)


def _moves(one: HeadSide) -> bool:
    """Whether vectors vary over positions."""
    return bool((one.x - one.x[:, :, :1]).abs().max() > 1e-2 * one.x.square().mean().sqrt())


def _phases(one: HeadSide) -> tuple[Layout, Complex[Tensor, "t m"]]:
    """The factor on each pair of a head at each position, of modulus 1 at the first."""
    assert one.rotation is not None
    z = one.rotation.layout.planes(one.x.flatten(0, 1).double())
    factors = (z * z[:, :1].conj()).sum(0) / z[:, :1].abs().square().sum(0)
    start = torch.tensor(one.rotation.frequencies, dtype=torch.float64) * (one.rotation.position or 0)
    return one.rotation.layout, (factors * torch.polar(torch.ones_like(start), start)).to(torch.complex64)


def _layout(turning: Turning, effective: Turning | None, one: HeadSide) -> Layout:
    """The declared coordinates, in the order in which the kernel would see them."""
    rotation = one.rotation
    pairing = turning.pairing or "halves"
    if rotation is not None:
        pairing = rotation.seen_pairing
        if effective is not None and None not in (turning.pairing, effective.pairing):
            other = "adjacent" if pairing == "halves" else "halves"
            pairing = pairing if turning.pairing == effective.pairing else other
    return Layout(pairing, turning.start, turning.width)


def drawn(declared: LayerEncoding, length: int) -> Bool[Tensor, "n n"]:
    """The declared mask."""
    lag, mask = lags(length, length), declared.mask or Mask("unlimited")
    allowed = torch.ones_like(lag, dtype=torch.bool) if declared.sees_future else lag >= 0
    if mask.size is None:
        return allowed
    if mask.shape == "causal chunk":
        chunk = torch.arange(length) // mask.size
        return allowed & (chunk[:, None] == chunk[None, :])
    reach = mask.size if mask.shape == "bidirectional window" else mask.size - 1
    return allowed & (lag.abs() <= reach)


def _cut(allowed: Bool[Tensor, "n n"], given: Given) -> Bool[Tensor, "1 1 i j"]:
    return allowed[: given.q.shape[2], : given.k.shape[2]].to(given.q.device)[None, None]


def _gained(declared: Turning, effective: Turning) -> Substitution | str:
    if declared.gain is None or not effective.gain:
        return "the factor could not be observed"
    ratio, stop = declared.gain / effective.gain, effective.start + effective.width

    def change(given: Given) -> Given:
        q = given.q.clone()
        q[..., effective.start : stop] *= ratio
        return replace(given, q=q)

    return change


def _scaled(
    finding: Discrepancy, declared: LayerEncoding, effective: LayerEncoding, measured: LayerMeasurement
) -> Substitution | str:
    """Scale queries, or one head of one side, so that products have the declared factor."""
    if finding.head is not None:
        side = "keys" if "keys" in finding.what else "queries"
        own, usual = measured.sides.of[side, finding.head].gain, measured.sides.gains[side]
        if not own or not usual:
            return "the factor of the head could not be observed"
        return _head_scaled(side, finding.head, usual / own)
    wanted, got = declared.scale, effective.scale
    if wanted and got and abs(wanted / got - 1) > 1e-6:
        return lambda given: replace(given, q=given.q * (wanted / got))
    if effective.turning is not None and declared.turning is not None:
        return _gained(declared.turning, effective.turning)
    return "the factor of similar layers is not declared"


def _head_scaled(side: str, head: int, ratio: float) -> Substitution:
    def change(given: Given) -> Given:
        x = (given.q if side == "queries" else given.k).clone()
        x[:, head] *= ratio
        return replace(given, q=x) if side == "queries" else replace(given, k=x)

    return change


def _sunk(sinks: tuple[float, ...]) -> Substitution:
    def change(given: Given) -> Given:
        name = next((name for name in SINKS if name in given.options), SINKS[0])
        return replace(given, options=given.options | {name: torch.tensor(sinks).to(given.q)})

    return change


def _biased(
    declared: LayerEncoding, table: Float[Tensor, "buckets h"] | None, length: int
) -> Substitution | str:
    """The biases that the layer's table holds for the declared buckets."""
    if table is None or declared.buckets is None:
        return "the table of biases was not found"
    bias = table[declared.buckets.of(lags(length, length).flatten())].T.reshape(-1, length, length)

    def change(given: Given) -> Given:
        part = bias[:, : given.q.shape[2], : given.k.shape[2]].to(given.q)
        return replace(given, options=given.options | {"position_bias": part[None]})

    return change
