"""A notebook shows tables, figures and progress, in a real browser."""

import re

import pytest
from tests.checkpoints.audit.families import llama
from tests.console.notebook import Notebook
from tests.figures.browser import browser, complaints, open_page, requests
from tests.test_docs import small

from spectrope.console.notebook import notebook_display
from spectrope.console.progress import bars, counted
from spectrope.core.progress import Progress
from spectrope.lab.training.scales import SCALES


@pytest.fixture
def notebook(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Notebook(monkeypatch)


CELLS = (
    'import spectrope as sp\nfound = sp.compare(["rope", "nope"], "distance", epochs=1, n_examples=60)',
    "found",
    "sp.table(sp.runs())",
    'sp.figure(found.runs, "heatmap")',
    "sp.ablate(found.runs[0], examples=10)",
    "sp.ablate(model, examples=4, length=8)",
    'sp.spectrum("alibi", length=16, heads=2)',
)


DRAWN = """
const all = selector => [...document.querySelectorAll(selector)];
return {
  bars: all('progress').map(bar => [bar.value, bar.offsetWidth]),
  tables: all('table').map(table => table.rows.length),
  images: all('img').map(image => image.naturalWidth),
  plain: all('pre').length,
};
"""


def _words(bundle):
    return re.findall(r"</progress></td><td[^>]*>([^<]*)", bundle["text/html"])


def test_a_notebook_shows_tables_figures_and_progress(notebook, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(SCALES, "mini", {name: small(preset) for name, preset in SCALES["mini"].items()})
    notebook.names["model"] = llama().eval()
    compared, table, frame, figure, run, model, encoding = (notebook.run(cell) for cell in CELLS)
    (progress,) = compared
    stages = [_words(bundle) for bundle in progress.earlier]
    assert stages[0] == ["waiting", "waiting"]
    assert any("training" in words[0] or "ablating" in words[0] for words in stages)
    assert all(re.fullmatch(r"done, held-out [\d.]+ %", words) for words in _words(progress.bundle))
    assert "accuracy in %" in table[0].bundle["text/html"]
    assert "<table" in frame[0].bundle["text/html"]
    assert figure[0].bundle["image/svg+xml"].startswith("<svg")
    for bar, result in (run, model):
        assert "<progress" in bar.bundle["text/html"]
        assert "<table>" in result.bundle["text/html"]
    assert "proven bounds" in encoding[0].bundle["text/html"]
    assert capsys.readouterr().out == ""  # Nothing is printed beside what is displayed.

    (tmp_path / "page.html").write_text(notebook.page())
    with browser(tmp_path / "profile") as driver:
        open_page(driver, tmp_path / "page.html", width=1000)
        drawn = driver.execute_script(DRAWN)
        assert drawn["bars"] == [[1, width] for _, width in drawn["bars"]]
        assert len(drawn["bars"]) == 4
        assert all(width > 50 for _, width in drawn["bars"])
        assert min(drawn["tables"]) >= 1
        assert len(drawn["tables"]) >= 8
        assert [width > 200 for width in drawn["images"]] == [True]
        assert drawn["plain"] == 0
        assert requests(driver) == [(tmp_path / "page.html").resolve().as_uri()]
        assert not complaints(driver)


def test_bars_escape_labels_and_end_as_they_were_left(notebook):
    notebook.cells.append([])
    with bars(["a<b", "c"]) as shown:
        shown.watch(Progress("train", 1, 4, accuracy=0.5))
        shown.watch(Progress("train", 3, 4, accuracy=0.5))
    (output,) = notebook.cells[-1]
    assert "a&lt;b" in output.bundle["text/html"]
    assert 'value="0.750"' in output.bundle["text/html"]
    assert output.bundle["text/plain"] == "a<b: training, held-out 50.0 %\nc: waiting"


def test_few_drawings_are_made_however_often_progress_is_reported(notebook):
    notebook.cells.append([])
    with counted("auditing") as watch:
        for done in range(1000):
            watch(Progress("audit", done + 1, 1000))
    (output,) = notebook.cells[-1]
    assert len(output.earlier) < 100
    assert "1000 of 1000" in output.bundle["text/html"]


def test_elsewhere_there_is_no_notebook(monkeypatch):
    assert notebook_display() is None
    made = Notebook(monkeypatch)
    assert notebook_display() == made.display
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    assert notebook_display() is None
