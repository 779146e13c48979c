"""Common parts of all pages, which are self-contained HTML files with script and style."""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from spectrope.figures.base import Panel
from spectrope.figures.places import check_page
from spectrope.figures.save import VEGA_LITE
from spectrope.figures.spec import page_spec
from spectrope.store import write_output

SHARED = "spectrope.figures"  # Whose templates every page may use.
CONTENTS = Markup("<!--contents-->")  # Where the list of a page's sections goes.
SECTION = re.compile(r'<section id="([^"]+)"[^>]*>\s*<h2>(.*?)</h2>')


@dataclass(frozen=True)
class Section:
    """One kind of drawing.

    Args:
        name: Anchor.
        title: Heading.
        caption: How to read it.
        panels: Its panels.
        least: Minimum width of a panel, in pixels.
        command: Command that draws it again, if there is one.
    """

    name: str
    title: str
    caption: str
    panels: list[Panel]
    least: int
    command: str = ""


@dataclass(frozen=True)
class Table:
    """A table of text.

    Args:
        name: Anchor.
        title: Heading.
        caption: How to read it.
        rows: Cells by heading, in the same order in every row; the first names the row.
    """

    name: str
    title: str
    caption: str
    rows: list[dict[str, str]]


def rendered(
    template: str, panels: Sequence[Panel], *styles: str, package: str = SHARED, **content: Any
) -> str:
    """A page as text.

    Args:
        template: File name of the template, in which everything but script and style is escaped.
        panels: What is drawn, in the order in which the template has places for it.
        styles: File names of style sheets beside the common one.
        package: The application that the template and the style sheets belong to.
        content: What the template shows.
    """
    environment = templates_of(package)
    script = f"{_bundle()}\n{_source(environment, 'boot.js')}"
    page = environment.get_template(template).render(
        **content,
        contents=CONTENTS,
        specs=[page_spec(panel) for panel in panels],
        script=Markup(script),
        script_hash=_hash(script),
        style=Markup("\n".join(_source(environment, name) for name in ("style.css", *styles))),
    )
    return page.replace(CONTENTS, _contents(page), 1)


def templates_of(package: str, *, autoescape: bool = True) -> jinja2.Environment:
    """Templates of an application, and those of this package, which all pages share.

    Args:
        package: Dotted name of the application; its folder `templates` takes precedence.
        autoescape: Whether values are escaped for HTML.
    """
    loaders = [jinja2.PackageLoader(name) for name in dict.fromkeys((package, SHARED))]
    return jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=autoescape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def write_page(page: str, path: Path, suffix: str = ".html") -> Path:
    """Write a page, whole or not at all, and return its path.

    Raises:
        ConfigError: If the file's suffix is another.
        StoreError: If the file cannot be written.
    """
    check_page(path, suffix)
    write_output(path, page.encode("utf-8", "replace"))  # A page may name a path that is no UTF-8.
    return path


def _contents(page: str) -> str:
    """Links to the sections of a page, by its own headings, which are escaped already."""
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in SECTION.findall(page))
    return f'<nav class="contents" aria-label="Contents"><ul>{links}</ul></nav>'


def _source(environment: jinja2.Environment, name: str) -> str:
    """A file beside the templates as it is: a script or a style sheet."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return vl_convert.javascript_bundle(vl_version=VEGA_LITE)  # pyright: ignore[reportCallIssue]


def _hash(script: str) -> str:
    """Hash of the page's only script, for its content security policy."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
