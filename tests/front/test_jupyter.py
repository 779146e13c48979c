"""A notebook that a Jupyter kernel executes shows tables, figures and progress, in a real browser."""

import os
from pathlib import Path

import nbclient
import nbconvert
import nbformat
import pytest
from tests.figures.browser import browser, complaints

pytestmark = pytest.mark.sampled("walkthrough")
CELLS = (
    """
    from dataclasses import dataclass
    import torch
    from torch import nn
    import spectrope as sp
    """,
    """
    class Fading(sp.encodings.LagBias, name="fading_in_a_cell"):
        @dataclass(frozen=True, kw_only=True)
        class Config(sp.encodings.EncodingConfig):
            n_heads: int = 8

        def lag_bias(self, lag):
            return -0.1 * lag.abs()[..., None].expand(*lag.shape, self.config.n_heads)
    """,
    'found = sp.compare([Fading, "rope", "alibi"], "distance", epochs=1, n_examples=60)',
    "found",
    'sp.figure(found, "heatmap")',
    "sp.table()",
    "found.runs[0]",
    """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
            self.tokens, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
            self.blocks = nn.TransformerEncoder(layer, 2)

        def forward(self, ids):
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.head(self.blocks(self.tokens(ids), mask=mask, is_causal=True))

    torch.manual_seed(0)
    own = sp.OwnModel(Model().eval(), max_length=32)
    sp.audit(own)
    """,
    "costs = sp.ablate(own, examples=4, length=16)",
    "costs",
    "costs.figure()",
)
DRAWN = """
const all = selector => [...document.querySelectorAll(selector)];
return {
  bars: all('progress').map(bar => [bar.value, bar.offsetWidth]),
  tables: all('.jp-OutputArea table').map(table => [table.rows.length, table.offsetWidth]),
  pictures: all('.jp-RenderedSVG svg, .jp-RenderedSVG img').map(one => one.getBoundingClientRect().width),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
};
"""


class Client(nbclient.NotebookClient):
    """One that remembers what displays showed before they were drawn anew."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.redrawn: list[str] = []

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] == "update_display_data":
            self.redrawn.append(msg["content"]["data"]["text/plain"])
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(_dedented(source)) for source in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = Client(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
    client.execute(env=os.environ | {"PYTHONWARNINGS": "ignore"})
    return folder, notebook, client.redrawn


def _dedented(source: str) -> str:
    lines = source.strip("\n").splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


def bundles(cell) -> list[dict[str, str]]:
    return [output["data"] for output in cell.outputs if "data" in output]


def test_each_cell_shows_what_it_is_and_nothing_else(executed):
    _, notebook, _ = executed
    _, _, progress, comparison, figure, frame, run, audit, bar, costs, drawing = notebook.cells
    assert not [one for cell in notebook.cells for one in cell.outputs if one.output_type == "error"]
    for cell in (comparison, frame, run, costs):
        (shown,) = bundles(cell)
        assert "<table" in shown["text/html"]
    for cell in (figure, drawing):
        (shown,) = bundles(cell)
        assert shown["image/svg+xml"].startswith("<svg")
    assert "progress" in bundles(progress)[-1]["text/html"]
    assert "progress" in bundles(bar)[0]["text/html"]
    assert "matches" in bundles(audit)[-1]["text/html"]
    assert "fading_in_a_cell" in bundles(comparison)[0]["text/html"]


def test_progress_is_drawn_anew_while_a_cell_runs(executed):
    redrawn = executed[2]
    assert any("waiting" in text for text in redrawn)
    assert any("rope/seed 0: done, held-out" in text for text in redrawn)
    assert any("ablating" in text or "8 of 8" in text for text in redrawn)


def test_a_browser_shows_it(executed, tmp_path):
    _, notebook, _ = executed
    share = Path(nbconvert.__file__).parents[4] / "share/jupyter/nbconvert/templates"
    exporter = nbconvert.HTMLExporter(extra_template_basedirs=[str(share)], mathjax_url="", require_js_url="")
    page = tmp_path / "notebook.html"
    page.write_text(exporter.from_notebook_node(notebook)[0])
    with browser(tmp_path / "profile") as driver:
        driver.set_window_size(1200, 900)
        driver.get(page.as_uri())
        drawn = driver.execute_script(DRAWN)
        assert len(drawn["bars"]) == 5
        assert all(value == 1 and width > 50 for value, width in drawn["bars"])
        assert len(drawn["tables"]) >= 7
        assert all(rows >= 1 and width > 50 for rows, width in drawn["tables"])
        assert len(drawn["pictures"]) == 2
        assert all(width > 200 for width in drawn["pictures"])
        assert not complaints(driver)
        if picture := os.environ.get("NOTEBOOK_PICTURE"):
            driver.set_window_size(1200, driver.execute_script("return document.body.scrollHeight + 100"))
            driver.save_screenshot(picture)
