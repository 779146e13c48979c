"""Base class of figures, which draw panels from the tables of runs, on pages and in files."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import altair as alt
import polars as pl

from spectrope.core import ConfigError, Registered, Registry, StoreError
from spectrope.figures.names import styles
from spectrope.figures.tables import Tables

FIGURES: Registry[type["Figure"]] = Registry("figure", "spectrope.figures.kinds", "Figure")
EMPHASIS = "emphasis"  # The parameter that holds the encoding to be shown above the others, or "".


@dataclass(frozen=True)
class Marks:
    """One layer of marks, with its rows.

    Args:
        rows: The data, JSON-ready.
        chart: Mark and encoding, without the data, which altair would copy over and over.
    """

    rows: Sequence[Mapping[str, Any]]
    chart: alt.Chart

    def spec(self) -> dict[str, Any]:
        """Mark and encoding alone, without the top-level fields that altair adds."""
        spec = self.chart.to_dict(validate=False)
        return {name: spec[name] for name in ("mark", "encoding")}


@dataclass(frozen=True)
class Panel:
    """One small chart.

    Args:
        group: Heading that it shares with its neighbours.
        title: What distinguishes it from them; empty for a single panel.
        layers: What is drawn, by name, from back to front.
        height: Pixels between the axes.
    """

    group: str
    title: str
    layers: Mapping[str, Marks]
    height: int


class Figure(Registered, ABC):
    """One kind of figure.

    A subclass registers its name (`class Curves(Figure, name="curves")`), under which the command line and
    the page know it.
    """

    registry = FIGURES
    kind: ClassVar[str]
    title: ClassVar[str]
    place: ClassVar[int] = 100  # Order on the page: scores from 10, ablation from 20, spectra from 30.
    needs: ClassVar[str] = "metrics"  # The table that it draws, as `tables[self.needs]`.
    reads: ClassVar[Mapping[str, Any]] = {}  # Its columns and their types, if `Tables` has no such field.
    key: ClassVar[Literal["encodings", "drops", "none"]] = (
        "none"  # What colours stand for, if they need a legend.
    )
    width: ClassVar[int] = 360  # Of a panel in a file, and about the least on the page, in pixels.
    columns: ClassVar[int] = 2  # Panels side by side in a file.

    def __init_subclass__(cls, *, name: str, **kwargs: Any) -> None:
        """Register the class under `name`.

        Raises:
            ConfigError: If it draws a table whose columns it does not declare.
        """
        if not cls.reads and cls.needs not in {field.name for field in fields(Tables)}:
            raise ConfigError(
                f"figure {name!r} draws table {cls.needs!r} and must declare its columns, as in "
                'reads = {"layer": pl.Int64, "drop": pl.Float64}.'
            )
        super().__init_subclass__(name=name, **kwargs)

    @abstractmethod
    def panels(self, tables: Tables) -> list[Panel]:
        """The panels, group by group."""

    @abstractmethod
    def caption(self, tables: Tables) -> str:
        """How to read it, in a sentence or two."""

    def ramp(self, tables: Tables, setting: str) -> float | None:
        """Drop at the end of the colour scale of a group, where colour means drop."""
        return None

    def check(self, tables: Tables) -> None:
        """Check that the tables contain what this figure draws.

        Raises:
            StoreError: If no run has the table.
        """
        if tables[self.needs].is_empty():
            raise StoreError(
                f"figure {self.kind!r} draws table {self.needs!r}, which none of these runs has."
            )


def declared_tables(figures: Iterable[type[Figure]]) -> dict[str, dict[str, Any]]:
    """The columns that some figures declare, by table, with their types."""
    declared: dict[str, dict[str, Any]] = {}
    for figure in figures:
        if figure.reads:
            declared.setdefault(figure.needs, {}).update(figure.reads)
    return declared


def rows(frame: pl.DataFrame, *quantities: str) -> list[dict[str, Any]]:
    """The rows of a table as JSON-ready values, without those where a quantity is missing or not finite."""
    return frame.filter(pl.all_horizontal(pl.col(quantities).is_finite().fill_null(value=False))).to_dicts()


def colour(encodings: Sequence[str]) -> alt.Color:
    """Colour by encoding, the same in all figures."""
    chosen = styles(encodings)
    scale = alt.Scale(domain=list(chosen), range=[style.colour for style in chosen.values()])
    return alt.Color("encoding:N", scale=scale, title=None)


def dash(encodings: Sequence[str]) -> alt.StrokeDash:
    """Dash pattern by encoding, for readers who cannot distinguish the colours."""
    chosen = styles(encodings)
    scale = alt.Scale(domain=list(chosen), range=[list(style.dash) or [1, 0] for style in chosen.values()])
    return alt.StrokeDash("encoding:N", scale=scale, title=None)


def emphasised(strong: float = 1.0, weak: float = 0.08) -> Any:
    """Opacity that sinks to `weak` while another encoding is emphasised."""
    test = f"!{EMPHASIS} || {EMPHASIS} === datum.encoding"
    return alt.condition(test, alt.value(strong), alt.value(weak))


def exact(field: str, title: str, form: str = ".2f") -> alt.Tooltip:
    """A tooltip entry with the exact value of a quantity."""
    return alt.Tooltip(f"{field}:Q", title=title, format=form)


def span(values: Iterable[float], least: float) -> list[float]:
    """The range of some values and 0, at least `least` wide, with some padding."""
    with_zero = [0.0, *values]
    low, high = min(with_zero), max(with_zero)
    high = max(high, low + least)
    return [low - 0.04 * (high - low), high + 0.04 * (high - low)]
