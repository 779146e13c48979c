"""The site's generated pages are complete."""

import json

import polars as pl
import pytest
from tools.site import api, commands, gallery, replication, sources, tables

from spectrope.figures import FIGURES
from spectrope.figures.tables import ABLATION, MEASURED, METRICS
from spectrope.front.runs import SCHEMA
from spectrope.lab import QUANTITIES


def test_every_public_name_of_every_room_is_described():
    pages = api.pages()
    text = "\n".join(pages.values())
    for name in ("spectrope.compare", "spectrope.encodings.RoPE", "spectrope.stats.Interval"):
        assert f":: {name}\n" in text
    assert set(pages) == {f"reference/api/{name}" for name in ("index", "spectrope", *api.ROOMS)}


def test_every_command_and_action_has_its_options():
    pages = commands.pages()
    assert "| `--encodings NAME ...` |" in pages["reference/commands/compare"]
    assert "## `spectrope claims run`" in pages["reference/commands/claims"]
    assert "*rare*" in pages["reference/commands/ablate"]


def test_the_gallery_has_every_figure_with_its_code():
    page = gallery.page({name: f"How to read {name}." for name in FIGURES})
    for name in FIGURES:
        picture = f"![{FIGURES[name].title}]({name}.svg)"
        assert f"{gallery.figure_code(name).strip()}\n```\n\n{picture}\n\nHow to read {name}.\n" in page
    for example in gallery.EXAMPLES:
        assert f"{example.code.strip()}\n```\n\n![{example.title}]({example.picture})" in page
        assert f'"{example.picture}"' in example.code


def test_every_declared_column_has_a_meaning():
    declared = {"runs": SCHEMA, "metrics": METRICS, "ablation": ABLATION, **MEASURED}
    for schema in declared.values():
        assert all(tables.meaning(name, schema) for name in schema)
    assert set(MEASURED) <= set(tables.TABLES)
    assert all(tables.meaning(name, {}) for name in QUANTITIES)


def test_a_column_without_a_meaning_is_an_error():
    with pytest.raises(KeyError):
        tables.meaning("nonsense", {"nonsense": pl.Int64})


def test_a_replication_page_becomes_one_page_per_claim():
    whole = (
        "# Top\n\n| [One](#one) |\n\n"
        '<a id="one"></a>\n## 1. One\n\n![One](images/r/1.svg), as [two](#two).\n\n'
        '<a id="two"></a>\n## 2. Two\n\nText.\n\n## Withdrawn\n\nNothing.\n'
    )
    pages = replication.split("explanation/r", whole)
    assert set(pages) == {"explanation/r", "explanation/r/one", "explanation/r/two"}
    assert "| [One](r/one.md) |" in pages["explanation/r"]
    assert "## Withdrawn" in pages["explanation/r"]
    assert pages["explanation/r"].startswith(
        "---\nhtml_theme.sidebar_secondary.remove: true\n---\n# Top\n\n```{contents}"
    )
    again = replication.split("explanation/r-fresh", whole)
    assert again["explanation/r-fresh/one"].startswith("# 1. One (new seeds)\n")
    assert pages["explanation/r/one"] == "# 1. One\n\n![One](../images/r/1.svg), as [two](two.md).\n"


def test_each_tutorial_offers_its_notebook_for_download():
    for notebook in sorted((sources.DOCS / "tutorials").glob("*.ipynb")):
        first = json.loads(sources.downloadable(notebook))["cells"][0]["source"]
        assert first.endswith(f"\n\n{{download}}`Download this notebook <{notebook.name}>` to run it.")
