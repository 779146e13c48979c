"""A stand-in for a notebook: cells run one after the other, and what they display becomes a page.

IPython and its kernel are no dependency. This does what matters of them: `get_ipython()` has a kernel,
`display` publishes the representations that an object offers and its handle replaces them, and a cell's last
expression is displayed.
"""

import ast
import base64
import sys
import types
from dataclasses import dataclass, field
from html import escape
from typing import Any


def representations(shown: Any) -> dict[str, str]:
    """What IPython's display formatter asks an object for."""
    if hasattr(shown, "_repr_mimebundle_"):
        return dict(shown._repr_mimebundle_(include=None, exclude=None))
    html = {"text/html": shown._repr_html_()} if hasattr(shown, "_repr_html_") else {}
    return {"text/plain": repr(shown), **html}


@dataclass
class Output:
    """One output of a cell, and what it showed before."""

    bundle: dict[str, str]
    earlier: list[dict[str, str]] = field(default_factory=list)

    def update(self, shown: Any) -> None:
        self.earlier.append(self.bundle)
        self.bundle = representations(shown)

    def html(self) -> str:
        """The richest representation, as a front end takes it."""
        if "text/html" in self.bundle:
            return self.bundle["text/html"]
        if "image/svg+xml" in self.bundle:
            data = base64.b64encode(self.bundle["image/svg+xml"].encode()).decode()
            return f'<img src="data:image/svg+xml;base64,{data}">'
        return f"<pre>{escape(self.bundle['text/plain'])}</pre>"


class Notebook:
    """A kernel and its outputs, cell by cell."""

    def __init__(self, monkeypatch: Any) -> None:
        self.cells: list[list[Output]] = []
        self.names: dict[str, Any] = {"__name__": "__main__"}
        ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        shell = types.SimpleNamespace(kernel=object())
        ipython.get_ipython = lambda: shell  # pyright: ignore[reportAttributeAccessIssue]
        display.display = self.display  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, shown: Any, *, display_id: bool = False) -> Output:
        output = Output(representations(shown))
        self.cells[-1].append(output)
        return output

    def run(self, source: str) -> list[Output]:
        """Run a cell and display its last expression."""
        self.cells.append([])
        body = ast.parse(source).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "<cell>", "exec"), self.names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), self.names)
            if value is not None:
                self.display(value)
        return self.cells[-1]

    def page(self) -> str:
        """All outputs as one page, drawn when it is loaded."""
        cells = "".join(
            "<section>" + "".join(f"<div>{output.html()}</div>" for output in cell) + "</section>"
            for cell in self.cells
        )
        return f'<!doctype html><html data-drawn><meta charset="utf-8"><body>{cells}</body></html>'
