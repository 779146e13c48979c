"""Rotary modules of a checkpoint, and a context manager that scales their frequencies."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from spectrope.core import ConfigError, UnsupportedError
from spectrope.encodings import NTK, LongRoPE, Schedule, YaRN

FREQUENCIES, GAIN = "inv_freq", "attention_scaling"  # As rotary modules of the library call them.


@dataclass(frozen=True)
class RotaryModule:
    """One rotary module.

    Args:
        name: Its dotted name.
        module: The module, whose buffer `inv_freq` holds radians per position.
        frequencies: Those of the checkpoint, with shape (m,).
        gain: The checkpoint's factor on rotated queries and keys alike.
    """

    name: str
    module: nn.Module
    frequencies: Float[Tensor, " m"]
    gain: float

    @property
    def width(self) -> int:
        """Coordinates that it turns."""
        return 2 * len(self.frequencies)

    @property
    def base(self) -> float:
        """The base of its frequencies.

        Raises:
            UnsupportedError: If they are not geometric, so that the checkpoint scales them already.
        """
        logarithms = self.frequencies.double().log()
        m = len(logarithms)
        slope = float(logarithms[0] - logarithms[-1]) / (m - 1) if m > 1 else math.nan
        line = logarithms[0] - slope * torch.arange(m, dtype=torch.float64, device=logarithms.device)
        if (
            m < 2
            or slope <= 0
            or abs(float(logarithms[0])) > 1e-4
            or not torch.allclose(line, logarithms, atol=1e-3)
        ):
            raise UnsupportedError(
                f"{self.name} turns by frequencies that are not a geometric series from 1 down: the "
                "checkpoint scales positions already; methods none, linear and drope need no base, also as "
                "the judge."
            )
        return math.exp(slope * m)


def rotations_of(model: nn.Module) -> list[RotaryModule]:
    """The rotary modules of a model.

    Raises:
        UnsupportedError: If it has none that keeps frequencies as the library's do, or one recomputes them.
    """
    found = []
    for name, module in model.named_modules():
        frequencies = getattr(module, FREQUENCIES, None)
        if isinstance(frequencies, Tensor) and frequencies.ndim == 1:
            if getattr(module, "rope_type", "default") in ("dynamic", "longrope"):
                raise UnsupportedError(
                    f"{name} recomputes its frequencies by length ({module.rope_type}): the checkpoint is "
                    "extended already; `spectrope audit --length` says what it applies there."
                )
            gain = float(getattr(module, GAIN, 1.0))
            found.append(RotaryModule(name, module, frequencies.clone(), gain))
    if not found:
        raise UnsupportedError(
            f"{type(model).__name__} has no rotary module with frequencies to scale ({FREQUENCIES}); "
            "`spectrope audit` says which encoding it applies."
        )
    return found


ScaledModule = Callable[[RotaryModule, float, int], tuple[Tensor, float]]


def _unscaled(rotation: RotaryModule, factor: float, length: int) -> tuple[Tensor, float]:
    return rotation.frequencies, rotation.gain


def _linear(rotation: RotaryModule, factor: float, length: int) -> tuple[Tensor, float]:
    return rotation.frequencies / factor, rotation.gain


def _ntk(rotation: RotaryModule, factor: float, length: int) -> tuple[Tensor, float]:
    return _of(NTK(base=rotation.base, factor=factor), rotation)


def _yarn(rotation: RotaryModule, factor: float, length: int) -> tuple[Tensor, float]:
    return _of(YaRN(base=rotation.base, factor=factor, trained_length=length), rotation)


def _dropped(rotation: RotaryModule, factor: float, length: int) -> tuple[Tensor, float]:
    return torch.zeros_like(rotation.frequencies), 1.0


def _of(schedule: Schedule, rotation: RotaryModule) -> tuple[Tensor, float]:
    frequencies = schedule.frequencies(rotation.width).to(rotation.frequencies)
    return frequencies, rotation.gain * schedule.gain


def slowed(factors: tuple[float, ...]) -> ScaledModule:
    """LongRoPE with one factor per frequency, as a method of scaling."""

    def scale(rotation: RotaryModule, factor: float, length: int) -> tuple[Tensor, float]:
        scaling = {"factor": factor, "trained_length": length}
        schedule = LongRoPE(base=rotation.base, long_factors=factors, **scaling)
        frequencies = schedule.long_frequencies(rotation.width).to(rotation.frequencies)
        return frequencies, rotation.gain * schedule.gain

    return scale


METHODS: Mapping[str, ScaledModule] = {
    "none": _unscaled,
    "linear": _linear,
    "ntk": _ntk,
    "yarn": _yarn,
    "drope": _dropped,
}


@contextlib.contextmanager
def scaled(model: nn.Module, method: ScaledModule, factor: float, length: int) -> Iterator[nn.Module]:
    """Context manager that scales the rotary frequencies of the model and restores them on exit.

    Args:
        model: A Hugging Face model with rotary modules.
        method: A value of `METHODS`, or what `slowed` returns.
        factor: New length over the trained one.
        length: Trained length, in positions.

    Raises:
        ConfigError: If the factor is below 1.
        UnsupportedError: If the model has no frequencies that this method can scale.
    """
    if not 1 <= factor < math.inf:
        raise ConfigError(f"factor must be at least 1; got {factor:g}.")
    rotations = rotations_of(model)
    changes = [method(rotation, factor, length) for rotation in rotations]
    try:
        for rotation, (frequencies, gain) in zip(rotations, changes, strict=True):
            _set(rotation.module, frequencies, gain)
        yield model
    finally:
        for rotation in rotations:
            _set(rotation.module, rotation.frequencies, rotation.gain)


def _set(module: Any, frequencies: Tensor, gain: float) -> None:
    getattr(module, FREQUENCIES).copy_(frequencies)
    if hasattr(module, GAIN):
        setattr(module, GAIN, gain)
    elif gain != 1:
        name = type(module).__name__
        raise UnsupportedError(f"{name} has no factor on queries and keys; leave yarn out.")
