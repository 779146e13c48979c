"""What the site is built from: the repository's documents, and pages generated from its code."""

import json
import shutil
from pathlib import Path

from tools.site import api, commands, gallery, replication, statements, tables

from spectrope.study.page.publication import PAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "recipes/README.md": "how-to/recipes.md",
}
REPLICATIONS = tuple(f"explanation/{page.name}" for page in PAGES)


def write_sources(folder: Path, drawn: Path) -> None:
    """Copy the documents into a folder, and write the generated pages beside them.

    Args:
        folder: Written anew.
        drawn: Folder of the gallery's runs and pictures, which is kept from one build to the next.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, place in OUTSIDE.items():
        _write(folder / place, _moved((ROOT / name).read_text(encoding="utf-8")))
    for recipe in (ROOT / "recipes").glob("*.json"):
        shutil.copy(recipe, folder / "how-to")
    for notebook in folder.glob("*/*.ipynb"):
        _write(notebook, downloadable(notebook))
    for name in REPLICATIONS:
        for place, text in replication.split(
            name, (folder / f"{name}.md").read_text(encoding="utf-8")
        ).items():
            _write(folder / f"{place}.md", text)
    for name, text in api.pages().items():
        _write(folder / f"{name}.rst", text)
    for name, text in commands.pages().items():
        _write(folder / f"{name}.md", text)
    gallery.draw(drawn)
    _write(folder / "gallery" / "index.md", gallery.page(gallery.captions(drawn)))
    for picture in drawn.glob("*.svg"):
        shutil.copy(picture, folder / "gallery")
    _write(folder / "reference" / "tables.md", tables.page(drawn / "runs"))
    _write(folder / "reference" / "statements.md", statements.page())


def downloadable(notebook: Path) -> str:
    """A notebook whose first cell links the notebook itself, so that readers of its page can download it."""
    content = json.loads(notebook.read_text(encoding="utf-8"))
    first = content["cells"][0]
    link = f"{{download}}`Download this notebook <{notebook.name}>` to run it."
    first["source"] = f"{first['source'].rstrip()}\n\n{link}"
    return json.dumps(content, indent=1, ensure_ascii=False)


def _moved(text: str) -> str:
    """A document of the repository's root, as a page of the site."""
    return text.replace("](docs/", "](").replace("](README.md)", "](index.md)").replace("](../docs/", "](../")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
