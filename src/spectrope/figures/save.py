"""Save a figure to a file."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import vl_convert

from spectrope.figures.base import FIGURES, declared_tables
from spectrope.figures.places import Format, check_figure
from spectrope.figures.spec import file_spec
from spectrope.figures.tables import read_tables
from spectrope.store import Run, write_output

VEGA_LITE = "6.4"
PIXELS = 2  # Of a PNG per CSS pixel.
# Fonts with the letter widths that an SVG is laid out by; a reader's wider one would cut long labels off.
SVG_FONT = "Arial, Helvetica, 'Liberation Sans', sans-serif"
STAND_IN = "\ufdd0"  # For "<" while a page is made; Unicode keeps it free of any meaning.
WRITERS: dict[Format, Callable[[dict[str, Any]], bytes]] = {
    ".png": lambda spec: vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=PIXELS),
    ".svg": lambda spec: written_svg(spec).encode(),
    ".pdf": lambda spec: vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE),
    ".html": lambda spec: _html(spec).encode(),
    ".json": lambda spec: json.dumps(spec, indent=2, allow_nan=False).encode(),
}


def figure_spec(runs: Sequence[Run], name: str) -> tuple[str, dict[str, Any]]:
    """The name of a figure, and its Vega-Lite specification with the data of some runs in it.

    Args:
        runs: Finished runs.
        name: A registered figure, such as "accuracy", "heatmap" or "kernel", or one in a file
            (`file.py:Class`), which is executed.

    Raises:
        UnknownNameError: If no figure has that name.
        ConfigError: If there is no run, or a file cannot be run.
        StoreError: If a run lacks what the figure draws.
    """
    name = FIGURES.resolve(name)
    figure = FIGURES[name]
    return name, file_spec(figure(), read_tables(runs, declared_tables([figure])))


def write_spec(spec: dict[str, Any], path: Path) -> Path:
    """Save a specification as a file, and return its path.

    Args:
        spec: A Vega-Lite specification.
        path: File to write, whose suffix determines the format: .png, .svg, .pdf, .html (self-contained) or
            .json (the specification).

    Raises:
        ConfigError: If the suffix is unknown.
        StoreError: If the file cannot be written.
    """
    write_output(path, WRITERS[check_figure(path)](spec))
    return path


def written_svg(spec: dict[str, Any]) -> str:
    """A specification as an SVG picture."""
    lettered = spec | {"config": spec.get("config", {}) | {"font": SVG_FONT}}
    return vl_convert.vegalite_to_svg(lettered, vl_version=VEGA_LITE)


def _html(spec: dict[str, Any]) -> str:
    """A page around a specification, of which no string can end the script that holds it."""
    safe = json.loads(json.dumps(spec).replace("<", STAND_IN))
    page = vl_convert.vegalite_to_html(safe, vl_version=VEGA_LITE, bundle=True)
    return page.replace(STAND_IN, "\\u003c")
