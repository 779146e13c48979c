"""Compare what layers apply at far positions with their declaration."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES, Call, layer_name
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import declared_layer, layer_type
from spectrope.checkpoints.audit.declared_rope import rope_parameters, trained_before
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.layout import Layout, best_layout, moving_coordinates
from spectrope.checkpoints.audit.precision import DTYPES
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.audit.serving import TOKENS
from spectrope.checkpoints.probes.far import (
    AROUND,
    DEEPEST,
    chosen_positions,
    far_calls,
    masks_behind,
    takes_past,
    takes_positions,
    whole_calls,
    whole_length,
)
from spectrope.core import SpectropeError

NEAR = (0, 1, 2, 3)
EXPLAINED = 0.1  # Largest share of a departure that another reading of the positions may leave.


@dataclass(frozen=True)
class Far:
    """Positions and masks that were tested beyond an audit's length.

    Args:
        positions: Positions of single tokens, ascending; empty if none could be placed.
        windows: Sizes of windows and chunks whose ends were tested.
        unchecked: What was not tested, in words.
        findings: By dotted name of the module.
    """

    positions: tuple[int, ...]
    windows: tuple[int, ...]
    unchecked: tuple[str, ...]
    findings: Mapping[str, list[Discrepancy]]


NOWHERE = Far((), (), (), {})


def look_far(
    model: nn.Module,
    declaration: Declaration,
    records: Sequence[LayerRecord],
    length: int,
    trained: int | None,
    noise: float,
    seed: int,
) -> Far:
    """Probe positions from the audit's length to the declared one, and the ends of longer windows.

    Args:
        model: Without its head, in evaluation mode.
        declaration: Its configuration.
        records: Of its layers at the audited length.
        length: Of the audit.
        trained: Positions that the configuration gives the model; None if it says nothing.
        noise: Relative rounding error of the model's arithmetic.
        seed: Of the contents.
    """
    sizes = _sizes(declaration, records)
    stop = 0 if trained is None or trained <= length else trained
    findings: dict[str, list[Discrepancy]] = {one.module: [] for one in records}
    unchecked = [*_out_of_reach(records, length, stop)]
    positions = _rotations(model, declaration, records, length, stop, noise, seed, findings, unchecked)
    seen = _windows(model, declaration, records, sizes, noise, seed, findings, unchecked)
    return Far(tuple(positions), tuple(seen), tuple(unchecked), findings)


def _sizes(declaration: Declaration, records: Sequence[LayerRecord]) -> list[int]:
    """Causal windows, chunks and floors of temperatures that end beyond the tokens of the serving modes."""
    masks = (one.declared.mask for one in records if _looks_back(one))
    sizes = {mask.size for mask in masks if mask and mask.size}
    if declaration.get("attn_temperature_tuning"):
        sizes.add(int(declaration.get("floor_scale") or 8192))
    return sorted(size for size in sizes if size > TOKENS)


def _out_of_reach(records: Sequence[LayerRecord], length: int, stop: int) -> Iterator[str]:
    """What would take a pass over all tokens, in words."""
    masks = {one.declared.mask for one in records if not _looks_back(one)}
    for size in sorted({mask.size for mask in masks if mask and mask.size and mask.size >= length}):
        yield f"what changes after {size} tokens"
    if stop and any(one.declared.slopes or one.declared.buckets for one in records):
        yield f"biases at lags from {length} on"


def _looks_back(record: LayerRecord) -> bool:
    """Whether the layer declares a causal window or chunk."""
    return record.declared.sees_future is False and bool(record.declared.mask and record.declared.mask.size)


def _rotations(
    model: nn.Module,
    declaration: Declaration,
    records: Sequence[LayerRecord],
    length: int,
    stop: int,
    noise: float,
    seed: int,
    findings: dict[str, list[Discrepancy]],
    unchecked: list[str],
) -> list[int]:
    """Positions that were looked at; adds to findings."""
    turning = [one for one in records if one.verdict == "matches" and one.declared.turning is not None]
    if not stop or not turning:
        return []
    in_turn = takes_positions(model)
    ends = _ends(declaration, length, stop) if in_turn else [whole_length(model, stop)]
    if ends[-1] < stop:
        first = max(length, ends[-1])
        unchecked.append(
            f"positions from {first} on (the code takes no positions, so every token before them would run)"
        )
    modules, looked = [one.module for one in records], set[int]()
    for end in (one for one in ends if one > length):
        positions = chosen_positions(_boundaries(declaration, records), length, end)
        try:
            near, calls = (
                far_calls(model, modules, some, seed)
                if in_turn
                else whole_calls(model, modules, some, some[-1] + 1, seed)
                for some in (NEAR, positions)
            )
        except (SpectropeError, *FAILURES):  # which models of other attention, or of tables, raise
            unchecked.append(f"positions from {length} on, at which the model did not run")
            continue
        looked |= set(positions)
        for one in (one for one in records if one.verdict == "matches"):
            far = FarLayer(declaration, one, near[one.module], calls[one.module], tuple(positions), noise)
            findings[one.module] += far.findings()
    return sorted(looked)


def _ends(declaration: Declaration, length: int, stop: int) -> list[int]:
    """Lengths of the passes: the declared one, and that up to which another list of factors holds."""
    parameters = rope_parameters(declaration, layer_type(declaration, 0))
    if parameters.get("rope_type") != "longrope":
        return [stop]
    original = trained_before(declaration, parameters)
    return [original, stop] if length < original < stop else [stop]


def _boundaries(declaration: Declaration, records: Sequence[LayerRecord]) -> list[int]:
    """Positions at which an encoding may change."""
    parameters = rope_parameters(declaration, layer_type(declaration, 0))
    fields = (
        declaration.get("original_max_position_embeddings"),
        parameters.get("original_max_position_embeddings"),
        declaration.get("floor_scale"),
    )
    sizes = [one.declared.mask.size for one in records if one.declared.mask and one.declared.mask.size]
    return sorted({int(value) for value in (*fields, *sizes) if value})


def _declared(declaration: Declaration, record: LayerRecord, length: int) -> LayerEncoding:
    """A layer's declaration for sequences of another length."""
    stack, layer = layer_name(record.module)
    return declared_layer(declaration.at(layer), stack, layer, length)


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
        return _declared(self.declaration, self.record, self._reach)

    @property
    def tolerance(self) -> float:
        """Relative error that is left to the size of a vector."""
        return max(1e-3, 10 * self.noise)

    def findings(self) -> list[Discrepancy]:
        """Where the layer departs from its declaration; of several kinds, the first."""
        if self.declared.turning is not None:
            kinds = (self._rotated, self._rotation, self._first_token, self._grown)
        else:
            kinds = (self._still,) if self.declared.kind == "none" else ()
        return next((found for kind in kinds if (found := [*kind()])), [])

    def _vectors(self, call: Call) -> Float[Tensor, "n t d"]:
        """Queries and keys, without a growth of the queries."""
        vectors = torch.cat([x.double().flatten(0, 1) for x in (call.q, call.k)])
        sizes = vectors.norm(dim=-1, keepdim=True).clamp(min=1e-300)
        return vectors * (sizes[:, :1] / sizes)

    def _still(self) -> Iterator[Discrepancy]:
        """Where the vectors of a layer without an encoding change with the position."""
        if bool(moving_coordinates(self._vectors(self.far), self.noise).any()):
            yield Discrepancy("encoding", "none", f"one that turns vectors, {self._where}")

    def _first_token(self) -> Iterator[Discrepancy]:
        """Where the vectors of the first token depend on how far the others reach."""
        ratios: list[float] = []
        for side, respect in (("q", "position of queries"), ("k", "position of keys")):
            a, b = (getattr(call, side)[:, :, 0].double() for call in (self.near, self.far))
            ratio = ((a * b).sum() / a.square().sum().clamp(min=1e-300)).item()
            if (b - ratio * a).norm() > self.tolerance * b.norm():
                yield Discrepancy(respect, "those of the tokens", f"others {self._where}")
                return
            ratios.append(ratio)
        gains = [_gain(_declared(self.declaration, self.record, n)) for n in (NEAR[-1] + 1, self._reach)]
        wanted = gains[1] / gains[0]
        off = [abs(ratio / wanted - 1) > self.tolerance for ratio in ratios]
        if any(off):
            words = "attention factor" if off[1] else "query scale"
            ratio = ratios[1] if off[1] else ratios[0]
            yield Discrepancy(words, f"{gains[1]:.5g}", f"{gains[0] * ratio:.5g}", self._where)

    def _grown(self) -> Iterator[Discrepancy]:
        """Where queries grow with the position otherwise than declared.

        A norm after the rotation changes their sizes, too.
        """
        if self.record.effective.normalised_after:
            return
        norms = self.far.q.double().norm(dim=-1)
        got = (norms / norms[..., :1]).mean((0, 1))
        if self.declared.query_scale is None and bool(((got - 1).abs() <= self.tolerance).all()):
            return
        wanted = [_declared(self.declaration, self.record, p + 1).query_scale or 1.0 for p in self.positions]
        off = (got * wanted[0] / torch.tensor(wanted, dtype=torch.float64) - 1).abs() > self.tolerance
        if bool(off.any()):
            at = int(off.nonzero()[0])
            first, second = (f"{ratio:.5g} times" for ratio in (wanted[at] / wanted[0], got[at].item()))
            where = f"at position {self.positions[at]}"
            yield Discrepancy("query scale", f"grows {first}", f"grows {second}", where)

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
        z = layout.planes(vectors)
        c = (z * z[:, :1].conj()).sum(0)
        sense = self.record.effective.turning.sense if self.record.effective.turning else 1
        frequencies = torch.tensor(turning.frequencies, dtype=torch.float64) * (sense or 1)
        bound = 10 * self.noise + 8 * 2**-24 * p[:, None] * frequencies.abs() + 1e-4
        apart = (c * torch.polar(torch.ones_like(frequencies), -p[:, None] * frequencies)).angle().abs()
        wrong = (apart > bound).any(1)
        if bool(wrong.any()):
            yield _explained(c, frequencies, p, wrong, apart)

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


