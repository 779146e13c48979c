"""The tutorials run from top to bottom in a kernel of their own, on fewer examples than a reader's."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = sorted((Path(__file__).parent.parent / "docs" / "tutorials").glob("*.ipynb"))
PATIENCE = 600  # Seconds that a cell may take before it counts as stuck.


@pytest.mark.sampled("walkthrough")
@pytest.mark.filterwarnings("default")  # Of jupyter and its clients, which are not ours.
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # They are made where the site is built.
    for cell in notebook.cells:
        cell.source = re.sub(r"\bn_examples=\d+", "n_examples=400", cell.source)
    run = nbclient.NotebookClient(
        notebook, timeout=PATIENCE, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    run.execute()
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_first_code_cell_of_a_tutorial_installs_an_uploaded_wheel_where_the_package_is_missing(
    path, tmp_path, monkeypatch
):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    first = next(cell["source"] for cell in cells if cell["cell_type"] == "code")
    needs_extra = any("import transformers" in cell["source"] for cell in cells)
    extra = "[hf]" if needs_extra else ""
    body, command = first.rsplit("\n", 1)
    assert command == f'    %pip install --quiet "{{wheels[-1]}}{extra}"'
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="run `make dist` in a clone, and upload the wheel in dist"):
        exec(body, {})
    (tmp_path / "spectrope-0.1.0-py3-none-any.whl").touch()
    cell: dict[str, Any] = {}
    exec(body, cell)
    assert cell["wheels"] == ["spectrope-0.1.0-py3-none-any.whl"]


def test_there_are_three():
    assert [path.stem for path in TUTORIALS] == [
        "audit-a-checkpoint",
        "compare-your-encoding",
        "find-the-heads",
    ]
