"""Figures and tables of the paper by number, and the results to compare with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from spectrope.core import ConfigError
from spectrope.figures import Panel, Table
from spectrope.study.claims.latent_attention import TABLE_1
from spectrope.study.page.paper.arms import TASKS, PaperRuns
from spectrope.study.page.paper.draw import accuracies, bars, by_heads, curves, drops, head_lines

T = TypeVar("T")
SOURCE = "arXiv 2505.13027 v1"
SIX = ("rope", "sinusoidal", "random", "t5", "alibi", "nope")
NO_NUMBERS = "The paper prints no numbers for this figure."


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper, or several in a row that show the same of different settings.

    Args:
        number: Its number, the first of several.
        title: What it shows.
        says: What the text concludes from it, and where.
        draw: Its panels from the runs there are; None where nothing is drawn.
        reason: Why there is nothing to draw.
        others: The numbers of the others.
    """

    number: int
    title: str
    says: str
    draw: Callable[[PaperRuns], list[Panel]] | None = None
    reason: str = ""
    others: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Its number in words."""
        return f"figures {self.number} to {self.others[-1]}" if self.others else f"figure {self.number}"

    def panels(self, runs: PaperRuns) -> list[Panel]:
        """Its panels.

        Raises:
            ConfigError: If nothing can be drawn, with the reason.
        """
        if self.draw is None:
            raise ConfigError(f"{self.name} of {SOURCE}: {self.reason}")
        panels = self.draw(runs)
        if not panels:
            raise ConfigError(
                f"{self.name} of {SOURCE} has no runs to draw at scale {runs.scale} under "
                f"{runs.condition}; `spectrope claims run --scale {runs.scale}` makes those of the claims."
            )
        return panels


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper.

    Args:
        number: Its number.
        title: What it shows.
        says: What the text concludes from it, or how to read it.
        fill: Its records from the runs there are, printed values beside ours; None where there are none.
        reason: Why there are none.
        show: Its rows as texts, from the records.
    """

    number: int
    title: str
    says: str
    fill: Callable[[PaperRuns], list[dict[str, Any]]] | None = None
    reason: str = ""
    show: Callable[[list[dict[str, Any]]], list[dict[str, str]]] = list

    def records(self, runs: PaperRuns) -> list[dict[str, Any]]:
        """Its values; accuracies are numbers, and settings are the texts that are compared.

        Raises:
            ConfigError: If it cannot be filled, with the reason.
        """
        if self.fill is None:
            raise ConfigError(f"table {self.number} of {SOURCE}: {self.reason}")
        return self.fill(runs)

    def table(self, runs: PaperRuns) -> Table:
        """The table as it is shown.

        Raises:
            ConfigError: If it cannot be filled, with the reason.
        """
        title = f"Table {self.number}: {self.title}"
        return Table(f"table-{self.number}", title, self.says, self.show(self.records(runs)))


def _accuracy_records(runs: PaperRuns) -> list[dict[str, Any]]:
    none = {"estimate": None, "low": None, "high": None, "seeds": 0, "note": ""}
    return [
        {"method": method, "task": task, "paper": TABLE_1[task][method]}
        | (accuracies(runs.found(task, method, "metrics")) or none)
        for method in TABLE_1["distance"]
        for task in TASKS
    ]


def _accuracy_rows(records: list[dict[str, Any]]) -> list[dict[str, str]]:
    """A row per method, with three columns for each task."""
    rows: dict[str, dict[str, str]] = {}
    for one in records:
        name = TASKS[one["task"]]
        rows.setdefault(one["method"], {"method": one["method"]}).update(
            {
                f"{name}: paper": f"{one['paper']:.2f}",
                f"{name}: here": _accuracy_text(one) if one["seeds"] else "not run",
                f"{name}: seeds": ", ".join(filter(None, (str(one["seeds"]), one["note"]))),
            }
        )
    return list(rows.values())


def _accuracy_text(found: Mapping[str, Any]) -> str:
    """The mean, with its interval if there are several seeds."""
    mean = f"{found['estimate']:.1f}"
    return mean if found["low"] is None else f"{mean} [{found['low']:.1f}, {found['high']:.1f}]"


SETTINGS = {
    "vocabulary": "574",
    "model width": "256",
    "feed-forward width": "512",
    "heads": "16",
    "layers": "6",
    "dropout": "0.1",
    "maximum length": "128",
    "epochs, Task 1": "100",
    "epochs, Task 2": "150",
    "optimiser": "AdamW, lr 0.0001, betas (0.98, 0.9), decay 1e-05",
    "warm-up": "0.06 of the steps",
    "training share": "0.7",
}  # Tables 3 and 4 have these in common.


def _setting_rows(printed: dict[str, str], encoding: str, runs: PaperRuns) -> list[dict[str, str]]:
    ours = _settings(encoding, runs)
    return [{"setting": name, "paper": text, "here": ours[name]} for name, text in printed.items()]


