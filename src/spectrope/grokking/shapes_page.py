"""The page of ResNet-18 on polygons: courses, answers by number of sides, and some of the images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spectrope.core import ConfigError
from spectrope.figures import Section, rendered, write_page
from spectrope.grokking.figures import course_panels, measure_panels
from spectrope.grokking.run_labels import runs_table
from spectrope.grokking.shapes_figures import answer_panels, image_panels
from spectrope.store import Run

ANSWERS = (
    "Images that are not trained on, at the end of training. A column is a true number of sides; the darker "
    "a cell, the more of its images are given that answer. Right answers lie on the diagonal."
)


def write_shapes(runs: Sequence[Run], path: Path) -> Path:
    """Write the page of some finished runs of one setting, whole or not at all.

    Args:
        runs: Finished runs on images, one per seed.
        path: HTML file to write.

    Returns:
        The path.

    Raises:
        ConfigError: If there is no run.
        StoreError: If a run is unfinished or damaged, or the file cannot be written.
    """
    if not runs:
        raise ConfigError("a page needs at least one run; got none.")
    sections = _sections(runs)
    page = rendered(
        "grok.html",
        [panel for section in sections for panel in section.panels],
        package="spectrope.grokking",
        title="ResNet-18 counts sides",
        lead=_lead(runs[0].config),
        tables=[runs_table(runs)],
        sections=sections,
    )
    return write_page(page, path)


def _sections(runs: Sequence[Run]) -> list[Section]:
    first_run = runs[0]
    some = f"Run of seed {first_run.config['seed']}; wrong answers first, as far as there are any."
    norm = {"weight_norm": first_run.manifest["columns"]["weight_norm"]}
    return [
        Section("course", "Accuracy and loss", "One line per run and split.", course_panels(runs), 420),
        Section("norm", "Weights", "One line per run.", measure_panels(runs, norm), 420),
        Section("answers", "Answers", ANSWERS, answer_panels(runs), 300),
        Section("images", "Some images not trained on", some, image_panels(first_run), 150),
    ]


def _lead(config: dict[str, Any]) -> str:
    task = config["task"]
    sides = ", ".join(map(str, task["sides"]))
    start = "random weights" if config["source"] is None else f"the weights of {config['source']}"
    return (
        f"Images of {task['resolution']} pixels with four polygons of {sides} sides; {task['n_train']} of "
        f"{len(task['sides']) ** 4} train, from {start}."
    )
