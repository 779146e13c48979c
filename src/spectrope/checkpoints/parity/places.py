"""Places in prompts after which predictions are compared, and how far two runtimes differ by position."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Float, Int
from torch import Tensor

from spectrope.checkpoints.parity.observed import Observed, agreement, divergence, rank_correlations
from spectrope.stats import mean_intervals

TOP = 5  # Tokens of which agreement is counted.
RANKED = 20  # Tokens whose order is correlated.
PLACES = 48  # In a prompt, at most, after which tokens are predicted.


def places_of(length: int, most: int = PLACES) -> Int[Tensor, " m"]:
    """Places in a prompt, half of them at equal distances and half at equal ratios; the last is one."""
    if length <= most:
        return torch.arange(length)
    even = torch.linspace(0, length - 1, most - most // 2)
    ratios = torch.logspace(0, np.log10(length), most // 2) - 1
    return torch.cat([even, ratios]).round().long().clamp(0, length - 1).unique()


def by_position(first: Observed, second: Observed, places: Int[Tensor, " m"]) -> pl.DataFrame:
    """Measures of the difference over ranges of positions, each twice as long as the one before."""
    measures = {
        "divergence": divergence(second, first).numpy(),
        "agreement": agreement(second, first, TOP).numpy(),
        "rank": rank_correlations(second, first, RANKED),
    }
    rows, low = [], 0
    for high in _ends(int(places[-1]) + 1):
        inside = ((places >= low) & (places < high)).numpy()
        if inside.any():
            ranges = {name: _interval(x[:, inside]) for name, x in measures.items()}
            rows.append({"from": low, "to": high - 1, "places": int(inside.sum())} | _columns(ranges))
        low = high
    return pl.DataFrame(rows)


def _ends(length: int) -> list[int]:
    return [*(2**k for k in range(4, 30) if 2**k < length), length]


def _interval(x: Float[np.ndarray, "n m"]) -> Sequence[float | None]:
    """Mean over places of each prompt, then over prompts with its interval."""
    known = ~np.isnan(x)
    means = np.where(known, x, 0.0).sum(1)[known.any(1)] / known.sum(1)[known.any(1)]
    if len(means) < 2:
        return (None, None, None)
    interval = mean_intervals(means)
    return tuple(map(float, (interval.estimate, interval.low, interval.high)))


def _columns(ranges: dict[str, Sequence[float | None]]) -> dict[str, float | None]:
    return {
        name + part: value
        for name, values in ranges.items()
        for part, value in zip(("", "_low", "_high"), values, strict=True)
    }


def as_text(measured: pl.DataFrame) -> pl.DataFrame:
    """The measures with their intervals in one column each."""
    rows = measured.to_dicts()
    return pl.DataFrame(
        {
            "positions": [f"{row['from']} to {row['to']}" for row in rows],
            "divergence in nats": [_with_interval(row, "divergence", ".2g") for row in rows],
            f"top {TOP} agree": [_with_interval(row, "agreement", ".2f") for row in rows],
            "rank correlation": [_with_interval(row, "rank", ".2f") for row in rows],
        }
    )


def _with_interval(row: dict[str, Any], name: str, style: str) -> str:
    if row[name] is None:
        return "not reported"
    value, low, high = (format(row[name + part] + 0.0, style) for part in ("", "_low", "_high"))
    return f"{value} [{low}, {high}]"
