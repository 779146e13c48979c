"""Figures and reports of runs: drawn in a notebook, or written to a file."""

from collections.abc import Iterable
from pathlib import Path

from spectrope.core import ConfigError, require_type
from spectrope.figures import FIGURES, Drawing, HeadEffects, figure_spec, write_report
from spectrope.front.runs import as_runs
from spectrope.store import Run

HEATMAP = "heatmap"


def figure(runs: Run | Iterable[Run] | HeadEffects | str | Path, name: str = HEATMAP) -> Drawing:
    """One figure of finished runs, which a notebook displays and `save` writes.

    Args:
        runs: One run, several runs, a comparison, or a folder of runs (all its finished decoder runs except
            learning-rate trials); or the result of `ablate`, for which only the heat map is available.
        name: A registered figure, such as "accuracy", "heatmap" or "kernel" (`sp.FIGURES` lists them), or one
            in a file (`file.py:Class`), which is executed.

    Raises:
        UnknownNameError: If no figure has that name.
        ConfigError: If there is no run, or a file cannot be run.
        StoreError: If the runs lack the table that the figure draws.

    Example:
        >>> import spectrope as sp
        >>> plan = [sp.experiment("distance", "rope", epochs=1, n_examples=60)]
        >>> drawing = sp.figure(sp.execute(plan, watch=sp.unwatched), "heatmap")
        >>> drawing.save("heatmap.svg").name
        'heatmap.svg'
    """
    if not isinstance(runs, HeadEffects):
        resolved, spec = figure_spec(as_runs(runs), name)
        return Drawing(resolved, spec)
    if FIGURES.resolve(name) != HEATMAP:
        raise ConfigError(f"an ablation only has the figure {HEATMAP!r}; got {name!r}.")
    return runs.figure()


def report(runs: Run | Iterable[Run] | str | Path, path: str | Path = "report.html") -> Path:
    """Write a report of finished runs as one self-contained HTML file.

    Args:
        runs: One run, several runs, a comparison, or a folder, as for `figure`; runs that have not been
            ablated are shown without drops.
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
    require_type(path, (str, Path), "path", "the path of an HTML file")
    return write_report(as_runs(runs), path)
