"""Figures and reports of runs: drawn in a notebook, or written to a file."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spectrope.figures import figure_spec, write_report, write_spec, written_svg
from spectrope.front.runs import as_runs
from spectrope.store import Run


@dataclass(frozen=True, repr=False)
class Drawing:
    """A figure of some runs, which a notebook displays.

    Args:
        name: Of the figure, as in `FIGURES`.
        spec: Its Vega-Lite specification, with the data in it; `altair.Chart.from_dict` takes it.
    """

    name: str
    spec: dict[str, Any]

    def save(self, path: str | Path) -> Path:
        """Write it to a file, whole or not at all, and return the path.

        Args:
            path: Its suffix says how: .png, .svg, .pdf, .html (one file that asks the network for nothing)
                or .json (the specification).

        Raises:
            ConfigError: If the suffix is another.
            StoreError: If the file cannot be written.
        """
        return write_spec(self.spec, Path(path))

    def __repr__(self) -> str:
        return f"figure {self.name!r}; a notebook displays it, and .save({self.name + '.svg'!r}) writes it"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"image/svg+xml": written_svg(self.spec), "text/plain": repr(self)}


def figure(runs: Run | Iterable[Run] | str | Path, name: str) -> Drawing:
    """One figure of finished runs, which a notebook displays and `save` writes.

    Args:
        runs: One, several, or a folder of runs, of which all finished ones are drawn but trials of a learning
            rate and those of other laboratories.
        name: A registered figure, such as "accuracy", "heatmap" or "kernel", or one in a file
            (`file.py:Class`), which is run.

    Raises:
        UnknownNameError: If no figure has that name.
        ConfigError: If there is no run, or a file cannot be run.
        StoreError: If the runs lack what the figure draws.

    Example:
        >>> import spectrope as sp
        >>> plan = [sp.experiment("distance", "rope", epochs=1, n_examples=60)]
        >>> drawing = sp.figure(sp.execute(plan, watch=sp.unwatched), "heatmap")
        >>> drawing.save("heatmap.svg").name
        'heatmap.svg'
    """
    resolved, spec = figure_spec(as_runs(runs), name)
    return Drawing(resolved, spec)


def report(runs: Run | Iterable[Run] | str | Path, path: str | Path = "report.html") -> Path:
    """Write the page of some finished runs: one HTML file that holds everything it shows.

    Args:
        runs: One, several, or a folder, as for `figure`; what has not been ablated is shown without drops.
        path: HTML file to write.

    Returns:
        The path.

    Raises:
        ConfigError: If there is no run, or the suffix is not .html.
        StoreError: If a run is unfinished or damaged, or the file cannot be written.

    Example:
        >>> import spectrope as sp
        >>> run = sp.train("rope", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> sp.report(run, "report.html").name
        'report.html'
    """
    return write_report(as_runs(runs), path)
