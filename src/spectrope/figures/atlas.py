"""The page and the figure of a causal atlas: heat maps of layer, head and frequency band."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from spectrope.figures.base import Panel, exact
from spectrope.figures.kinds.heatmap import (
    CELL,
    DROP,
    WIDTH,
    exact_values,
    head_cells,
    largest_of,
    unmeasured,
    whole_numbers,
)
from spectrope.figures.names import DIVERGING
from spectrope.figures.shell import Section, Table, rendered, write_page
from spectrope.figures.spec import panels_spec

BARS = "▁▂▃▄▅▆▇█"
TITLES: Mapping[str, tuple[str, str]] = {
    "remove-band": (
        "Without a band's rotation",
        "Positions no longer act through this frequency band: its pairs treat all keys as if at lag 0, or "
        "its Fourier components are removed from the bias. A cell with a cost needs this band.",
    ),
    "freeze-band": (
        "With a band frozen at the mean lag",
        "The band's pairs treat all keys as if at the mean lag of the head's attention. A cell with a cost "
        "needs the band to vary with the lag, not only its typical angle.",
    ),
    "keep-band": (
        "With this band only",
        "The rotation of all other bands is removed. A head with a low cost here works with this band alone.",
    ),
    "remove-band-off-sink": (
        "Without a band's rotation, first token spared",
        "As in the first figure, but the logits of the first token are unchanged. A cost in the first "
        "figure that is missing here was caused by disturbing the attention to the first token, a sink.",
    ),
    "zero": ("Without the head", "The head's output is set to zero: the total effect of the head."),
    "position-only": (
        "Position alone",
        "Queries and keys are replaced by their means: the head attends by position only. A head without a "
        "cost here works by position.",
    ),
    "content-only": (
        "Content alone",
        "All lags are 0: the head attends by content only. A head with a cost here needs positions.",
    ),
}
HEADS_SHOWN = 24
BARS_SHOWN = 12  # Lags in the table of heads.
LEAST = 1 / 3  # Share of a head's attention from which on it gives the head a role.
HEADS = (
    "Heads by what their removal costs. A head with at least a third of its attention on the first token is "
    "a sink, on the previous token a previous-token head, on what followed an earlier occurrence of the "
    "current token an induction head. A position head has a cost if its positions are removed (content "
    "only). If several heads do the same work, removing one of them costs little. Bars show mean attention "
    "at lags 0, "
    "1, 2 and so on. Costs are drops in points of accuracy; the costliest band is named with the cost of its "
    "removal."
)


@dataclass(frozen=True)
class AtlasTables:
    """What an atlas draws.

    Args:
        name: Name of the model.
        told: Description of the data it was measured on.
        bands: Name of each band, highest frequencies first.
        cells: A row per cell: layer, head, intervention, band, drop, low, high, n and call.
        heads: A row per head: layer, head, reach, sink, previous, induction, kernel and examples.
    """

    name: str
    told: str
    bands: tuple[str, ...]
    cells: pl.DataFrame
    heads: pl.DataFrame


def atlas_spec(tables: AtlasTables) -> dict[str, Any]:
    """All heat maps as one Vega-Lite specification, a row of panels per intervention."""
    panels = [panel for name in TITLES for panel in _panels(tables, name)]
    return panels_spec(panels, WIDTH, max(1, len(tables.bands)))


def write_atlas(tables: AtlasTables, path: Path, command: str = "") -> Path:
    """Write the page of an atlas, whole or not at all.

    Args:
        tables: What it draws.
        path: HTML file to write.
        command: Command that draws it again.

    Raises:
        StoreError: If the file cannot be written.
    """
    sections = [
        Section(name, title, caption, panels, WIDTH, command)
        for name, (title, caption) in TITLES.items()
        if (panels := _panels(tables, name))
    ]
    page = rendered(
        "atlas.html",
        [panel for section in sections for panel in section.panels],
        "atlas.css",
        atlas=tables,
        tables=[head_table(tables)],
        sections=sections,
        ramp=DIVERGING,
        limit=f"{largest_of(tables.cells, DROP):.3g}",
    )
    return write_page(page, path)


def head_table(tables: AtlasTables) -> Table:
    """The heads that cost most, with what they attend to and what they need."""
    heads = tables.heads
    for name in ("zero", "position-only", "content-only"):
        heads = heads.join(_whole_head(tables, name), on=["layer", "head"])
    heads, worst = heads.sort("zero", descending=True, nulls_last=True), _worst_bands(tables)
    rows = [
        {
            "layer.head": f"{head['layer']}.{head['head']}",
            "role": ", ".join(roles(head)),
            "first token": percent(head["sink"]),
            "previous": percent(head["previous"]),
            "induction": percent(head["induction"]),
            "mean lag": f"{head['reach']:z.1f}" if math.isfinite(head["reach"]) else "",
            "by lag": sparkline(head["kernel"][:BARS_SHOWN]),
            "removed": points(head["zero"]),
            "position alone": points(head["position-only"]),
            "content alone": points(head["content-only"]),
            "costliest band": worst.get((head["layer"], head["head"]), ""),
        }
        for head in heads.head(HEADS_SHOWN).iter_rows(named=True)
    ]
    more = len(tables.heads) - len(rows)
    shown = f" The {more} heads that cost less are left out." if more > 0 else ""
    return Table("heads", "Heads", HEADS + shown, rows)


def roles(head: Mapping[str, Any]) -> list[str]:
    """Roles of a head, by what it attends to and by whether it needs positions.

    Args:
        head: A row of the heads with the call of "content-only".
    """
    attention = {"sink": head["sink"], "previous token": head["previous"], "induction": head["induction"]}
    found = [name for name, share in attention.items() if share is not None and share >= LEAST]
    return [*found, *(["position"] if head["content-only call"] == "costs" else [])]


def percent(share: float | None) -> str:
    """A fraction in percent."""
    return "" if share is None or not math.isfinite(share) else f"{100 * share:.0f} %"


def points(drop: float | None) -> str:
    """A drop in points; empty if it was not measured."""
    return "" if drop is None else f"{drop:z.1f}"


def sparkline(values: list[float]) -> str:
    """Values from 0 up as bars of text, the largest at full height; blanks where there is none."""
    known = [value for value in values if math.isfinite(value)]
    top = max((*known, 0.0)) or 1.0
    heights = [max(value, 0.0) / top if math.isfinite(value) else None for value in values]
    return "".join(" " if height is None else BARS[round(height * (len(BARS) - 1))] for height in heights)


def _whole_head(tables: AtlasTables, intervention: str) -> pl.DataFrame:
    chosen = tables.cells.filter(intervention=intervention)
    columns = (pl.col("drop").alias(intervention), pl.col("call").alias(f"{intervention} call"))
    return chosen.select("layer", "head", *columns)


def _worst_bands(tables: AtlasTables) -> dict[tuple[int, int], str]:
    """The band of each head whose removal costs most, and its cost."""
    removed = tables.cells.filter(intervention="remove-band").drop_nulls("drop").sort("drop")
    worst = removed.select("layer", "head", "band", "drop").iter_rows()
    return {(layer, head): f"{band} ({drop:z.1f})" for layer, head, band, drop in worst}


def _panels(tables: AtlasTables, intervention: str) -> list[Panel]:
    """A heat map per band, all with one colour scale."""
    limit = largest_of(tables.cells, DROP)
    shown = tables.cells.filter(intervention=intervention).join(_pointed(tables), on=["layer", "head"])
    tooltip = [
        *whole_numbers("layer", "head"),
        *exact_values(DROP, ".2f"),
        *_text("call", "first token", "previous", "induction", "by lag"),
        exact("mean lag", "mean lag", ".1f"),
        *_text("examples"),
    ]
    parts = shown.with_columns(seed=pl.lit(0)).partition_by("band", as_dict=True, maintain_order=True)
    title = TITLES[intervention][0]
    return [
        Panel(
            title,
            _title(tables, band),
            {**unmeasured(part, DROP), **head_cells(part, limit, DROP, tooltip)},
            _height(part),
        )
        for (band,), part in parts.items()
    ]


def _pointed(tables: AtlasTables) -> pl.DataFrame:
    """What pointing at a cell shows of its head."""
    rows = [
        {
            "layer": head["layer"],
            "head": head["head"],
            "first token": percent(head["sink"]),
            "previous": percent(head["previous"]),
            "induction": percent(head["induction"]),
            "by lag": sparkline(head["kernel"]),
            "mean lag": head["reach"],
            "examples": head["examples"],
        }
        for head in tables.heads.iter_rows(named=True)
    ]
    return pl.DataFrame(rows)


def _text(*names: str) -> list[Any]:
    return [alt.Tooltip(f"{name}:N") for name in names]


def _title(tables: AtlasTables, band: Any) -> str:
    return "" if band is None else f"band {band}: {tables.bands[band]}"


def _height(part: pl.DataFrame) -> int:
    return part["layer"].n_unique() * CELL
