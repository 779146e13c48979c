"""The page as text: complete, self-contained, escaped, and rebuilt alike."""

import html
import json
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import torch
from tests.figures.synthetic import ENCODINGS, make_run, make_store

from spectrope.core.errors import ConfigError, StoreError
from spectrope.figures import write_report
from spectrope.figures.shell import templates_of
from spectrope.figures.tables import read_tables
from spectrope.store import files

NASTY = "</script><script>alert(1)</script>"


class Elements(HTMLParser):
    """All elements of a page with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.lasttag == "script" and self.scripts:
            self.scripts[-1] += data

    def named(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def shown(path):
    """The page's text without scripts, styles and tags."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def page(store, tmp_path_factory):
    return write_report(store, tmp_path_factory.mktemp("page") / "new" / "report.html")


def test_the_page_says_what_was_run_on_what(page):
    text = shown(page)
    for said in (
        "8 encodings on distance and on counting: 16 trained models",
        "controlled",
        "mini",
        "Example CPU @ 2.00GHz, 2 threads, Linux, on cpu, in float32",
        "Python 3.11.2, torch 2.13.0, commit 0123456789ab",
        "3 layers, 8 heads, head_dim 16, d_model 64, d_ff 128, dropout 0.1",
        "distance: 14,000 training examples, 6,000 held out, 6 epochs, batch 128, learning rate 0.003",
        "2025-06-01 10:00 UTC",
        "11.1 minutes, all runs together",
        "a general statement needs at least 6 seeds",
    ):
        assert said in text


def test_the_table_holds_every_score(page, store):
    text = shown(page)
    for run in store:
        accuracy, ceiling = (100 * run.manifest[key] for key in ("test_accuracy", "bayes_accuracy"))
        top = run.frame("ablation").sort("drop", descending=True).row(0, named=True)
        train = 100 * run.manifest["train_accuracy"]
        name, gap = run.config["encoding_name"], ceiling - accuracy
        scores = f"{name} {accuracy:.1f} {train:.1f} {ceiling:.1f} {gap:.1f} {train - accuracy:.1f} – "
        lost = f" {top['drop']:.1f} {top['layer']}.{top['head']} 1 118,420 42"
        assert re.search(rf"{re.escape(scores)}\d+\.\d{re.escape(lost)}", text)


def test_every_run_shows_its_configuration(page, store):
    text = html.unescape(page.read_text())
    for run in store:
        assert json.dumps(run.config, indent=2) in text
        assert f"<code>{run.id}</code>" in text


def test_nothing_outside_the_file_is_referred_to(page):
    elements = Elements(page.read_text())
    references = [
        value
        for _, attributes in elements.found
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data")
    ]
    assert [one for one in references if not one.startswith("#")] == ["data:,"]
    sections = {attributes["id"] for tag, attributes in elements.found if tag == "section"}
    assert {one.removeprefix("#") for one in references if one.startswith("#")} == sections
    (policy,) = [meta for meta in elements.named("meta") if meta.get("http-equiv")]
    assert policy["content"].startswith("default-src 'none'; script-src 'sha256-")
    assert "@import" not in page.read_text().split("</style>")[0]


def test_there_is_one_script_and_one_table_of_specifications(page):
    elements = Elements(page.read_text())
    assert elements.named("script") == [{"type": "application/json", "id": "specs"}, {}]
    assert len(json.loads(elements.scripts[0])) == 2 + 4 + 4 + 16 + 16 + 14


def test_names_are_escaped_in_text_attributes_and_data(tmp_path):
    runs = [make_run(tmp_path / "runs", name, NASTY) for name in (NASTY, "rope")]
    text = write_report(runs, tmp_path / "report.html").read_text()
    assert NASTY not in text
    assert html.escape(NASTY) in text
    elements = Elements(text)
    assert len(elements.named("script")) == 2
    assert json.loads(elements.scripts[0])[0]["description"] == NASTY


def test_the_command_rebuilds_the_page(page, store):
    (command,) = re.findall(r'<pre class="command">(.*?)</pre>', page.read_text())
    words = shlex.split(html.unescape(command))
    root = str(store[0].path.parent)
    assert words == [
        "spectrope",
        "report",
        *(run.id for run in read_tables(store).sources),
        "--runs",
        root,
        "--out",
        str(page),
    ]


def test_runs_of_several_folders_are_named_by_path(tmp_path):
    runs = [make_run(tmp_path / folder, name) for folder, name in (("my a", "nope"), ("b", "rope"))]
    text = html.unescape(write_report(runs, tmp_path / "report.html").read_text())
    assert f"spectrope report '{runs[0].path}' {runs[1].path} --out" in text


def test_the_same_runs_give_the_same_page(page, store):
    before = page.read_bytes()
    assert write_report([*store[::-1], store[0]], page).read_bytes() == before


def test_runs_without_ablation_give_a_page_without_drops(tmp_path):
    runs = make_store(tmp_path / "runs", ("nope", "rope"), ("distance",))
    for run in runs:
        run.remove("ablation")
    path = write_report(runs, tmp_path / "report.html")
    assert "None of these runs has been ablated" in shown(path)
    assert len(json.loads(Elements(path.read_text()).scripts[0])) == 1 + 2 + 2


def test_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="a report needs at least one run"):
        write_report([], tmp_path / "report.html")


def test_a_full_disk_is_one_line_and_keeps_the_old_page(tmp_path, monkeypatch):
    run = make_run(tmp_path / "runs", ENCODINGS[0])
    path = write_report([run], tmp_path / "report.html")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(StoreError, match="the disk is full"):
        write_report([run], path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    run = make_run(tmp_path / "runs", "rope")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="a file stands where a folder should"):
        write_report([run], tmp_path / "file" / "report.html")


def test_a_report_is_written_without_torch_or_the_lab(tmp_path):
    make_run(tmp_path / "runs", "rope").write_tensors("weights", {"x": torch.ones(2)}, {})
    code = """
import sys
import spectrope as sp

runs = sp.runs("runs")
sp.table(runs)
sp.report(runs, "page.html")
sp.figure(runs, "accuracy").save("accuracy.svg")
lab = ("spectrope.lab.training", "spectrope.lab.engines")
forbidden = ("torch", "spectrope.models", "spectrope.attention", *lab)
print(len(runs), *(name for name in forbidden if name in sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["1"]


def test_an_application_has_templates_of_its_own_and_the_shared_ones(tmp_path, monkeypatch):
    folder = tmp_path / "an_application" / "templates"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "panels.html").write_text("{{ words }}\n")
    monkeypatch.syspath_prepend(tmp_path)
    escaped, plain = (templates_of("an_application", autoescape=flag) for flag in (True, False))
    assert escaped.get_template("panels.html").render(words="<b>") == "&lt;b&gt;\n"
    assert plain.get_template("panels.html").render(words="<b>") == "<b>\n"
    assert set(escaped.list_templates()) == set(templates_of("spectrope.figures").list_templates())
