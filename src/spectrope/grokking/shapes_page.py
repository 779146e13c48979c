"""The page of ResNet-18 on polygons: courses, answers by number of sides, and some of the images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from jaxtyping import Float

from spectrope.core import from_dict
from spectrope.figures import Marks, Panel, Section, exact, write_page
from spectrope.grokking.config import network_name
from spectrope.grokking.figures import course_panels, measure_panels
from spectrope.grokking.models.vision import FULL_WIDTH
from spectrope.grokking.page import rendered_runs
from spectrope.grokking.tasks.shapes import ShapesConfig
from spectrope.store import Run

IMAGES_SHOWN = 12
MOST_PIXELS = 32  # Along an image on the page; larger ones are drawn again.
OF_ACTIVATIONS = (
    "One line per run. First hidden activations are those of each polygon alone in a cell, after the first "
    "ReLU; values are means over the four cells."
)
ANSWERS = (
    "Images that were not used for training, at the end of training. Columns are true numbers of sides; the "
    "darker a cell, the more of its images receive that answer. Correct answers are on the diagonal."
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
    page = rendered_runs(runs, _title, _lead, _sections)
    return write_page(page, path)


def _sections(runs: Sequence[Run]) -> list[Section]:
    first_run = runs[0]
    some = f"Run of seed {first_run.config['seed']}; wrong answers first, as far as there are any."
    columns = first_run.manifest["columns"]
    return [
        Section("course", "Accuracy and loss", "One line per run and split.", course_panels(runs), 420),
        Section("measures", "Progress measures", OF_ACTIVATIONS, measure_panels(runs, columns), 300),
        Section("answers", "Answers", f"{ANSWERS}{_untrained(runs)}", answer_panels(runs), 300),
        Section("images", "Some images not trained on", some, image_panels(first_run), 150),
    ]


def _title(config: Mapping[str, Any]) -> str:
    return f"{network_name(config.get('width', FULL_WIDTH))} counts sides"


def _lead(run: Run) -> str:
    config, task = run.config, run.config["task"]
    sides = ", ".join(map(str, task["sides"]))
    start = "random weights" if config["source"] is None else f"the weights of {config['source']}"
    distribution = task.get("distribution", {"kind": "random"})
    bound = (
        f", distribution {distribution['kind']} with k = {distribution['k']}" if "k" in distribution else ""
    )
    return (
        f"Images of {task['resolution']} pixels with four polygons of {sides} sides; {task['n_train']} of "
        f"{len(task['sides']) ** 4} train{bound}, from {start}."
    )


def _untrained(runs: Sequence[Run]) -> str:
    """How many images have a sum of sides that no training image has, by seed; empty if none has."""
    counts = {run.config["seed"]: untrained_sums(run) for run in runs}
    some = [
        f"{count} of {total} with seed {seed} (accuracy at most {100 - 100 * count / total:.1f} %)"
        for seed, (count, total) in counts.items()
        if count
    ]
    told = f" Images with a sum of sides that no training image has cannot be learned: {', '.join(some)}."
    return told if some else ""


def untrained_sums(run: Run) -> tuple[int, int]:
    """Number of test images with a sum of sides that no training image has, and of all test images."""
    images = run.frame("images")
    tested, trained = images.filter(~pl.col("trains")), images.filter("trains")
    return len(tested.join(trained, on="sides", how="anti")), len(tested)


def answer_panels(runs: Sequence[Run]) -> list[Panel]:
    """A panel per run: how often each number of sides is given each answer, among images not trained on."""
    return [Panel("", f"seed {run.config['seed']}", {"answers": _answers(run)}, 260) for run in runs]


def image_panels(run: Run) -> list[Panel]:
    """Some images that were not trained on, those that are answered wrongly first."""
    tested = run.frame("images").filter(~pl.col("trains"))
    is_right = pl.col("answer") == pl.col("sides")
    right = _spread(tested.filter(is_right), IMAGES_SHOWN // 2)
    wrong = _spread(tested.filter(~is_right), IMAGES_SHOWN - len(right))
    shown = pl.concat([wrong, right])
    config = from_dict(ShapesConfig, run.config["task"])
    task = replace(config, resolution=min(config.resolution, MOST_PIXELS)).build()
    images = task.draw(shown["image"].to_torch())[:, 0].numpy()
    return [
        Panel("", f"{sides} sides, answer {answer}", {"image": _image(image)}, 130)
        for sides, answer, image in zip(shown["sides"], shown["answer"], images, strict=True)
    ]


def _spread(table: pl.DataFrame, most: int) -> pl.DataFrame:
    """Rows at even distances, at most so many."""
    return table.gather_every(max(1, len(table) // most))[:most]


def _answers(run: Run) -> Marks:
    counts = run.frame("images").filter(~pl.col("trains")).group_by("sides", "answer").len("images")
    share = 100 * pl.col("images") / pl.col("images").sum().over("sides")
    table = counts.with_columns(share=share).sort("sides", "answer")
    numbers = sorted({*table["sides"], *table["answer"]})
    cells = alt.Chart().mark_rect()
    drawn = cells.encode(
        x=alt.X("sides:O", title="sides", scale=alt.Scale(domain=numbers), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("answer:O", title="answer", scale=alt.Scale(domain=numbers[::-1])),
        color=alt.Color("share:Q", scale=alt.Scale(scheme="greys", domain=[0, 100]), legend=None),
        tooltip=[
            alt.Tooltip("sides:O"),
            alt.Tooltip("answer:O"),
            alt.Tooltip("images:Q"),
            exact("share", "%"),
        ],
    )
    return Marks(table.to_dicts(), drawn)


def _image(image: Float[np.ndarray, "h w"]) -> Marks:
    rows = [{"x": x, "y": y, "light": round(float(light), 2)} for (y, x), light in np.ndenumerate(image)]
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    band = alt.Scale(paddingInner=0, paddingOuter=0)
    grey = alt.Scale(range=["black", "white"], domain=[0, 1])
    squares = alt.Chart().mark_rect(strokeWidth=1)  # The stroke closes the seams between pixels.
    drawn = squares.encode(
        x=alt.X("x:O", axis=hidden, scale=band),
        y=alt.Y("y:O", axis=hidden, scale=band),
        fill=alt.Fill("light:Q", scale=grey, legend=None),
        stroke=alt.Stroke("light:Q", scale=grey, legend=None),
    )
    return Marks(rows, drawn)
