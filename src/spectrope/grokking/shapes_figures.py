"""Panels of ResNet-18 on polygons: answers by number of sides, and some of the images."""

from collections.abc import Sequence
from dataclasses import replace

import altair as alt
import numpy as np
import polars as pl
from jaxtyping import Float

from spectrope.core import from_dict
from spectrope.figures import Marks, Panel, exact
from spectrope.grokking.tasks.shapes import ShapesConfig
from spectrope.store import Run

IMAGES_SHOWN = 12
MOST_PIXELS = 32  # Along an image on the page; larger ones are drawn again.


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
