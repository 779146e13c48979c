"""Comparisons that several roles share."""

from collections.abc import Iterator
from dataclasses import replace

from spectrope.checkpoints.audit.anchored import anchored
from spectrope.checkpoints.audit.compare import GAIN, Discrepancy, compare
from spectrope.checkpoints.audit.diff import diff
from spectrope.checkpoints.audit.encoding import LayerEncoding, Turning
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.audit.rotary import rounded
from spectrope.checkpoints.pairs.member import Member
from spectrope.checkpoints.pairs.records import Obstacle
from spectrope.checkpoints.pairs.rows import ALIKE, RowOrder, at_start, row_order

LEARNED = ("bias less that at lag 0", "vectors by position", "attention sinks")  # Values that training moves.


def noise_of(first: Member, second: Member) -> float:
    """Relative rounding error of the coarser arithmetic."""
    return max(first.audit.noise, second.audit.noise)


def other_sizes(first: Member, second: Member) -> Iterator[Obstacle]:
    """Sizes that are not the same, and layers of other numbers."""
    for (what, a), b in zip(first.sizes.items(), second.sizes.values(), strict=True):
        if a != b:
            yield Obstacle("sizes", what, str(a), str(b), second.name)
    places = [[each.place(one) for one in each.audit.layers] for each in (first, second)]
    if len(places[0]) == len(places[1]) and places[0] != places[1]:
        names = [", ".join(one.name for one in each.audit.layers) for each in (first, second)]
        yield Obstacle("sizes", "layers", names[0], names[1], second.name)


def other_encodings(first: Member, second: Member) -> Iterator[Obstacle]:
    """Layers that apply another encoding; trained values are ignored."""
    for layer in diff(first.audit, second.audit).layers:
        where = layer.layer if layer.layer == "embeddings" else f"layer {layer.layer}"
        for one in layer.findings:
            if not one.what.startswith(LEARNED):
                yield Obstacle(where, one.what, one.expected, one.effective, second.name, one.note)


def layer_pairs(first: Member, second: Member) -> Iterator[tuple[LayerRecord, LayerRecord, tuple[str, int]]]:
    """Records of layers at the same place."""
    known = {second.place(one): one for one in second.audit.layers}
    for one in first.audit.layers:
        if (place := first.place(one)) in known:
            yield one, known[place], place


def orders(
    first: Member, second: Member, place: tuple[str, int], likeness: float = ALIKE
) -> list[RowOrder | None]:
    """Orders of the rows of queries and of keys of one layer."""
    sides = zip(at_start(first.calls[place]), at_start(second.calls[place]), strict=True)
    return [row_order(a, b, likeness) for a, b in sides]


def compared_rows(first: Member, second: Member) -> tuple[list[Obstacle], list[str]]:
    """Layers whose queries or keys have rows or heads in another order, and those that do not show theirs."""
    obstacles: list[Obstacle] = []
    untold: list[str] = []
    for layer, _, place in layer_pairs(first, second):
        for side, order in zip(("queries", "keys"), orders(first, second, place), strict=True):
            if order is None:
                untold.append(f"layer {layer.name}: the weights do not show the order of the rows of {side}")
            else:
                obstacles += rows_of(order, side, layer, second.name)
    return obstacles, untold


def rows_of(order: RowOrder, side: str, layer: LayerRecord, other: str) -> Iterator[Obstacle]:
    """What is in another order on one side of a layer."""
    where = f"layer {layer.name}"
    if not order.heads_in_order:
        told = ", ".join(map(str, order.heads)) if order.heads else "spread"
        every = ", ".join(map(str, range(len(order.heads)))) or "whole"
        yield Obstacle(where, "order of heads", every, told, other, f"of {side}")
    elif not order.rows_in_order:
        yield Obstacle(where, f"rows of {side}", "their order", order.name(layer.effective.turning), other)


def other_rotation(a: LayerEncoding, b: LayerEncoding, length: int, noise: float) -> list[Discrepancy]:
    """Where families and schedules differ, also of heads of other widths; layouts and factors aside."""
    if a.kind != b.kind:
        return [Discrepancy("encoding", a.describe(), b.describe())]
    if a.turning is None or b.turning is None:
        alike = a.slopes is None or b.slopes is None or len(a.slopes) != len(b.slopes)
        added = replace(LayerEncoding(a.kind), buckets=a.buckets, relative=a.relative)
        return compare(added if alike else replace(added, slopes=a.slopes), b, length, noise)
    first, second = (
        replace(one, gain=None, gains=None, pairing=None, position=None, key_offset=None, sense=None)
        for one in (a.turning, b.turning)
    )
    if (first.width, first.head_dim) == (second.width, second.head_dim):
        return compare(
            anchored(LayerEncoding(a.kind, turning=first)),
            LayerEncoding(b.kind, turning=second),
            length,
            noise,
        )
    return list(_schedules(first, second))


def _schedules(a: Turning, b: Turning) -> Iterator[Discrepancy]:
    """Where the schedules of rotations of other widths differ, in words."""
    first, second = a.fit(), b.fit()
    if abs(first.base / second.base - 1) > GAIN:
        yield Discrepancy("base", rounded(first.base), rounded(second.base))
    elif first.scaling != second.scaling or abs(first.factor / second.factor - 1) > 10 * GAIN:
        yield Discrepancy("scaling", str(first), str(second))
