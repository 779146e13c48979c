"""Encoders of sounds: what they take, and how much of it makes so many positions."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from spectrope.checkpoints.adapters.hooks import Enough, before, states_of
from spectrope.core import ConfigError

LEAST = 64  # Frames or samples from which on an encoder is tried.
MOST = 2**20  # And up to which.
FIRST_BLOCK = "layers.0"


@dataclass(frozen=True)
class SoundForm:
    """How an architecture takes a sound.

    Args:
        name: Of the argument.
        shape: Of its value, given a configuration, rows and frames or samples.
        mask: Name of the argument that says which frames are no padding, where it must be given.
        fixed: Whether it takes sounds of one length alone, which its configuration states in positions.
    """

    name: str
    shape: Callable[[Any, int, int], tuple[int, ...]]
    mask: str = ""
    fixed: bool = False


def _bands_first(config: Any, rows: int, frames: int) -> tuple[int, ...]:
    return rows, config.num_mel_bins, frames


def _bands_last(config: Any, rows: int, frames: int) -> tuple[int, ...]:
    return rows, frames, config.num_mel_bins


SPECTROGRAM = SoundForm("input_features", _bands_first)
FRAMES = SoundForm("input_features", _bands_last)
WHISPER = SoundForm("input_features", _bands_first, fixed=True)
SAMPLES = SoundForm("input_values", lambda _, rows, samples: (rows, samples))
CHANNEL = SoundForm("input_values", lambda _, rows, samples: (rows, 1, samples))
FORMS = {
    "AudioFlamingo3Encoder": replace(WHISPER, mask="input_features_mask"),
    "GlmAsrEncoder": SPECTROGRAM,
    "LasrEncoder": FRAMES,
    "MoonshineEncoder": SAMPLES,
    "ParakeetEncoder": FRAMES,
    "PeAudioEncoder": CHANNEL,
    "Qwen2AudioEncoder": WHISPER,
    "VoxtralEncoder": WHISPER,
    "VoxtralRealtimeEncoder": SPECTROGRAM,
    "WhisperEncoder": WHISPER,
}


@dataclass(frozen=True)
class SoundScale:
    """How many frames or samples make how many positions.

    Args:
        start: So many of them.
        positions: What those make.
        stride: Of them that each further position takes.
    """

    start: int
    positions: int
    stride: int


_SCALES: "WeakKeyDictionary[nn.Module, SoundScale]" = WeakKeyDictionary()


def is_sound_encoder(model: nn.Module) -> bool:
    """Whether a model is an encoder of sounds of a known form."""
    return type(model).__name__ in FORMS


def fixed_positions(model: nn.Module) -> int | None:
    """Positions of all sounds that an encoder takes; None if they may have any length."""
    form, config = FORMS.get(type(model).__name__), getattr(model, "config", None)
    return int(getattr(config, "max_source_positions", 0)) if form is not None and form.fixed else None


def sound_of(model: nn.Module, rows: int, positions: int) -> dict[str, Tensor]:
    """Arguments of an encoder's forward call: a constant sound of so many positions.

    Raises:
        ConfigError: If it takes no sound of that length.
    """
    form = FORMS[type(model).__name__]
    scale, fixed = scale_of(model), fixed_positions(model)
    length = scale.start + (positions - scale.positions) * scale.stride
    if fixed not in (None, positions) or length < 1:
        raise ConfigError(f"{type(model).__name__} takes {fixed or 'more'} positions; got {positions}.")
    return _constant(model, form, rows, length)


def scale_of(model: nn.Module) -> SoundScale:
    """How many frames or samples make how many positions, which is measured once.

    Raises:
        ConfigError: If no sound of a usual length passes.
    """
    if model not in _SCALES:
        _SCALES[model] = _measured(model)
    return _SCALES[model]


def _measured(model: nn.Module) -> SoundScale:
    fixed, form = fixed_positions(model), FORMS[type(model).__name__]
    if fixed is not None:
        stride = 2  # Of Whisper's second convolution.
        return SoundScale(fixed * stride, fixed, stride)
    length = LEAST
    while length <= MOST:
        first, second = _positions(model, form, length), _positions(model, form, 2 * length)
        if first > 1 and second > first:
            start, stride = _first_length(model, form, length, first)
            return SoundScale(start, first + 1, stride)
        length *= 2
    raise ConfigError(f"{type(model).__name__} takes no sound of up to {MOST} frames or samples.")


def _first_length(model: nn.Module, form: SoundForm, length: int, positions: int) -> tuple[int, int]:
    """The least length that makes one position more, and how much longer one makes another."""
    least = _least(model, form, length, positions + 1)
    return least, _least(model, form, least, positions + 2) - least


def _least(model: nn.Module, form: SoundForm, below: int, positions: int) -> int:
    """The least length above one that is too short that makes so many positions, by bisection."""
    above = 2 * below
    while above - below > 1:
        middle = (below + above) // 2
        if _positions(model, form, middle) >= positions:
            above = middle
        else:
            below = middle
    return above


@torch.no_grad()
def _positions(model: nn.Module, form: SoundForm, length: int) -> int:
    """Positions that enter the first block for a sound of that length; 0 if it is too short."""
    found: list[int] = []

    def look(_: str, args: Any, given: dict[str, Any]) -> None:
        found.append(states_of(args, given).shape[1])
        raise Enough

    with before(model, [FIRST_BLOCK], look), contextlib.suppress(Enough, RuntimeError):
        model(**_constant(model, form, 1, length))
    return found[0] if found else 0


def _constant(model: nn.Module, form: SoundForm, rows: int, length: int) -> dict[str, Tensor]:
    """Arguments for a constant sound of so many frames or samples."""
    like = next(model.parameters())
    mask = {form.mask: like.new_ones(rows, length, dtype=torch.long)} if form.mask else {}
    return {form.name: like.new_ones(form.shape(model.config, rows, length)), **mask}
