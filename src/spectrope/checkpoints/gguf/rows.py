"""The order of the rows of query and key projections in a GGUF file, by comparison with their source."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from spectrope.checkpoints.gguf.file import GGUFFile
from spectrope.checkpoints.gguf.source import Source
from spectrope.encodings import Pairing

Order = Literal["same", "to adjacent", "to halves", "other"]
# Largest relative distance, over all heads, between a tensor stored in a type and its source.
TOLERANCE = {"F32": 1e-6, "F16": 2e-3, "BF16": 8e-3, "Q8_0": 3e-2, "Q6_K": 6e-2, "Q5_K": 0.1, "Q5_0": 0.12}
COARSE = 0.5  # Of types with fewer bits; rows in a wrong order are at a distance of about 1.4.
STRETCH = 0.05  # By which a head may be larger or smaller, beside what rounding at its distance can make.
SIDES = {"queries": "attn_q", "keys": "attn_k"}


@dataclass(frozen=True)
class SideRows:
    """How the rows of one side of a layer lie.

    Args:
        order: "same" as in the source; "to adjacent" or "to halves", permuted for the other layout of pairs;
            "other" where neither gives the source's weights.
        distance: Relative distance of the weights from the source's in that order, largest over heads.
        heads: Heads whose rows are in no such order; empty where all heads agree.
    """

    order: Order
    distance: float
    heads: tuple[int, ...] = ()


def layer_rows(
    file: GGUFFile,
    source: Source,
    names: dict[str, str],
    layer: int,
    heads: dict[str, int],
    head_dim: int,
    width: int,
) -> dict[str, SideRows] | str:
    """How the rows of queries and keys of one layer lie; a reason where that could not be told.

    Args:
        file: The file.
        source: What it was converted from.
        names: Names of the source's weights by those of the file.
        layer: Number of the layer.
        heads: Number of heads of each side.
        head_dim: Coordinates of a head.
        width: Rotated coordinates of a head, which come first.
    """
    found: dict[str, SideRows] = {}
    for side, part in SIDES.items():
        for kind in ("weight", "bias"):
            name = f"blk.{layer}.{part}.{kind}"
            here, there = name in file.tensors, name in names
            if kind == "bias" and not here and not there:
                continue
            if not (here and there):
                where = "the source" if here else "the file"
                return f"{where} has no tensor for {name}, so the order of its rows was not compared"
            mine, theirs = file.array(name), source.array(names[name])
            if mine.shape != theirs.shape:
                return f"{name} is {_by(mine)} in the file and {_by(theirs)} in the source"
            if len(mine) != heads[side] * head_dim:
                return f"{name} has {len(mine)} rows; {heads[side]} heads of width {head_dim} need others"
            if theirs.any() or mine.any():  # Biases of zero have no order.
                label = side if kind == "weight" else f"{side} (bias)"
                found[label] = side_rows(mine, theirs, heads[side], width, tolerance_of(file.type_of(name)))
    return found


def tolerance_of(kind: str) -> float:
    """The distance up to which weights stored in a type count as the source's."""
    return TOLERANCE.get(kind, COARSE)


def side_rows(mine: np.ndarray, theirs: np.ndarray, heads: int, width: int, tolerance: float) -> SideRows:
    """How the rows of a projection lie.

    Args:
        mine: In the file, (rows, inputs).
        theirs: In the source.
        heads: Number of heads.
        width: Rotated coordinates of a head.
        tolerance: Largest relative distance of equal rows.
    """
    a, b = (x.reshape(heads, len(x) // heads, -1).astype(np.float64) for x in (mine, theirs))
    size = np.maximum(np.sqrt((b**2).sum((1, 2))), 1e-300)
    distances: dict[Order, np.ndarray] = {
        order: np.sqrt(((a - b[:, rows]) ** 2).sum((1, 2))) / size
        for order, rows in orders(b.shape[1], width).items()
    }
    order = min(distances, key=lambda one: float(np.median(distances[one])))
    fits = (distances[order] <= tolerance) & _unstretched(a, b[:, orders(b.shape[1], width)[order]])
    if not fits.any():
        return SideRows("other", float(distances[order].max()))
    off = tuple(np.flatnonzero(~fits).tolist())
    return SideRows(order, float(distances[order].max()), off)


def _unstretched(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether each head has the size of the source's; one of zeros has none.

    The best factor from b to a is the product of both over the square of b. Rounding to the nearest of few
    values makes a smaller by up to the square of the relative distance.
    """
    squares = (b**2).sum((1, 2))
    divisor = np.where(squares > 0, squares, 1.0)
    stretched = np.abs((a * b).sum((1, 2)) / divisor - 1)
    return (squares == 0) | (stretched <= STRETCH + ((a - b) ** 2).sum((1, 2)) / divisor)


def orders(head_dim: int, width: int) -> dict[Order, np.ndarray]:
    """For each order, the source's row at each place of a head."""
    pairs, rest = np.arange(width), np.arange(width, head_dim)
    inner: dict[Order, np.ndarray] = {
        "same": pairs,
        "to adjacent": pairs.reshape(2, width // 2).T.ravel(),
        "to halves": pairs.reshape(width // 2, 2).T.ravel(),
    }
    return {order: np.concatenate([rows, rest]) for order, rows in inner.items()}


def pairing_in_source(order: Order, pairing: Pairing, width: int) -> Pairing | None:
    """Which of the source's coordinates turn together, where a runtime pairs the file's.

    Args:
        order: Of the file's rows.
        pairing: Of the runtime.
        width: Rotated coordinates of a head.

    Returns:
        None where they form neither layout, as where the order is "other".
    """
    if order == "other":
        return None
    rows = orders(width, width)[order]
    turned = {frozenset(pair) for pair in rows[_pairs(pairing, width)].tolist()}
    layouts: tuple[Pairing, ...] = (pairing, "halves" if pairing == "adjacent" else "adjacent")
    return next(
        (one for one in layouts if turned == {frozenset(pair) for pair in _pairs(one, width).tolist()}), None
    )


def _pairs(pairing: Pairing, width: int) -> np.ndarray:
    """Coordinates of each pair, (pairs, 2)."""
    every = np.arange(width)
    return every.reshape(-1, 2) if pairing == "adjacent" else every.reshape(2, -1).T


def _by(x: np.ndarray) -> str:
    return " x ".join(map(str, x.shape))
