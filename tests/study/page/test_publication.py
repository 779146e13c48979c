"""What is published follows from the committed rows: every page byte for byte, and the figures."""

import json
from functools import cache
from inspect import unwrap
from pathlib import Path

import pytest
from tests.cli.typed import refused

from spectrope.cli import main
from spectrope.core import ConfigError, StoreError, UnknownNameError
from spectrope.study.claim import CLAIMS, chosen_claims
from spectrope.study.page import claim_figures, paper_drawing
from spectrope.study.page.notebook import written_notebook
from spectrope.study.page.publication import CARD, NOTEBOOK, PAGES, PUBLISHED_SCALES
from spectrope.study.rows import StudyRows
from spectrope.study.study import stored_rows

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs" / "explanation"
BY_NAME = {page.name: page for page in PAGES}
CELLS = {cell["id"]: cell for cell in json.loads(written_notebook())["cells"] if cell["cell_type"] == "code"}
DRAWN = [name for name in CELLS if name != "settings"]


@cache
def rows_at(scale):
    return StudyRows.load(ROOT / "results" / f"{scale}.jsonl")


def is_the_committed_one(name, folder, monkeypatch):
    monkeypatch.chdir(ROOT)  # Pages name the folder of the rows as the command does.
    page, rows = BY_NAME[name], StudyRows.load(Path("results") / f"{BY_NAME[name].scale}.jsonl")
    page.write(rows, folder)
    written = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}
    committed = {file: (DOCS / file).read_bytes() for file in written if (DOCS / file).exists()}
    pictures = {path.relative_to(DOCS) for path in (DOCS / "images" / name).glob("*.svg")}
    differing = [str(file) for file in written if committed.get(file) != written[file]]
    assert differing == [], "`spectrope claims publish` writes them anew"
    assert pictures <= set(written)
    assert Path(f"{name}.md") in written


def test_the_page_at_mid_is_the_committed_one(tmp_path, monkeypatch):
    is_the_committed_one("replication-mid", tmp_path, monkeypatch)


@pytest.mark.sampled(most=1)
@pytest.mark.parametrize("name", ["replication", "replication-fresh"])
def test_a_page_at_mini_is_the_committed_one(name, tmp_path, monkeypatch):
    is_the_committed_one(name, tmp_path, monkeypatch)


def test_the_notebook_is_the_committed_one():
    assert (DOCS / NOTEBOOK).read_text("utf-8") == written_notebook()


def test_the_notebook_has_a_cell_for_every_claim():
    assert set(DRAWN) >= {claim.kind for claim in chosen_claims(())}


