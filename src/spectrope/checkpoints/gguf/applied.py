"""What llama.cpp applies in each layer of a GGUF file, from metadata and frequency factors."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from spectrope.checkpoints.audit.encoding import LayerEncoding, Mask, Turning
from spectrope.checkpoints.gguf.file import GGUFFile
from spectrope.checkpoints.gguf.runtime import LONG, SHORT, Rules
from spectrope.core import ConfigError
from spectrope.encodings import YaRN, geometric

BETA_FAST, BETA_SLOW = 32.0, 1.0


@dataclass(frozen=True)
class StatedScaling:
    """The scaling of frequencies that a file's metadata state, as llama.cpp reads them.

    Args:
        kind: Of `rope.scaling.type`; "linear" where the file states none.
        factor: By which slow frequencies are divided; 1 where none is stated, or the kind is "none".
        original: Positions before the extension.
        gain: Factor on queries and keys, beside YaRN's.
    """

    kind: str
    factor: float
    original: int
    gain: float

    @classmethod
    def of(cls, file: GGUFFile) -> "StatedScaling":
        """That of a file.

        Raises:
            ConfigError: If a value is no positive number.
        """
        kind = file.get("rope.scaling.type") or "linear"
        factor = file.get("rope.scaling.factor", "rope.scale_linear")
        if factor in (None, 0) or kind == "none":
            scale = 1.0
        else:
            scale = file.number("rope.scaling.factor", "rope.scale_linear")
        context = file.count("context_length")
        original = file.count("rope.scaling.original_context_length", default=context)
        return cls(str(kind), scale, original, file.number("rope.scaling.attn_factor", default=1.0))


def applied_layer(file: GGUFFile, rules: Rules, layer: int, length: int) -> LayerEncoding:
    """What one layer applies, in the order of rows that the file has.

    Args:
        file: The file.
        rules: Of its architecture.
        layer: Number of the layer.
        length: Positions of the runtime's context, on which LongRoPE's choice of factors depends.

    Raises:
        ConfigError: If metadata are missing, or no positive numbers, or factors are too few.
    """
    window = rules.has_window(file, layer)
    size = file.count("attention.sliding_window", default=rules.width or None) if window else None
    mask = Mask("causal") if size is None else Mask("causal window", size)
    if mask.size is not None and mask.size >= length:
        mask = Mask("causal")
    scale = _scale(file, rules, layer)
    if not rules.turns(file, layer):
        return LayerEncoding("none", mask=mask, scale=scale)
    turning = _turning(file, rules, layer, window=window, length=length)
    grown = _growth(file, length) if rules.heats else None
    return LayerEncoding("rotary", turning=turning, mask=mask, scale=scale, query_scale=grown)


def _scale(file: GGUFFile, rules: Rules, layer: int) -> float:
    """The factor on dot products."""
    if rules.scaled and file.get("attention.scale"):
        return file.number("attention.scale")
    if rules.by_embedding and file.count("block_count") == rules.by_embedding:
        heads = file.count("attention.head_count", layer=layer)
        return max(1, file.count("embedding_length") // heads) ** -0.5
    return width_of_heads(file, layer) ** -0.5


def _growth(file: GGUFFile, length: int) -> float | None:
    """The factor on queries at the last position p: 1 + b log(1 + floor(p / n)), n the original length."""
    if not file.get("attention.temperature_scale"):
        return None
    rate, floor = file.number("attention.temperature_scale"), StatedScaling.of(file).original
    return 1 + rate * math.log1p((length - 1) // floor)


def width_of_heads(file: GGUFFile, layer: int) -> int:
    """Coordinates of a head's queries."""
    return file.count(
        "attention.key_length",
        default=file.count("embedding_length") // file.count("attention.head_count", layer=layer),
    )


def rotated_width(file: GGUFFile, layer: int) -> int:
    """Rotated coordinates of a head.

    Raises:
        ConfigError: If they are an odd number, or more than a head has.
    """
    head_dim = width_of_heads(file, layer)
    width = file.count("rope.dimension_count", default=head_dim)
    if width % 2 or width > head_dim:
        raise ConfigError(
            f"{file.path}: {file.architecture}.rope.dimension_count must be an even number up to the width "
            f"of heads, {head_dim}; got {width}."
        )
    return width


def _turning(file: GGUFFile, rules: Rules, layer: int, *, window: bool, length: int) -> Turning:
    width, scaling = rotated_width(file, layer), StatedScaling.of(file)
    base = file.number("rope.freq_base", default=10000.0)
    if window and rules.own_base:
        base = file.number("rope.freq_base_swa", default=rules.local_base or base)
    if window and rules.local_unscaled:
        frequencies, gain = geometric(base, width), 1.0
    else:
        frequencies, gain = _scaled(file, rules, scaling, base, width)
    if (name := factor_tensor(file, rules, length)) is not None:
        frequencies = frequencies / _checked(file, file.array(name), width // 2)
    if not window or rules.local_gain:
        gain = gain * scaling.gain
    return Turning(
        start=0,
        width=width,
        head_dim=width_of_heads(file, layer),
        frequencies=tuple(frequencies.tolist()),
        errors=(0.0,) * (width // 2),
        gain=gain**2,
        pairing=rules.pairing,
        sense=1,
        position=0,
    )


def _scaled(
    file: GGUFFile, rules: Rules, scaling: StatedScaling, base: float, width: int
) -> tuple[torch.Tensor, float]:
    """Frequencies before factors, and YaRN's factor on queries and keys."""
    if scaling.kind != "yarn":
        return geometric(base, width) / scaling.factor, 1.0
    ends: dict[str, Any] = {"beta_fast": BETA_FAST, "beta_slow": BETA_SLOW}
    if rules.yarn:
        ends = {name: file.number(f"rope.scaling.yarn_{name}", default=value) for name, value in ends.items()}
    weight = file.get("rope.scaling.yarn_log_multiplier") if rules.yarn else None
    if weight:
        weight = file.number("rope.scaling.yarn_log_multiplier")
    attention = None
    if weight:
        attention = _mscale(scaling.factor, 1.0) / _mscale(scaling.factor, weight)
    schedule = YaRN(
        base=base,
        factor=scaling.factor,
        trained_length=scaling.original,
        attention_factor=attention,
        **ends,
    )
    return schedule.frequencies(width), schedule.gain


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def factor_tensor(file: GGUFFile, rules: Rules, length: int) -> str | None:
    """Name of the tensor that angles are divided by; None where the file has none that is loaded."""
    loaded = [name for name in rules.loads(file) if name in file.tensors]
    unused = SHORT if length > StatedScaling.of(file).original else LONG
    return next((name for name in loaded if name != unused), None)


def _checked(file: GGUFFile, factors: np.ndarray, pairs: int) -> torch.Tensor:
    """One factor per pair.

    Raises:
        ConfigError: If they are fewer, or one is no positive number.
    """
    values = torch.from_numpy(factors.astype(np.float64).ravel().copy())
    if len(values) != pairs:
        raise ConfigError(
            f"{file.path}: frequency factors must be {pairs}, one per pair of coordinates; got {len(values)}."
        )
    if not bool(((values > 0) & values.isfinite()).all()):
        raise ConfigError(f"{file.path}: frequency factors must be positive numbers; got {values.tolist()}.")
    return values
