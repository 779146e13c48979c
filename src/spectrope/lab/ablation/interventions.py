"""Interventions as data: which heads to change, and what takes the place of their outputs."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Literal, get_args

from spectrope.core.errors import UnknownNameError, require
from spectrope.models.decoder import DecoderConfig

Fill = Literal["zero", "mean", "resample", "position-only", "content-only", "value-bias", "latent-columns"]
COLUMNS: Fill = "latent-columns"


@dataclass(frozen=True, order=True)
class HeadAblation:
    """One head to change, counted from 0, always before the output projection.

    Args:
        layer: Layer of the head.
        head: Its number within the layer.
        fill: What takes the place of its output: "zero"; its "mean" over the tokens of a data set; the output
            on another example ("resample"); its output with queries and keys replaced by their means
            ("position-only"), or with all lags 0 ("content-only"); or its "value-bias", which is
            what zeroing the head's rows of the value weights leaves. "latent-columns" changes all heads of
            the layer instead, as the paper's code does to latent attention: see `fills.without_columns`.
    """

    layer: int
    head: int
    fill: str = "zero"

    def __post_init__(self) -> None:
        if self.fill not in get_args(Fill):
            raise UnknownNameError("fill", self.fill, get_args(Fill))

    def check(self, config: DecoderConfig) -> None:
        """Refuse a layer or head that a model does not have.

        Raises:
            ConfigError: One line with the range that exists.
        """
        require(0 <= self.layer < config.n_layers, self, "layer", f"between 0 and {config.n_layers - 1}")
        require(0 <= self.head < config.n_heads, self, "head", f"between 0 and {config.n_heads - 1}")


Variant = tuple[HeadAblation, ...]  # All that is changed at once; () is the intact model.


def single_heads(config: DecoderConfig, fill: str = "zero") -> list[Variant]:
    """Every head by itself, layer by layer."""
    return [(HeadAblation(*at, fill),) for at in _heads(config)]


def head_pairs(config: DecoderConfig, fill: str = "zero") -> list[Variant]:
    """Every pair of heads, of the same layer or of two."""
    return [tuple(HeadAblation(*at, fill) for at in pair) for pair in combinations(_heads(config), 2)]


def whole_layers(config: DecoderConfig, fill: str = "zero") -> list[Variant]:
    """All heads of each layer."""
    heads = range(config.n_heads)
    return [tuple(HeadAblation(layer, h, fill) for h in heads) for layer in range(config.n_layers)]


def growing(order: Iterable[HeadAblation]) -> list[Variant]:
    """The first head of `order`, the first two, and so on."""
    return list(accumulate(((head,) for head in order), lambda done, head: done + head))


def _heads(config: DecoderConfig) -> list[tuple[int, int]]:
    return [(layer, head) for layer in range(config.n_layers) for head in range(config.n_heads)]