@pytest.fixture(scope="module")
def kernel():
    """A kernel in which the settings of the notebook have run, and the notebook it belongs to."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.reads(written_notebook(), as_version=4)
    resources = {"metadata": {"path": str(DOCS)}}
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources)
    with client.setup_kernel():
        places = {cell.id: place for place, cell in enumerate(notebook.cells)}
        client.execute_cell(notebook.cells[places["settings"]], places["settings"])
        yield client, notebook, places


@pytest.mark.sampled(most=3)
@pytest.mark.filterwarnings("default")  # Of jupyter and its clients, which are not ours.
@pytest.mark.parametrize("name", DRAWN)
def test_a_cell_of_the_notebook_draws(name, kernel):
    client, notebook, places = kernel
    cell = client.execute_cell(notebook.cells[places[name]], places[name])
    pictures = [out.data["image/svg+xml"] for out in cell.outputs if "image/svg+xml" in out.get("data", {})]
    assert pictures
    assert all(picture.startswith("<svg") for picture in pictures)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("kind", sorted(CLAIMS))
def test_figures_of_a_claim_are_those_of_its_page(kind, tmp_path):
    figures = claim_figures(kind, rows_at("mini"))
    assert figures
    for figure in figures:
        committed = DOCS / "images" / "replication" / f"{figure.drawing.name}.svg"
        assert figure.drawing.save(tmp_path / committed.name).read_bytes() == committed.read_bytes()
        assert figure.caption


def test_a_number_gives_the_figures_of_all_claims_that_have_it():
    names = [figure.drawing.name for figure in claim_figures(5, rows_at("mini"), conditions=("controlled",))]
    assert {name.split("-")[0] for name in names} == {"5"}
    assert {"5-partial-deposit", "5-partial-rope"} <= set(names)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (lambda: claim_figures("rope", rows_at("mid")), UnknownNameError, "unknown claim"),
        (lambda: claim_figures(99, rows_at("mid")), ConfigError, "claims are numbered 1 to"),
        (lambda: claim_figures(3, rows_at("mid"), scale="huge"), UnknownNameError, "unknown scale"),
        (lambda: paper_drawing(2, rows_at("mid"), condition="said"), UnknownNameError, "unknown condition"),
        (lambda: paper_drawing(1, rows_at("mid")), ConfigError, "shows no measurement"),
        (
            lambda: unwrap(paper_drawing)("2", rows_at("mid")),
            ConfigError,
            "number must be a whole number; got '2'",
        ),
        (lambda: unwrap(paper_drawing)(2, None), ConfigError, "rows must be rows of a study"),
        (lambda: unwrap(claim_figures)(3, None), ConfigError, "rows must be rows of a study"),
    ],
)
def test_what_cannot_be_drawn_is_named(asked, error, words):
    with pytest.raises(error, match=words):
        asked()


def test_stored_rows_are_those_of_the_clone_or_of_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(stored_rows("mid")) == len(rows_at("mid"))
    (tmp_path / "results").mkdir()
    with pytest.raises(StoreError, match=r"results has no rows of scale 'mid': no file mid\.jsonl"):
        stored_rows("mid")
    with pytest.raises(UnknownNameError, match="unknown scale 'middle'"):
        stored_rows("middle")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a few rows of each scale that is published."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for scale in PUBLISHED_SCALES:
        lines = (ROOT / "results" / f"{scale}.jsonl").read_text().splitlines()
        (tmp_path / "results" / f"{scale}.jsonl").write_text("\n".join(lines[-3:]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "no folder docs/explanation here; choose one for the pages with --out FOLDER."),
        (("--out", "results/mid.jsonl"), "--out results/mid.jsonl is a file; name a folder for the pages."),
        (("--out", "p", "--rows", "."), "--rows . has no mini.jsonl, whose page would be empty."),
    ],
)
def test_what_cannot_be_published_is_refused(folder, capsys, words, complaint):
    assert complaint in refused(capsys, "claims", "publish", *words)
    assert [path.name for path in folder.iterdir()] == ["results"]


def test_the_command_writes_every_page_and_prints_its_path(folder, capsys):
    assert main(["claims", "publish", "--out", "pages"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Wrote ")]
    assert [Path(line.removeprefix("Wrote ")).name for line in told] == [
        *(f"{page.name}.md" for page in PAGES),
        NOTEBOOK,
        CARD,
    ]
    assert all((folder / "pages" / f"{page.name}.csv").exists() for page in PAGES)
    page = (folder / "pages" / "replication-mid.md").read_text("utf-8")
    assert "its pilots, whose rows are not here, are not counted" in page


def test_a_table_of_another_kind_is_not_replaced(tmp_path):
    (tmp_path / "replication-mid.csv").write_text("mine", encoding="utf-8")
    with pytest.raises(StoreError, match="would be replaced by the page's table"):
        BY_NAME["replication-mid"].write(StudyRows.load(Path("results/mid.jsonl")), tmp_path)
    assert (tmp_path / "replication-mid.csv").read_text(encoding="utf-8") == "mine"
    (tmp_path / "replication-mid.md").write_text("a page", encoding="utf-8")
    with pytest.raises(StoreError, match="would be replaced by the page's table"):
        BY_NAME["replication-mid"].write(StudyRows.load(Path("results/mid.jsonl")), tmp_path)


def test_figures_of_claims_that_a_page_no_longer_shows_are_removed(folder):
    pictures = folder / "pages" / "images" / "replication-mid"
    pictures.mkdir(parents=True)
    for name in ("99-gone-more.svg", "98-foreign.svg", "mine.svg"):
        (pictures / name).touch()
    earlier = "![](images/replication-mid/99-gone-more.svg)"
    (folder / "pages" / "replication-mid.md").write_text(earlier, encoding="utf-8")
    BY_NAME["replication-mid"].write(StudyRows.load(Path("results/mid.jsonl")), folder / "pages")
    assert {path.name for path in pictures.iterdir()} >= {"mine.svg", "98-foreign.svg"}
    assert not (pictures / "99-gone-more.svg").exists()
