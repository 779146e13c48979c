"""Formulas as MathML, which browsers draw without a script and without the network."""

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)


def converted(node: nodes.Element, *, block: bool) -> str:
    """MathML of a formula; one that cannot be converted is a warning, and shown as it is typed."""
    text = node.astext()
    try:
        return latex2mathml.tex2mathml(text.replace(r"\dots", r"\ldots"), as_block=block)
    except MathError as error:
        log.warning("formula %r: %s", text, error, location=node)
        return f"<code>{text}</code>"


def visit_inline(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(converted(node, block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.Element) -> None:
    self.body.append(f'<div class="formula">{converted(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