def _gain(declared: LayerEncoding) -> float:
    """The declared factor on rotated vectors."""
    return 1.0 if declared.turning is None or declared.turning.gain is None else declared.turning.gain


def _explained(
    c: Complex[Tensor, "t m"],
    frequencies: Float[Tensor, " m"],
    p: Float[Tensor, " t"],
    wrong: Tensor,
    apart: Float[Tensor, "t m"],
) -> Discrepancy:
    """What far positions are instead of those of the tokens, or how their angles were rounded."""
    first, worst = int(p[wrong][0]), apart.max().item()
    for words, angles in _readings(p, frequencies, first):
        left = (c * torch.polar(torch.ones_like(angles), -(angles - angles[:1]))).angle().abs().max().item()
        if left <= max(EXPLAINED * worst, 1e-3):
            if words.startswith(tuple(DTYPES)):
                note = f"as when computed in low precision: {words} rounded"
                got = f"off by up to {worst:.2g} rad, from position {first} on"
                return Discrepancy("angles", "in proportion to position", got, note, residual=worst)
            return Discrepancy("positions", "those of the tokens", words)
    got = f"others from position {first} on, off by up to {worst:.2g} rad"
    return Discrepancy("frequencies", "those declared for this length", got, residual=worst)


def _readings(
    p: Float[Tensor, " t"], frequencies: Float[Tensor, " m"], first: int
) -> Iterator[tuple[str, Float[Tensor, "t m"]]]:
    """Angles at positions that are not read, stay, start again, or are rounded."""
    yield (
        "are counted within the call, whatever position_ids say",
        torch.arange(len(p))[:, None] * frequencies,
    )
    known = p[p < first].max()
    for end in dict.fromkeys((first - 1, first, int(known), first + 1)):
        yield f"stay at {end} from token {end} on", p.clamp(max=end)[:, None] * frequencies
        if end > 0:
            yield f"restart every {end} tokens", (p % end)[:, None] * frequencies
    for name, dtype in DTYPES.items():
        low = p.to(dtype).double()[:, None]
        yield f"{name} positions", low * frequencies
        rounded = frequencies.to(dtype).double()
        yield f"{name} frequencies", p[:, None] * rounded
        yield f"{name} angles", (p[:, None] * frequencies).to(dtype).double()
        yield f"{name} positions and angles", (low * frequencies).to(dtype).double()
        yield f"{name} frequencies, positions and angles", (low * rounded).to(dtype).double()


