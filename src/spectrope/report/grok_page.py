"""The page of the grokking laboratory: one HTML file with courses, measures, embeddings and the pairs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from spectrope.core.errors import ConfigError
from spectrope.report.grok_figures import (
    circle_panels,
    course_panels,
    embedding_panels,
    measure_panels,
    pair_panels,
)
from spectrope.report.shell import Section, rendered, write_page
from spectrope.store import Run

MEASURES = (
    "One line per run; dashed lines mark the step since which a run has answered 99 % of the pairs that it "
    "is not trained on."
)


def write_grok(runs: Sequence[Run], path: Path, scores: pl.DataFrame | None = None) -> Path:
    """Write the page of some finished runs of one setting, whole or not at all.

    Args:
        runs: Finished runs of the grokking laboratory, one per seed.
        path: HTML file to write.
        scores: How measures trace test loss, where that has been compared.

    Returns:
        The path.

    Raises:
        ConfigError: If there is no run.
        StoreError: If a run is unfinished or damaged, or the file cannot be written.
    """
    if not runs:
        raise ConfigError("a page needs at least one run; got none.")
    return write_page(render_grok(runs, scores), path)


def render_grok(runs: Sequence[Run], scores: pl.DataFrame | None = None) -> str:
    """The page as text."""
    sections = _sections(runs)
    task, model = runs[0].config["task"], runs[0].config["model"]
    return rendered(
        "grok.html",
        [panel for section in sections for panel in section.panels],
        task=task,
        model=model,
        title=f"{task['operation']} mod {task['p']}",
        rows=[(run.id, run.config["seed"], run.manifest) for run in runs],
        scores=[] if scores is None else [_score(row) for row in scores.to_dicts()],
        sections=sections,
    )


def _sections(runs: Sequence[Run]) -> list[Section]:
    first_run, columns = runs[0], runs[0].manifest["columns"]
    seed = first_run.config["seed"]
    residues = f"Run of seed {seed}; each dot is a residue as first operand, dark for 0."
    return [
        Section("course", "Accuracy and loss", "One line per run and split.", course_panels(runs), 420),
        Section("measures", "Progress measures", MEASURES, measure_panels(runs, columns), 300),
        Section(
            "embeddings", "Embeddings", f"Two principal axes. {residues}", embedding_panels(first_run), 220
        ),
        Section(
            "waves",
            "Strongest waves",
            f"Embeddings at the end, in the plane of each frequency. {residues}",
            circle_panels(first_run),
            220,
        ),
        Section("pairs", "Every pair", "At the end of training.", pair_panels(first_run), 460),
    ]


def _score(row: dict[str, Any]) -> dict[str, str]:
    """A row of the comparison as text: estimates with their intervals."""
    return {"measure": row["measure"]} | {name: _interval(row, name) for name in ("rho", "partial", "lead")}


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return ""
    form = "{:.0f}" if name == "lead" else "{:.2f}"
    known = low is not None and low == low
    return form.format(value) + (f" [{form.format(low)}, {form.format(high)}]" if known else "")
