"""One layer at far positions: its rotation, its growth and its first token, against its declaration."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.adapters import Call, layer_name
from spectrope.checkpoints.audit.compare import Discrepancy, values_differ
from spectrope.checkpoints.audit.declaration import declared_layer
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.far_rotation import FarRotation, even, turns_of
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.heads import owner
from spectrope.checkpoints.audit.layout import Layout, best_layout, moving_coordinates
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.audit.turning import varies

NEAR = (0, 1, 2, 3)  # Positions of the first tokens.


def declared_at(declaration: Declaration, module: str, length: int) -> LayerEncoding:
    """A layer's declaration for sequences of another length."""
    stack, layer = layer_name(module)
    return declared_layer(declaration.of(stack).at(layer), stack, layer, length)


@dataclass(frozen=True, eq=False)
class FarLayer:
    """A layer at far positions, and beside it at the first ones, with the same content.

    Args:
        declaration: The configuration.
        record: Of the layer, at the audited length.
        near: Its call at `NEAR`.
        far: Its call at far positions.
        positions: Of the tokens of that, ascending from 0.
        noise: Relative rounding error of the model's arithmetic.
    """

    declaration: Declaration
    record: LayerRecord
    near: Call
    far: Call
    positions: tuple[int, ...]
    noise: float

    @property
    def declared(self) -> LayerEncoding:
        """The layer's declaration for a sequence that reaches the last position."""
        return declared_at(self.declaration, self.record.module, self._reach)

    @property
    def tolerance(self) -> float:
        """Relative error that is left to the size of a vector."""
        return size_tolerance(self.noise)

    def findings(self) -> list[Discrepancy]:
        """Where the layer departs from its declaration; of several kinds, the first."""
        if self.declared.turning is not None:
            kinds = (self._rotated, self._rotation, self._first_token, self._grown, self._values)
        else:
            kinds = (self._still, self._values) if self.declared.kind == "none" else (self._values,)
        return next((found for kind in kinds if (found := [*kind()])), [])

    def _vectors(self, call: Call) -> Float[Tensor, "n t d"]:
        """Queries and keys, without a growth of the queries."""
        return even(torch.cat([x.double().flatten(0, 1) for x in (call.q, call.k)]))

    def _still(self) -> Iterator[Discrepancy]:
        """Where the vectors of a layer without an encoding change with the position."""
        if bool(moving_coordinates(self._vectors(self.far), self.noise).any()):
            yield Discrepancy("encoding", "none", f"one that turns vectors, {self._where}")

    def _first_token(self) -> Iterator[Discrepancy]:
        """Where the vectors of the first token depend on how far the others reach."""
        near, far = (
            _gain(declared_at(self.declaration, self.record.module, n)) for n in (NEAR[-1] + 1, self._reach)
        )
        ratios: dict[str, float] = {}
        for side, x in (("queries", "q"), ("keys", "k")):
            a, b = (getattr(call, x)[:, :, 0].double() for call in (self.near, self.far))
            ratio = ((a * b).sum() / a.square().sum().clamp(min=1e-300)).item()
            if (b - ratio * a).norm() > self.tolerance * b.norm():
                respect = "position of queries" if side == "queries" else "position of keys"
                yield Discrepancy(respect, "those of the tokens", f"others {self._where}")
                return
            ratios[side] = ratio * near / far
        off = [side for side, ratio in ratios.items() if abs(ratio - 1) > self.tolerance]
        if len(off) == 2:
            yield Discrepancy("attention factor", f"{far:.5g}", f"{far * ratios['keys']:.5g}", self._where)
        elif off:
            respect = "query scale" if off[0] == "queries" else "key scale"
            times = f"{ratios[off[0]]:.5g} times that"
            yield Discrepancy(respect, "that of a short sequence", times, self._where)

    def _grown(self) -> Iterator[Discrepancy]:
        """Where queries grow with the position otherwise than declared.

        A norm after the rotation changes their sizes, too.
        """
        if not self.record.effective.normalised_after:
            yield from growth(self.far, self.declaration, self.record.module, self.positions, self.tolerance)
            steady = torch.ones(len(self.positions), dtype=torch.float64)
            yield from _sizes_off("keys", self.far, steady, self.positions, self.tolerance)

    def _values(self) -> Iterator[Discrepancy]:
        """Where values change with the position, and should not."""
        v = self.far.v
        if v is not None and not self.record.declared.values_vary and varies(v.double(), self.noise):
            yield replace(values_differ(False), note=self._where)

    def _rotation(self) -> Iterator[Discrepancy]:
        """Where pairs turn otherwise than declared."""
        turning, p = self.declared.turning, torch.tensor(self.positions, dtype=torch.float64)
        assert turning is not None
        vectors = self._vectors(self.far)
        if not bool(moving_coordinates(vectors, self.noise).any()):
            same = f"the same for all tokens up to {self.positions[-1]}"
            yield Discrepancy("positions", "those of the tokens", same)
            return
        known = (one for one in reversed(self._layouts) if one is not None)
        layout = next((one for one in known if (one.start, one.width) == self._coordinates), None)
        if layout is None:
            return
        sense = self.record.effective.turning.sense if self.record.effective.turning else 1
        frequencies = torch.tensor(turning.frequencies, dtype=torch.float64) * (sense or 1)
        bound = 10 * self.noise + 8 * 2**-24 * p[:, None] * frequencies.abs() + 1e-4
        yield from FarRotation(turns_of(self.far, layout), frequencies, p, bound).findings()

    def _rotated(self) -> Iterator[Discrepancy]:
        """Where the first tokens turn in the declared pairs, and those of a longer sequence in others."""
        near, far = self._layouts
        if near is None or far is None or (near.start, near.width) != self._coordinates:
            return
        if (far.start, far.width) != self._coordinates:
            first, second = (f"coordinates {one.start} to {one.start + one.width - 1}" for one in (near, far))
            yield Discrepancy("rotated fraction", first, second, self._where)
        elif near.pairing != far.pairing:
            yield Discrepancy("pairing", near.pairing, far.pairing, self._where)

    @cached_property
    def _layouts(self) -> tuple[Layout | None, Layout | None]:
        """The pairs of the first tokens, and those of all."""
        near, far = (self._vectors(call) for call in (self.near, self.far))
        first, every = (best_layout(x, moving_coordinates(x, self.noise), self.noise) for x in (near, far))
        return first, every

    @property
    def _coordinates(self) -> tuple[int, int] | None:
        """First and number of the coordinates that are declared to turn."""
        turning = self.declared.turning
        return None if turning is None else (turning.start, turning.width)

    @property
    def _reach(self) -> int:
        return self.positions[-1] + 1

    @property
    def _where(self) -> str:
        return f"in a sequence that reaches position {self.positions[-1]}"