def _growth(
    call: Call, declaration: Declaration, record: LayerRecord, past: int, noise: float
) -> Iterator[Discrepancy]:
    """Where queries behind a cache grow otherwise than declared, against the first of them."""
    norms = call.q.double().norm(dim=-1)
    got = (norms / norms[..., :1]).mean((0, 1))
    places = range(past, past + len(got))
    wanted = [_declared(declaration, record, place + 1).query_scale or 1.0 for place in places]
    off = (got * wanted[0] / torch.tensor(wanted, dtype=torch.float64) - 1).abs() > max(1e-3, 10 * noise)
    if bool(off.any()):
        step = int(off.nonzero()[0])
        first, second = (f"grows {ratio:.5g} times" for ratio in (wanted[step] / wanted[0], got[step].item()))
        yield Discrepancy("query scale", first, second, f"from position {past} to {past + step}")


def _windows(
    model: nn.Module,
    declaration: Declaration,
    records: Sequence[LayerRecord],
    sizes: Sequence[int],
    noise: float,
    seed: int,
    findings: dict[str, list[Discrepancy]],
    unchecked: list[str],
) -> list[int]:
    """Sizes whose ends were looked at; adds to findings."""
    seen: list[int] = []
    for size in sizes:
        calls = None
        if size <= DEEPEST and takes_past(model):
            with contextlib.suppress(
                SpectropeError, *FAILURES
            ):  # which models with caches of their own raise
                calls = masks_behind(model, [one.module for one in records], size - AROUND, seed)
        if calls is None:
            unchecked.append(f"what changes after {size} tokens")
            continue
        seen.append(size)
        for one in records:
            if one.verdict == "matches":
                call, past = calls[one.module], size - AROUND
                findings[one.module] += [
                    *_ends_of(call, one, size),
                    *_growth(call, declaration, one, past, noise),
                ]
    return seen