def _settings(encoding: str, runs: PaperRuns) -> dict[str, str]:
    one, other = (runs.experiments(task, encoding)[0] for task in TASKS)
    model, training = one.model, one.training
    return {
        "vocabulary": f"{model.vocabulary}",
        "model width": f"{model.d_model}",
        "feed-forward width": f"{model.d_ff}",
        "heads": f"{model.n_heads}",
        "layers": f"{model.n_layers}",
        "dropout": f"{model.dropout}",
        "maximum length": f"{model.max_length}",
        "epochs, Task 1": f"{training.epochs}",
        "epochs, Task 2": f"{other.training.epochs}",
        "batch size": f"{training.batch_size}",
        "latent width": f"{getattr(model.attention, 'latent', '')}",
        "optimiser": f"AdamW, lr {training.learning_rate}, betas {training.betas}, "
        f"decay {training.weight_decay}",
        "warm-up": f"{training.warmup} of the steps",
        "training share": f"{one.n_train / (one.n_train + one.n_test):.1f}",
    }


PARTIAL = {9: 2, 10: 3, 11: 5, 12: 6, 13: 13, 14: 15}  # Heads with RoPE, of 16.
FIGURES = (
    PaperFigure(1, "overview", "", reason="it is a diagram of the argument and shows no measurement."),
    PaperFigure(
        2,
        "accuracy by epoch on Task 1",
        "Sec. 4.2: RoPE converges fastest, absolute comes second, random overfits, ALiBi, NoPE and relative "
        f"stay low. {NO_NUMBERS}",
        partial(curves, task="distance", encodings=SIX),
    ),
    PaperFigure(
        3,
        "accuracy by epoch on Task 2",
        "Sec. 4.2: positional biases cost accuracy, ALiBi's most; relative matches NoPE; random has the "
        f"largest gap. {NO_NUMBERS}",
        partial(curves, task="counting", encodings=SIX),
    ),
    PaperFigure(
        4,
        "drops of single heads: RoPE and NoPE on Task 1, RoPE on Task 2",
        "Sec. 5.1: under RoPE one head of a shallow layer carries Task 1; elsewhere none does. "
        "Outlines are densities over heads; layers count from 0 here.",
        partial(drops, cases=(("distance", "rope"), ("distance", "nope"), ("counting", "rope"))),
    ),
    PaperFigure(
        5,
        "accuracy by number of heads with RoPE",
        f"Sec. 5.1: with a handful of heads Task 1 stays below full RoPE, and Task 2 suffers. {NO_NUMBERS}",
        by_heads,
    ),
    PaperFigure(
        6,
        "RoPE with an absolute term: accuracy and drops",
        "Sec. 5.2: no deposit in the first layer; it returns from the second on.",
        lambda runs: [
            *bars(runs, [("distance", "sum"), ("counting", "sum")]),
            *drops(runs, [("distance", "sum")]),
        ],
    ),
    PaperFigure(
        7,
        "drops of single heads under MLA",
        "Sec. 5.2: no head is indispensable on Task 1.",
        partial(drops, cases=(("distance", "mla"),)),
    ),
    PaperFigure(
        8,
        "drops of single heads under ALiBi, absolute and relative",
        "App. C.2: position is scattered under relative and ALiBi; absolute has some significant shallow "
        "heads.",
        partial(drops, cases=(("distance", "alibi"), ("distance", "sinusoidal"), ("distance", "t5"))),
    ),
    PaperFigure(
        9,
        "drops by head with RoPE on some of the heads",
        "App. C.3: the most significant head need not be in the first layer. The paper shows two layers of "
        "each of six numbers k of 16 heads; here every number that was run has a panel with all layers, and "
        "its title names the figure whose share of heads is nearest.",
        partial(head_lines, printed={number: k / 16 for number, k in PARTIAL.items()}),
        others=(10, 11, 12, 13, 14),
    ),
)
TABLES = (
    PaperTable(
        1,
        "accuracy of MLA, RoPE and NoPE, in percent",
        "Published values are from one seed; ours are means over seeds with 95 % t intervals, cut at 0 and "
        "100 %.",
        _accuracy_records,
        show=_accuracy_rows,
    ),
    PaperTable(2, "notation", "", reason="it lists symbols and shows no measurement."),
    PaperTable(
        3,
        "settings",
        "Printed values beside those of this scale and condition.",
        partial(_setting_rows, SETTINGS | {"batch size": "512 or 1024"}, "rope"),
    ),
    PaperTable(
        4,
        "settings of MLA",
        'Published values and those of this scale and condition. The paper has "16 heads (8 in fact)".',
        partial(_setting_rows, SETTINGS | {"latent width": "128", "batch size": "1024"}, "mla"),
    ),
)


def figure_of(number: int) -> PaperFigure:
    """A figure by its number.

    Raises:
        ConfigError: If the paper has no such figure.
    """
    return _numbered(number, {n: one for one in FIGURES for n in (one.number, *one.others)}, "figures")


def table_of(number: int) -> PaperTable:
    """A table by its number.

    Raises:
        ConfigError: If the paper has no such table.
    """
    return _numbered(number, {one.number: one for one in TABLES}, "tables")


def _numbered(number: int, known: dict[int, T], kind: str) -> T:
    if number not in known:
        raise ConfigError(f"{SOURCE} has {kind} 1 to {max(known)}; got {number}.")
    return known[number]
