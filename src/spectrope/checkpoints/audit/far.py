"""Compare what layers apply at far positions with their declaration."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from spectrope.checkpoints.adapters import FAILURES, Call
from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declaration import layer_type
from spectrope.checkpoints.audit.declared_rope import rope_parameters, trained_before
from spectrope.checkpoints.audit.exercised import carried_out
from spectrope.checkpoints.audit.far_encoding import GROWTH_AT, FarEncoding
from spectrope.checkpoints.audit.far_layer import NEAR, FarLayer, declared_at, growth, size_tolerance
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.norms import freed_of_norms, freed_of_scaling
from spectrope.checkpoints.audit.records import LayerRecord
from spectrope.checkpoints.probes.constant_content import LayerKernel
from spectrope.checkpoints.probes.far import (
    AROUND,
    DEEPEST,
    chosen_positions,
    far_kernels,
    masks_behind,
    takes_past,
    takes_positions,
    whole_kernels,
    whole_length,
)
from spectrope.core import SpectropeError

SWITCHING = ("dynamic", "longrope")  # Schedules that turn all positions otherwise in longer sequences.
SMALL = 32  # Tokens that serving modes have in any model that takes as many.


@dataclass(frozen=True)
class Far:
    """Positions that were tested beyond an audit's length, and masks that were tested behind a cache.

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
    """Probe positions from the audit's length to the declared one, and the ends of causal windows and chunks.

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
    reached = (trained or 0) * (2 if _grows(declaration) else 1)
    stop = reached if reached > length else 0
    findings: dict[str, list[Discrepancy]] = {one.module: [] for one in records}
    unchecked = [*_out_of_reach(records, length, stop)]
    positions = _rotations(model, declaration, records, length, stop, noise, seed, findings, unchecked)
    seen = _windows(model, declaration, records, sizes, noise, seed, findings, unchecked)
    return Far(tuple(positions), tuple(seen), tuple(unchecked), findings)


def _sizes(declaration: Declaration, records: Sequence[LayerRecord]) -> list[int]:
    """Causal windows, chunks and floors of temperatures that may end beyond the tokens of serving modes."""
    masks = (one.declared.mask for one in records if _looks_back(one))
    sizes = {mask.size for mask in masks if mask and mask.size}
    if declaration.get("attn_temperature_tuning"):
        sizes.add(int(declaration.get("floor_scale") or 8192))
    return sorted(size for size in sizes if size > SMALL)


def _out_of_reach(records: Sequence[LayerRecord], length: int, stop: int) -> Iterator[str]:
    """What would take a pass over all tokens, in words."""
    masks = {one.declared.mask for one in records if not _looks_back(one)}
    for size in sorted({mask.size for mask in masks if mask and mask.size and mask.size >= length - 1}):
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
    looked = set[int]()
    for end in (one for one in ends if one > length):
        positions = chosen_positions(boundaries(declaration, records), length, end)
        try:
            near, calls = (
                _calls(model, records, some, seed, noise, in_turn=in_turn) for some in (NEAR, positions)
            )
        except (SpectropeError, *FAILURES):  # which models of other attention, or of tables, raise
            unchecked.append(f"positions from {length} on, at which the model did not run")
            continue
        looked |= set(positions)
        for one in (one for one in records if one.verdict == "matches"):
            far = FarLayer(declaration, one, near[one.module], calls[one.module], tuple(positions), noise)
            findings[one.module] += far.findings()
    return sorted(looked)


def _calls(
    model: nn.Module,
    records: Sequence[LayerRecord],
    positions: Sequence[int],
    seed: int,
    noise: float,
    *,
    in_turn: bool,
) -> dict[str, Call]:
    """Calls of each layer at these positions, by module, freed of norms and factors behind a rotation."""
    modules = [one.module for one in records]
    if in_turn:
        kernels = far_kernels(model, modules, torch.tensor(positions), seed)
    else:
        kernels = whole_kernels(model, modules, positions, positions[-1] + 1, seed)
    last = {one.module for one in records if one.declared.normalised_after}
    even = {name: freed_of_scaling(one, model, positions) for name, one in kernels.items()}
    return {
        name: (freed_of_norms(one, model, noise) if name in last else one).call for name, one in even.items()
    }


def _ends(declaration: Declaration, length: int, stop: int) -> list[int]:
    """Lengths of the passes: the declared one, that up to which another list of factors holds, and that at
    which a schedule that depends on the length has grown."""
    if _grows(declaration):
        return [stop // 2, stop]
    long = [one for one in _schedules(declaration) if one.get("rope_type") == "longrope"]
    originals = {trained_before(declaration, one) for one in long}
    return [*sorted(one for one in originals if length < one < stop), stop]


def switches_after(declaration: Declaration) -> int | None:
    """Tokens after which a schedule turns all positions, also earlier ones, otherwise; None if none does."""
    switching = [one for one in _schedules(declaration) if one.get("rope_type") in SWITCHING]
    return min((trained_before(declaration, one) for one in switching), default=None)


def _grows(declaration: Declaration) -> bool:
    """Whether the schedule changes with the length, beyond the declared one."""
    return any(one.get("rope_type") == "dynamic" for one in _schedules(declaration))


def _schedules(declaration: Declaration) -> list[dict[str, Any]]:
    """Parameters of the rotation of each kind of layer."""
    kinds = dict.fromkeys([*(declaration.get("layer_types") or ()), layer_type(declaration, 0)])
    return [rope_parameters(declaration, kind) for kind in kinds]


def boundaries(declaration: Declaration, records: Sequence[LayerRecord]) -> list[int]:
    """Positions at which an encoding may change."""
    fields = (
        declaration.get("original_max_position_embeddings"),
        *(one.get("original_max_position_embeddings") for one in _schedules(declaration)),
        declaration.get("floor_scale"),
    )
    sizes = [one.declared.mask.size for one in records if one.declared.mask and one.declared.mask.size]
    return sorted({int(value) for value in (*fields, *sizes) if value})


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
        around = alone = None
        if size <= DEEPEST and takes_past(model):
            behind = partial(masks_behind, model, [one.module for one in records], seed=seed)
            with contextlib.suppress(
                SpectropeError, *FAILURES
            ):  # which models with caches of their own raise
                around, alone = behind(size - AROUND), behind(size + AROUND, tokens=1)
        if around is None or alone is None:
            unchecked.append(f"what changes after {size} tokens")
            continue
        seen.append(size)
        for one in records:
            if one.verdict == "matches":
                call, past = around[one.module].call, size - AROUND
                places = range(past, past + call.q.shape[2])
                grown = growth(call, declaration, one.module, places, size_tolerance(noise))
                wrong = [*_ends_of(call, one, past)] or [*_alone(alone[one.module], one, size + AROUND)]
                findings[one.module] += [*wrong, *grown]
    return seen


def _alone(kernel: LayerKernel, record: LayerRecord, past: int) -> list[Discrepancy]:
    """The same for one token behind the window, by what its attention function does with random inputs."""
    call, unexplained = carried_out(kernel.call, kernel.exercise)
    return [*_ends_of(call, record, past)] or unexplained


def _ends_of(call: Call, record: LayerRecord, past: int) -> Iterator[Discrepancy]:
    """Where queries around the end of a window see other keys than declared."""
    mask, n, m = record.declared.mask, call.allowed.shape[-2], call.allowed.shape[-1]
    if mask is None or m != past + n or not _looks_back(record):
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


def with_far_encoding(
    record: LayerRecord, far: Far, declaration: Declaration, length: int, trained: int | None
) -> LayerRecord:
    """A record with what the layer is declared to apply beyond the audited length.

    Args:
        record: Of the layer.
        far: What was looked at there.
        declaration: The configuration.
        length: Of the audit.
        trained: Positions that the configuration gives the model; None if it says nothing.
    """
    matches, end = record.verdict == "matches", (trained or length) * (2 if _grows(declaration) else 1)
    near, at = (declared_at(declaration, record.module, one) for one in (length, max(end, length)))
    known, found = (() if one.turning is None else one.turning.frequencies for one in (near, at))
    same = len(found) == len(known) and np.allclose(found, known, rtol=1e-9, atol=0)
    grown = (declared_at(declaration, record.module, one + 1).query_scale for one in GROWTH_AT)
    mask = record.declared.mask
    size = mask.size if mask is not None else None
    limited = size is not None and (trained is None or size < trained)
    within = size is not None and size < (length if _looks_back(record) else length - 1)
    encoding = FarEncoding(
        window=str(mask) if limited else "",
        window_seen=not limited or (matches and (within or size in far.windows)),
        length=max(end, length),
        seen=matches and end <= max((length, *(one + 1 for one in far.positions))),
        frequencies=found if matches or not same else (),
        grows=not same,
        switch=_switch(declaration, record),
        gain=None if at.turning is None else at.turning.gain,
        growth=tuple(one or 1.0 for one in grown),
    )
    return replace(record, far=encoding)


def _switch(declaration: Declaration, record: LayerRecord) -> int:
    """Tokens after which the layer's schedule turns all positions otherwise; 0 if none does."""
    own = declaration.of(record.stack)
    parameters = rope_parameters(own, layer_type(own, record.layer))
    switching = record.declared.turning is not None and parameters.get("rope_type") in SWITCHING
    return trained_before(own, parameters) if switching else 0