def _ends_of(call: Call, record: LayerRecord, size: int) -> Iterator[Discrepancy]:
    """Where queries around the end of a window see other keys than declared."""
    mask, n, m = record.declared.mask, call.allowed.shape[-2], call.allowed.shape[-1]
    if mask is None or m != size - AROUND + n or not _looks_back(record):
        return
    query = torch.arange(m - n, m)[:, None]
    lag = query - torch.arange(m)[None, :]
    wanted = lag >= 0
    if mask.shape == "causal window" and mask.size:
        wanted &= lag < mask.size
    elif mask.shape == "causal chunk" and mask.size:
        wanted &= query // mask.size == torch.arange(m)[None, :] // mask.size
    got = call.allowed[0, 0].cpu()
    if torch.equal(wanted, got):
        return
    counts = got.sum(-1)
    whole = bool((counts == query.flatten() + 1).all())
    words = "causal" if whole else f"{int(counts[-1])} keys of query {int(query[-1])}"
    yield Discrepancy("mask", str(mask), words, f"looked at behind {m - n} tokens in a cache")


def with_far(record: LayerRecord, far: Far) -> LayerRecord:
    """A record with what differs at far positions."""
    wrong = far.findings.get(record.module, [])
    if not wrong or record.verdict not in ("matches", "differs"):
        return record
    return replace(record, verdict="differs", findings=(*record.findings, *wrong))
