"""The gallery: every registered figure, drawn by the code that stands beside it."""

import contextlib
import inspect
import textwrap
import warnings
from pathlib import Path

from spectrope.core import SpectropeWarning
from spectrope.figures import FIGURES

RUNS = """
import spectrope as sp
from spectrope.lab import Cumulative, LearningProbe, Screen

small = {"n_layers": 2, "n_heads": 4, "d_model": 32, "learning_rate": 0.009}
for encoding in ("alibi", "rope"):
    plan = sp.experiment("distance", encoding, epochs=2, n_examples=2000).with_(**small)
    run = sp.train(plan, root="runs", probe=LearningProbe(every=10), watch=sp.unwatched)
    for method in (None, Cumulative(examples=400), Screen(examples=400)):
        sp.ablate(run, method=method, watch=sp.unwatched)
    sp.spectrum(run, examples=16, draws=19, watch=sp.unwatched)
"""
RATES = """
sp.compare(
    ["alibi", "rope"],
    "distance",
    epochs=1,
    n_examples=300,
    settings=small,
    rates=(0.5, 1, 2),
    root="grid",
    watch=sp.unwatched,
)
"""
TUNED = "tuning"  # The table of runs whose learning rate is chosen from a grid.


def figure_code(name: str) -> str:
    """The code that draws a figure."""
    folder = "grid" if FIGURES[name].needs == TUNED else "runs"
    return f'sp.figure("{folder}", "{name}").save("{name}.svg")\n'


def draw(folder: Path) -> None:
    """Train the runs of the gallery in a folder, as far as they are not there, and draw every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    namespace: dict[str, object] = {}
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpectropeWarning)  # Small models may be near chance.
        for code in (RUNS, RATES, *map(figure_code, FIGURES)):
            exec(code, namespace)


def page() -> str:
    """The page in Markdown; pictures lie beside it."""
    parts = [
        "# Gallery",
        "Every kind of figure, drawn by the code beside it from runs that the first two blocks make. The "
        "models are tiny, so that all of it takes under a minute; their numbers show how a figure looks and "
        "nothing else. The page of `spectrope report` shows the same figures with exact values at the "
        "pointer; [a figure of your own](../how-to/own-figure.md) joins them.",
        f"```python\n{RUNS.strip()}\n```",
        "Learning rates are compared in runs of their own:",
        f"```python\n{RATES.strip()}\n```",
    ]
    for name in sorted(FIGURES, key=lambda name: (FIGURES[name].place, name)):
        figure = FIGURES[name]
        parts += [
            f"## {figure.title}",
            textwrap.dedent(inspect.getdoc(figure) or "").partition("\n\n")[0],
            f"```python\n{figure_code(name).strip()}\n```",
            f"![{figure.title}]({name}.svg)",
            f"Draws table `{figure.needs}`: see [the columns of tables](../reference/tables.md).",
        ]
    return "\n\n".join(parts) + "\n"
