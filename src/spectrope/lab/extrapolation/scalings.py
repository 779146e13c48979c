"""Scaling rules for the positions of a trained model, without further training."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from spectrope.encodings import NTK, Geometric, Interpolated, Linear, NoPE, Schedule, YaRN
from spectrope.models import DecoderConfig

RescaledModel = Callable[[DecoderConfig, float], DecoderConfig | None]
LONGROPE = "longrope"  # Its factors are searched on examples: see `search_slowdowns`.


def unscaled(model: DecoderConfig, factor: float) -> DecoderConfig:
    """The model as it was trained."""
    return model


def dropped(model: DecoderConfig, factor: float) -> DecoderConfig | None:
    """The model without any encoding, as in DroPE without recalibration; None if it has none."""
    return None if isinstance(model.encoding, NoPE.Config) else replace(model, encoding=NoPE.Config())


def interpolated(model: DecoderConfig, factor: float) -> DecoderConfig | None:
    """The model with positions compressed into the trained range; None if nothing reads positions."""
    if isinstance(model.encoding, NoPE.Config):
        return None
    return replace(model, positions=Interpolated(trained_length=model.max_length))


def rescheduled(model: DecoderConfig, schedule: Callable[[float], Schedule]) -> DecoderConfig | None:
    """The model with every geometric schedule replaced by another one; None if it has none.

    Args:
        model: The model.
        schedule: From the base of the geometric schedule to the other one.
    """
    encoding = _rescheduled(model.encoding, schedule)
    return None if encoding == model.encoding else replace(model, encoding=encoding)


def _rescheduled(value: Any, schedule: Callable[[float], Schedule]) -> Any:
    if isinstance(value, Geometric):
        return schedule(value.base)
    if isinstance(value, tuple):
        return tuple(_rescheduled(item, schedule) for item in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    held = {field.name: getattr(value, field.name) for field in fields(value)}
    changed = {name: _rescheduled(inner, schedule) for name, inner in held.items()}
    return replace(value, **changed) if changed != held else value


def linear(model: DecoderConfig, factor: float) -> DecoderConfig | None:
    """All frequencies slowed by the factor."""
    return rescheduled(model, lambda base: Linear(base=base, factor=factor))


def ntk(model: DecoderConfig, factor: float) -> DecoderConfig | None:
    """NTK-aware scaling by the factor."""
    return rescheduled(model, lambda base: NTK(base=base, factor=factor))


def yarn(model: DecoderConfig, factor: float) -> DecoderConfig | None:
    """YaRN by the factor, with the trained length of the model."""
    return rescheduled(model, lambda base: YaRN(base=base, factor=factor, trained_length=model.max_length))


SCALINGS: Mapping[str, RescaledModel | None] = {
    "none": unscaled,
    "linear": linear,
    "ntk": ntk,
    "yarn": yarn,
    LONGROPE: None,
    "drope": dropped,
    "interpolated": interpolated,
}
