"""The page of the grokking laboratory: one HTML file with courses, measures, embeddings and the pairs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from spectrope.core import ConfigError
from spectrope.figures import Section, Table, law_tables, rendered, write_page, wrong_declarations
from spectrope.grokking.config import GrokTraining
from spectrope.grokking.figures import (
    circle_panels,
    course_panels,
    embedding_panels,
    measure_panels,
    pair_panels,
)
from spectrope.grokking.run_labels import runs_table, threshold
from spectrope.store import Run


def write_grok(runs: Sequence[Run], path: Path, scores: pl.DataFrame | None = None) -> Path:
    """Write the page of some finished runs of one setting, whole or not at all.

    Args:
        runs: Finished runs of the grokking laboratory, one per seed.
        path: HTML file to write.
        scores: How well measures track the test loss, where that has been compared.

    Returns:
        The path.

    Raises:
        ConfigError: If there is no run.
        StoreError: If a run is unfinished or damaged, or the file cannot be written.
    """
    return write_page(render_grok(runs, scores), path)


def render_grok(runs: Sequence[Run], scores: pl.DataFrame | None = None) -> str:
    """The page as text."""
    tables = [] if scores is None else [_scores(scores)]
    return rendered_runs(runs, _title, _lead, _sections, tables)


def rendered_runs(
    runs: Sequence[Run],
    title: Callable[[Mapping[str, Any]], str],
    lead: Callable[[Run], str],
    draw: Callable[[Sequence[Run]], list[Section]],
    tables: Sequence[Table] = (),
) -> str:
    """A page of some finished runs of one setting as text.

    Args:
        runs: Finished runs, one per seed.
        title: Its heading, from their configuration.
        lead: What they have in common, from the first of them.
        draw: Its sections.
        tables: Behind that of all runs.

    Raises:
        ConfigError: If there is no run.
    """
    if not runs:
        raise ConfigError("a page needs at least one run; got none.")
    sections, config = draw(runs), runs[0].config
    return rendered(
        "grok.html",
        [panel for section in sections for panel in section.panels],
        package="spectrope.grokking",
        title=title(config),
        lead=lead(runs[0]),
        wrong=wrong_declarations(runs),
        tables=[runs_table(runs), *tables, *law_tables(runs)],
        sections=sections,
    )


def _title(config: Mapping[str, Any]) -> str:
    return f"{config['task']['operation']} mod {config['task']['p']}"


def _lead(run: Run) -> str:
    task, model = run.config["task"], run.config["model"]
    model_text, distribution = model["kind"], task["distribution"]
    if "encoding" in model:
        layers = model["n_layers"]
        model_text += f", {layers} layer{'s' * (layers != 1)}, encoding {model['encoding']['kind']}"
    loss, offset = run.config["training"]["loss"], task["offset"]
    if loss != GrokTraining.loss:
        model_text += f", loss {loss}"
    if offset:
        model_text += f", offset {offset}"
    bound = f" with k = {distribution['k']}" if "k" in distribution else ""
    trains = run.frame("pairs")["trains"]
    share = f"{trains.sum():,} of {len(trains):,} pairs train ({100 * trains.sum() / len(trains):.0f} %)"
    return f"{model_text}; {share}, distribution {distribution['kind']}{bound}."


def _sections(runs: Sequence[Run]) -> list[Section]:
    first_run, columns = runs[0], runs[0].manifest["columns"]
    seed = first_run.config["seed"]
    residues = f"Run of seed {seed}; each dot is a residue as first operand, dark for 0."
    measures = (
        "One line per run; a dashed line marks the step from which a run answers at least "
        f"{threshold(first_run.config)} of the test pairs correctly."
    )
    return [
        Section("course", "Accuracy and loss", "One line per run and split.", course_panels(runs), 420),
        Section("measures", "Progress measures", measures, measure_panels(runs, columns), 300),
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
    """How well measures track the test loss: estimates with their intervals."""
    caption = (
        "Mean over the runs where it is defined, with 95 % t intervals where there are several. rho: rank "
        "correlation with test loss over evaluations; partial: the same given training loss; lead: number "
        "of steps by which the measure completes half of its change before the test loss has fallen "
        "half-way from its peak."
    )
    rows = [
        {"measure": row["measure"]} | {name: _interval(row, name) for name in ("rho", "partial", "lead")}
        for row in scores.to_dicts()
    ]
    return Table("scores", "How well measures track the test loss", caption, rows)


def _interval(row: dict[str, Any], name: str) -> str:
    value, low, high = row[name], row[f"{name}_low"], row[f"{name}_high"]
    if value is None:
        return ""
    form = "{:.0f}" if name == "lead" else "{:.2f}"
    is_defined = low is not None and low == low
    return form.format(value) + (f" [{form.format(low)}, {form.format(high)}]" if is_defined else "")
