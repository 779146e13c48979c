"""How a run is displayed: a line in a terminal, a card in a notebook."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from spectrope.core import StoreError

if TYPE_CHECKING:
    from spectrope.store.run import Run

NAMES = ("laboratory", "task", "encoding_name", "scale", "condition", "seed")
SCORES = {"train_accuracy": "training", "test_accuracy": "held out", "bayes_accuracy": "ceiling"}


def facts(run: "Run") -> dict[str, str]:
    """Task, encoding, scores, tables and folder of a run; for a damaged run, the damage.

    Accuracies are in percent.
    """
    try:
        return {**_names(run.config), **_results(run), "folder": str(run.path)}
    except StoreError as error:
        return {"damaged": str(error)}


def as_line(run: "Run") -> str:
    """Its facts on one line."""
    known = facts(run)
    names = [known[name] if name != "seed" else f"seed {known[name]}" for name in NAMES if name in known]
    results = [f"{name} {known[name]}" for name in (*SCORES.values(), "damaged") if name in known]
    state = [] if known.get("finished", "True") == "True" else ["unfinished"]
    return f"<Run {run.id}: {', '.join([*names, *results, *state])}>"


def as_card(run: "Run") -> str:
    """Its facts as a table of HTML."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name.removesuffix("_name"))}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in facts(run).items()
    )
    return f"<table><caption>run {escape(run.id)}</caption>{rows}</table>"


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    found = {name: config[name] for name in NAMES if name in config}
    return {
        name: str(value.get("kind", value) if isinstance(value, Mapping) else value)
        for name, value in found.items()
    }


def _results(run: "Run") -> dict[str, str]:
    if not run.finished:
        return {"finished": "False"}
    manifest = run.manifest
    reached = {
        title: f"{100 * manifest[key]:.1f} %"
        for key, title in SCORES.items()
        if isinstance(manifest.get(key), int | float)
    }
    return {"finished": "True", **reached, "tables": ", ".join(run.frames) or "none"}
