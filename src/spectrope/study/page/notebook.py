"""A notebook that draws every figure of the study from its rows, a cell for each claim."""

import json
from typing import Any

from spectrope.study.claim import chosen_claims
from spectrope.study.page.paper.items import FIGURES

OPENING = """# Figures of the study, drawn from its rows

Each cell draws the figures of one claim from the rows of a scale, as [the page of the study](replication.md)
has them, or one of the paper's figures from the same rows. `spectrope claims publish` writes this notebook.
"""
SETTINGS = """from IPython.display import Markdown, display

from spectrope.core import ConfigError
from spectrope.study.page import claim_figures, paper_drawing
from spectrope.study.study import stored_rows

scale = "mini"  # Or "mid".
rows = stored_rows(scale)


def draw(claim):
    for figure in claim_figures(claim, rows, scale=scale):
        display(figure.drawing, Markdown(figure.caption))


def draw_paper(number, condition="controlled"):
    try:
        display(paper_drawing(number, rows, scale=scale, condition=condition))
    except ConfigError as reason:  # A scale may lack the runs of a figure.
        print(reason)"""
PAPER = """## The paper's figures

From the runs under `controlled`; `draw_paper(2, "released")` draws those of the public code."""


def written_notebook() -> str:
    """The notebook as text, without outputs."""
    cells = [_text("opening", OPENING.rstrip()), _code("settings", SETTINGS)]
    for claim in chosen_claims(()):
        cells.append(_text(f"{claim.kind}-title", f"## {claim.number}. {claim.title}"))
        cells.append(_code(claim.kind, f'draw("{claim.kind}")'))
    cells.append(_text("paper", PAPER))
    for figure in (one for one in FIGURES if one.draw is not None):
        name = figure.name.capitalize()
        cells.append(_text(f"figure-{figure.number}-title", f"### {name}: {figure.title}"))
        cells.append(_code(f"figure-{figure.number}", f"draw_paper({figure.number})"))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _text(name: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def _code(name: str, source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": {},
        "outputs": [],
        "source": source,
    }