def size_tolerance(noise: float) -> float:
    """Relative error that is left to the size of a vector, by the noise of the model's arithmetic."""
    return max(1e-3, 10 * noise)


def growth(
    call: Call, declaration: Declaration, module: str, places: Sequence[int], tolerance: float
) -> Iterator[Discrepancy]:
    """Where queries of any head grow otherwise than declared, against the first of them.

    Args:
        call: Of the layer, with the same content at every position.
        declaration: The configuration.
        module: Dotted name of the layer's.
        places: Positions of the queries.
        tolerance: Relative error that is left to a size.
    """
    scales = [declared_at(declaration, module, place + 1).query_scale or 1.0 for place in places]
    wanted = torch.tensor(scales, dtype=torch.float64)
    yield from _sizes_off("queries", call, wanted / wanted[0], places, tolerance)


def _sizes_off(
    side: Literal["queries", "keys"],
    call: Call,
    wanted: Float[Tensor, " t"],
    places: Sequence[int],
    tolerance: float,
) -> Iterator[Discrepancy]:
    """Where vectors grow otherwise than wanted: one finding of all heads, or one for each that does."""
    x, respect = (call.q, "query scale") if side == "queries" else (call.k, "key scale")
    norms = x.double().norm(dim=-1)
    got = (norms / norms[..., :1]).nanmean(0)  # NaN for heads that were pruned.
    off = (got / wanted - 1).abs() > tolerance
    heads = off.any(1).nonzero()[:, 0].tolist()
    together = len(heads) == int((~got.isnan()).any(1).sum())
    for head in heads[:1] if together else heads:
        at = int(off[head].nonzero()[0])
        first, second = (f"grows {ratio:.5g} times" for ratio in (wanted[at].item(), got[head, at].item()))
        note = f"from position {places[0]} to {places[at]}"
        name = "" if together else f" of {owner((side, head), grouped=call.k.shape[1] < call.q.shape[1])}"
        yield Discrepancy(f"{respect}{name}", first, second, note, head=None if together else head)


def _gain(declared: LayerEncoding) -> float:
    """The declared factor on rotated vectors."""
    return 1.0 if declared.turning is None or declared.turning.gain is None else declared.turning.gain
