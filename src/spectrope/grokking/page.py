"""The page of the grokking laboratory: one HTML file with courses, measures, embeddings and the pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from spectrope.core import ConfigError
from spectrope.figures import Section, Table, rendered, write_page
from spectrope.grokking.figures import (
    circle_panels,
    course_panels,
    embedding_panels,
    measure_panels,
    pair_panels,
)
from spectrope.grokking.run_labels import runs_table
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
    task = runs[0].config["task"]
    return rendered(
        "grok.html",
        [panel for section in sections for panel in section.panels],
        package="spectrope.grokking",
        title=f"{task['operation']} mod {task['p']}",
        lead=_lead(task, runs[0].config["model"]),
        tables=[runs_table(runs), *([] if scores is None else [_scores(scores)])],
        sections=sections,
    )


def _lead(task: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    model_text, distribution = model["kind"], task["distribution"]
    if "encoding" in model:
        layers = model["n_layers"]
        model_text += f", {layers} layer{'s' * (layers != 1)}, encoding {model['encoding']['kind']}"
    bound = f" with k = {distribution['k']}" if "k" in distribution else ""
    share = f"{100 * task['fraction']:.0f} % of all pairs train"
    return f"{model_text}; {share}, distribution {distribution['kind']}{bound}."


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
            f"Embeddings in the planes that the strongest frequencies have at each step. {residues}",
            circle_panels(first_run),
            220,
        ),
        Section("pairs", "Every pair", "At the end of training.", pair_panels(first_run), 460),
    ]


def _scores(scores: pl.DataFrame) -> Table:
    """How measures trace test loss: estimates with their intervals."""
    caption = (
        "Mean over the runs where it is defined, with 95 % t intervals where there are several. rho: rank "
        "correlation with test loss over evaluations; partial: the same given training loss; lead: steps by "
        "which the measure is half-way through its course before test loss is half-way down from its peak."
    )
    rows = [
        {"measure": row["measure"]} | {name: _interval(row, name) for name in ("rho", "partial", "lead")}
        for row in scores.to_dicts()
    ]
    return Table("scores", "How measures trace test loss", caption, rows)


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return ""
    form = "{:.0f}" if name == "lead" else "{:.2f}"
    is_defined = low is not None and low == low
    return form.format(value) + (f" [{form.format(low)}, {form.format(high)}]" if is_defined else "")
