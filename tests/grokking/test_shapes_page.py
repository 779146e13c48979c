"""The page of images in a real browser, and which images it shows."""

from collections.abc import Iterator

import polars as pl
import pytest
from selenium.webdriver import Chrome
from tests.figures.browser import browser
from tests.figures.test_browser import assert_sound

from spectrope.core.errors import ConfigError
from spectrope.grokking.config import ShapesExperiment, ShapesTraining
from spectrope.grokking.shapes import IMAGES
from spectrope.grokking.shapes_page import (
    IMAGES_SHOWN,
    answer_panels,
    image_panels,
    untrained_sums,
    write_shapes,
)
from spectrope.grokking.tasks.shapes import ShapesConfig
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job
from spectrope.store import Run

MEASURES = 5  # Panels of what is measured while training.


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    task = ShapesConfig(sides=(0, 3, 4), resolution=80, n_train=40)
    training = ShapesTraining(steps=4, batch_size=8, evaluate_every=2, stop=None)
    plan = [ShapesExperiment(task=task, training=training, width=2, seed=seed) for seed in (0, 1)]
    return execute([Job(one, tables=()) for one in plan], tmp_path_factory.mktemp("runs"), device="cpu")


@pytest.mark.sampled("page in a browser")
@pytest.mark.parametrize("width", [400, 1200])
def test_every_row_is_drawn_and_nothing_asked_for(driver, runs, tmp_path, width):
    path = write_shapes(runs, tmp_path / "page.html")
    assert assert_sound(driver, path, width) == 2 + MEASURES + len(runs) + IMAGES_SHOWN
    text = driver.find_element("tag name", "body").text
    assert "80 pixels" in text
    assert "40 of 81 train" in text


def test_every_image_is_answered_as_the_last_evaluation_says(runs):
    for run in runs:
        table = run.frame(IMAGES)
        assert table["image"].to_list() == list(range(81))
        right = table.group_by("trains").agg((pl.col("answer") == pl.col("sides")).mean()).sort("trains")
        last = run.frame("progress")[-1]
        assert right["answer"].to_list() == [last["test_accuracy"].item(), last["train_accuracy"].item()]


def test_answers_count_every_image_not_trained_on(runs):
    for panel in answer_panels(runs):
        rows = pl.DataFrame(panel.layers["answers"].rows)
        assert rows["images"].sum() == 41
        assert rows.group_by("sides").agg(pl.col("share").sum())["share"].to_list() == pytest.approx(
            [100.0] * rows["sides"].n_unique()
        )


def test_sums_that_are_never_trained_on_are_told(runs, tmp_path):
    run = runs[0]
    table = run.frame(IMAGES)
    trained = {sides for sides, trains in table.select("sides", "trains").rows() if trains}
    rest = [sides for sides, trains in table.select("sides", "trains").rows() if not trains]
    assert untrained_sums(run) == (sum(sides not in trained for sides in rest), len(rest))
    few = ShapesConfig(sides=(0, 3, 4), resolution=16, n_train=10)
    training = ShapesTraining(steps=1, batch_size=5, evaluate_every=1, stop=None)
    one = ShapesExperiment(task=few, training=training, width=2)
    [poor] = execute([Job(one, tables=())], tmp_path, device="cpu")
    count, total = untrained_sums(poor)
    assert count > 0
    most = 100 - 100 * count / total
    told = f"cannot be learned: {count} of {total} with seed 0 (accuracy at most {most:.1f} %)."
    assert told in write_shapes([poor], tmp_path / "page.html").read_text(encoding="utf-8")


def test_wrong_answers_come_first_and_right_ones_have_half_the_places(runs):
    run = runs[0]
    shown = [panel.title for panel in image_panels(run)]
    tested = run.frame(IMAGES).filter(~pl.col("trains"))
    n_right = (tested["answer"] == tested["sides"]).sum()
    right = [sides == answer for sides, answer in map(_numbers, shown)]
    assert right == sorted(right)
    assert sum(right) == min(n_right, IMAGES_SHOWN // 2)


def test_a_page_without_runs_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="at least one run; got none"):
        write_shapes([], tmp_path / "page.html")


def _numbers(title: str) -> tuple[int, int]:
    sides, answer = title.split(" sides, answer ")
    return int(sides), int(answer)
