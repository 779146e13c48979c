"""The grok page in a real browser: a mark for every row, nothing asked for, nothing sticking out."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome
from tests.figures.browser import browser
from tests.figures.test_browser import assert_sound

from spectrope.grokking.compare import compare_measures
from spectrope.grokking.config import GrokExperiment, GrokTraining
from spectrope.grokking.measures.base import columns
from spectrope.grokking.models.mlp import ModularMLP
from spectrope.grokking.page import write_grok
from spectrope.grokking.steps import PROGRESS
from spectrope.grokking.tasks.distributions import Square
from spectrope.grokking.tasks.modular import ModularConfig
from spectrope.lab.engines.local import execute
from spectrope.lab.job import Job
from spectrope.store import Run


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    task = ModularConfig(p=11, fraction=0.6, distribution=Square(k=3))
    training, model = GrokTraining(steps=40, evaluate_every=10), ModularMLP.Config(d_model=8, hidden=16)
    plan = [GrokExperiment(task=task, model=model, training=training, seed=seed) for seed in (0, 1)]
    return execute([Job(one, tables=()) for one in plan], tmp_path_factory.mktemp("runs"), device="cpu")


@pytest.mark.sampled("page in a browser")
@pytest.mark.parametrize("width", [400, 1200])
def test_every_row_is_drawn_and_nothing_asked_for(driver, runs, tmp_path, width):
    scores = compare_measures([run.frame(PROGRESS) for run in runs], list(columns()))
    path = write_grok(runs, tmp_path / "page.html", scores)
    assert assert_sound(driver, path, width) > 20
    text = driver.find_element("tag name", "body").text
    assert [name for name in columns() if name not in text] == []
