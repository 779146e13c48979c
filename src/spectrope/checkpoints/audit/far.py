"""Compare what layers apply at far positions with their declaration."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from spectrope.checkpoints.adapters import FAILURES, Call, layer_name
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import declared_layer, layer_type
from spectrope.checkpoints.audit.declared_rope import rope_parameters, trained_before
from spectrope.checkpoints.audit.encoding import LayerEncoding
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.layout import best_layout, moving_coordinates
from spectrope.checkpoints.audit.precision import DTYPES
from spectrope.checkpoints.audit.records import LayerRecord
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
    sizes = _sizes(declaration, records, length)
    stop = 0 if trained is None or trained <= length else trained
    findings: dict[str, list[Discrepancy]] = {one.module: [] for one in records}
    unchecked: list[str] = []
    positions = _rotations(model, declaration, records, length, stop, noise, seed, findings, unchecked)
    seen = _windows(model, declaration, records, sizes, noise, seed, findings, unchecked)
    return Far(tuple(positions), tuple(seen), tuple(unchecked), findings)


def _sizes(declaration: Declaration, records: Sequence[LayerRecord], length: int) -> list[int]:
    """Windows, chunks and floors of temperatures that hold more than the audited length."""
    masks = (one.declared.mask for one in records)
    sizes = {mask.size for mask in masks if mask is not None and mask.size}
    if declaration.get("attn_temperature_tuning"):
        sizes.add(int(declaration.get("floor_scale") or 8192))
    return sorted(size for size in sizes if size >= length)


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
            if in_turn:
                calls = far_calls(model, modules, positions, seed)
            else:
                calls = whole_calls(model, modules, positions, end, seed)
        except (SpectropeError, *FAILURES):  # which models of other attention, or of tables, raise
            unchecked.append(f"positions from {length} on, at which the model did not run")
            continue
        looked |= set(positions)
        for one in turning:
            declared = _declared(declaration, one, end)
            wrong = far_finding(calls[one.module], declared, declaration, one, positions, noise)
            findings[one.module] += [] if wrong is None else [wrong]
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


def far_finding(
    call: Call,
    declared: LayerEncoding,
    declaration: Declaration,
    record: LayerRecord,
    positions: Sequence[int],
    noise: float,
) -> Discrepancy | None:
    """Where a layer departs from its declaration at far positions, if it does."""
    p = torch.tensor(positions, dtype=torch.float64)
    if declared.turning is None:
        return None
    vectors = torch.cat([x.double().flatten(0, 1) for x in (call.q, call.k)])
    sizes = vectors.norm(dim=-1, keepdim=True).clamp(min=1e-300)
    vectors = vectors * (sizes[:, :1] / sizes)  # without a growth of the queries
    moving = moving_coordinates(vectors, noise)
    if not bool(moving.any()):
        same = f"the same for all tokens up to {positions[-1]}"
        return Discrepancy("positions", "those of the tokens", same)
    layout = best_layout(vectors, moving, noise)
    turning = declared.turning
    if layout is None or (layout.start, layout.width) != (turning.start, turning.width):
        return None
    z = layout.planes(vectors)
    c = (z * z[:, :1].conj()).sum(0)
    sense = record.effective.turning.sense if record.effective.turning else 1
    frequencies = torch.tensor(turning.frequencies, dtype=torch.float64) * (sense or 1)
    bound = 10 * noise + 8 * 2**-24 * p[:, None] * frequencies.abs() + 1e-4
    apart = (c * torch.polar(torch.ones_like(frequencies), -p[:, None] * frequencies)).angle().abs()
    wrong = (apart > bound).any(1)
    if not bool(wrong.any()):
        return None
    return _explained(c, frequencies, p, wrong, apart)


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
    if mask is None or m != size - AROUND + n or record.declared.sees_future is not False:
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
