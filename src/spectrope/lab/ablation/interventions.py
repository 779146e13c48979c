"""Interventions as data: which heads to change, and the replacements for their outputs."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from spectrope.core import require
from spectrope.lab.ablation.fills.base import resolved_fill
from spectrope.models import DecoderConfig


@dataclass(frozen=True, order=True)
class HeadAblation:
    """One head to change, counted from 0, always before the output projection.

    Args:
        layer: Layer of the head.
        head: Its number within the layer.
        fill: Replacement for its output: a name in `FILLS`, such as "zero", "mean", "resample",
            "position-only" or "content-only", one with a setting, such as ``remove-band@1of4``, or a class in
            a file (`file.py:Class`), which is executed.

    Raises:
        UnknownNameError: If no fill has that name.
        ConfigError: If the file cannot be run.
    """

    layer: int
    head: int
    fill: str = "zero"

    def __post_init__(self) -> None:
        object.__setattr__(self, "fill", resolved_fill(self.fill))

    def check(self, config: DecoderConfig) -> None:
        """Check that a model has this layer and head.

        Raises:
            ConfigError: If it does not.
        """
        require(0 <= self.layer < config.n_layers, self, "layer", f"between 0 and {config.n_layers - 1}")
        require(0 <= self.head < config.n_heads, self, "head", f"between 0 and {config.n_heads - 1}")


Variant = tuple[HeadAblation, ...]  # Ablations applied together; () is the intact model.


def single_heads(config: DecoderConfig, fill: str = "zero") -> list[Variant]:
    """Every head by itself, layer by layer."""
    return [(HeadAblation(*at, fill),) for at in _heads(config)]


def growing(order: Iterable[HeadAblation]) -> list[Variant]:
    """The first head of `order`, the first two, and so on."""
    return list(accumulate(((head,) for head in order), lambda done, head: done + head))


def _heads(config: DecoderConfig) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
