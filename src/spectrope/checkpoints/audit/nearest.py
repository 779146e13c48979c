"""Find the known schedule that measured frequencies follow, if it is not the declared one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from spectrope.checkpoints.audit.compare import Discrepancy
from spectrope.checkpoints.audit.declared_rope import KINDS, schedule_of, trained_before
from spectrope.checkpoints.audit.encoding import Turning
from spectrope.checkpoints.audit.fields import Declaration
from spectrope.checkpoints.audit.precision import DTYPES
from spectrope.core import ConfigError

ALIKE = 2e-3  # Largest relative residual of a schedule that is named.
CLEAR = 1e-5  # Residuals below it are rounding, so that the likelier schedule is named.
SWAPS = (
    ("low_freq_factor", "high_freq_factor"),
    ("beta_fast", "beta_slow"),
    ("short_factor", "long_factor"),
)
USUAL = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0}
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0)


def named(
    findings: list[Discrepancy],
    fields: Declaration,
    parameters: dict[str, Any],
    effective: Turning | None,
    length: int,
) -> list[Discrepancy]:
    """Findings of frequencies with the nearest known schedule in their notes, if one is near.

    Args:
        findings: Of one layer.
        fields: The configuration.
        parameters: The layer's rotary parameters.
        effective: The rotation measured.
        length: Positions of the measurement.
    """
    if effective is None or not any(one.what in ("scaling", "frequencies") for one in findings):
        return findings
    width = effective.width
    near = nearest_schedule(fields, parameters, width, length, effective)
    if near is None:
        return findings
    words, residual, gain = near
    note = f"all pairs are those of {words}, residual {residual:.1g}"
    explained = effective.gain is not None and abs(effective.gain / gain**2 - 1) < ALIKE
    return [
        replace(one, note=f"{one.note}; {note}".removeprefix("; "), residual=residual)
        if one.what in ("scaling", "frequencies")
        else one
        for one in findings
        if not (explained and one.what == "attention factor")
    ]


def nearest_schedule(
    fields: Declaration, parameters: dict[str, Any], width: int, length: int, effective: Turning
) -> tuple[str, float, float] | None:
    """The schedule that explains all frequencies best, in words, its residual and its attention factor.

    Tried are other kinds of scaling with the declared parameters, none at all, parameters that are swapped,
    other factors, and other original lengths.
    """
    seen = torch.tensor(effective.frequencies, dtype=torch.float64)
    noise = 5 * torch.tensor(effective.errors, dtype=torch.float64)
    fitting: list[tuple[str, float, float]] = []
    for words, wanted, gain in _schedules(fields, parameters, effective, width, length):
        if len(wanted) != len(seen):
            continue
        beyond = ((seen - wanted.double()).abs() - noise).clamp(min=0)
        residual = (beyond / wanted.double().abs().clamp(min=1e-300)).max().item()
        if residual <= ALIKE:
            fitting.append((words, residual, gain))
    if not fitting:
        return None
    least = max(min(residual for _, residual, _ in fitting), CLEAR)
    alike = [*{one[0]: one for one in fitting if one[1] <= least}.values()][:2]
    return " or ".join(words for words, _, _ in alike), *alike[0][1:]


def _schedules(
    fields: Declaration, parameters: dict[str, Any], effective: Turning, width: int, length: int
) -> Iterator[tuple[str, Float[Tensor, " m"], float]]:
    """The declared frequencies rounded, then those of schedules near the declared one: words, and factors."""
    declared, gain = schedule_of(fields, parameters, width, length)
    for name, dtype in DTYPES.items():
        yield f"the declared schedule rounded to {name}", declared.to(dtype).double(), gain
    for words, changed, whole in _variants(fields, parameters, effective):
        try:
            held = {name: value for name, value in changed.items() if value is not None}
            yield words, *schedule_of(whole, held, width, length)
        except (ConfigError, KeyError, TypeError, ValueError):
            continue  # This variant lacks a parameter, or breaks a rule of its kind.


def _variants(
    fields: Declaration, parameters: dict[str, Any], effective: Turning
) -> Iterator[tuple[str, dict[str, Any], Declaration]]:
    """Schedules near the declared one, likeliest first: words, parameters, configuration."""
    declared = parameters.get("rope_type") or "default"
    for one, other in SWAPS:
        if one in parameters and other in parameters:
            swapped = parameters | {one: parameters[other], other: parameters[one]}
            if one == "low_freq_factor":  # the library's code then slows at once what is below the larger
                swapped[other] = swapped[one] * (1 + 1e-9)
            yield f"{declared} with {one} and {other} swapped", swapped, fields
    for kind in KINDS:
        if kind != declared:
            whole = {"default": "no scaling"}.get(kind, f"{kind} by the declared parameters")
            yield whole, USUAL | parameters | {"rope_type": kind}, fields
    for factor in (*FACTORS, _slowdown(parameters, effective)):
        if factor != parameters.get("factor"):
            yield f"{declared} with factor {factor:g}", parameters | {"factor": factor}, fields
    original = trained_before(fields, parameters) if declared in ("yarn", "llama3", "longrope") else None
    if original is None:
        yield from _usual(declared, parameters, fields)
        return
    limit = fields.get("max_position_embeddings")
    for length in dict.fromkeys((limit, *(int(original * 2**k) for k in (-1, 1, -2, 2, -3, 3, -4, 4, 5, 6)))):
        if length and length != original:
            whole = replace(fields, file=fields.file | {"original_max_position_embeddings": length})
            words = f"{declared} with original length {length}"
            yield words, parameters | {"original_max_position_embeddings": length}, whole
    yield from _usual(declared, parameters, fields)


def _usual(
    declared: str, parameters: dict[str, Any], fields: Declaration
) -> Iterator[tuple[str, dict[str, Any], Declaration]]:
    """The declared kind with parameters that it takes where none are given."""
    changed = {name: value for name, value in USUAL.items() if parameters.get(name, value) != value}
    if changed:
        names = " and ".join(f"{name} {value:g}" for name, value in changed.items())
        yield f"{declared} with {names}", parameters | changed, fields


def _slowdown(parameters: dict[str, Any], effective: Turning) -> float:
    """How many times slower the slowest pair is than the declared base makes it, to four digits."""
    m, base = len(effective.frequencies), float(parameters.get("rope_theta") or 10000.0)
    slowest = abs(effective.frequencies[-1])
    return float(f"{base ** (-(m - 1) / m) / slowest:.4g}") if slowest else 1.0
