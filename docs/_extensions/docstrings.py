"""Docstrings as reStructuredText: what the code writes plainly is escaped where markup would read it."""

import re

from sphinx.application import Sphinx

KEPT = re.compile(r"(:math:`[^`]*`|``[^`]+``|`[^`]+`)")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKUP = re.compile(r"(?<!\\)([|*])")


def escaped(line: str) -> str:
    """A line of prose whose vertical bars and asterisks stand for themselves."""
    parts = KEPT.split(line)
    return "".join(part if at % 2 else MARKUP.sub(r"\\\1", part) for at, part in enumerate(parts))


def escape(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Escape prose; examples, and blocks under a directive, stay as they are."""
    lines[:] = FENCE.sub(_block, "\n".join(lines)).split("\n")
    block: int | None = None
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip() and block is not None and indent <= block:
            block = None
        if block is None and not line.lstrip().startswith((">>>", "...", ":math:")):
            lines[number] = escaped(line)
        if line.lstrip().startswith(".. ") or line.rstrip().endswith("::"):
            block = indent


def _block(fenced: re.Match[str]) -> str:
    """A block of code between Markdown's fences, as a directive."""
    code = "\n".join(f"   {line}" for line in fenced[2].splitlines())
    return f".. code-block:: {fenced[1]}\n\n{code}\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", escape, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
