"""The gallery: registered figures and those of the applications, each drawn by the code shown with it."""

import contextlib
import inspect
import textwrap
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import spectrope as sp
from spectrope.core import SpectropeWarning
from spectrope.figures import FIGURES
from spectrope.figures.base import declared_tables
from spectrope.figures.tables import read_tables

RUNS = """
import spectrope as sp
from spectrope.lab import Cumulative, Job, LearningProbe, Screen

small = {"n_layers": 2, "n_heads": 4, "d_model": 32, "learning_rate": 0.009}
for encoding in ("alibi", "rope"):
    plan = sp.experiment("distance", encoding, epochs=2, n_examples=2000).with_(**small)
    run = sp.train(plan, root="runs", probe=LearningProbe(every=10), watch=sp.unwatched)
    for method in (None, Cumulative(examples=400), Screen(examples=400)):
        sp.ablate(run, method=method, watch=sp.unwatched)
    sp.spectrum(run, examples=16, draws=19, watch=sp.unwatched)
    sp.spectrum(run, examples=16, draws=19, terms=True, watch=sp.unwatched)
    sp.execute([Job(plan, ("movement",))], root="runs")
"""
RATES = """
sp.compare(
    ["alibi", "rope"],
    "distance",
    epochs=1,
    n_examples=300,
    settings=small,
    rates=(0.5, 1, 2),
    lengths=(1, 2),
    root="grid",
    watch=sp.unwatched,
)
"""
OF_GRID = ("tuning", "extrapolation")  # Tables of runs that are compared over learning rates and lengths.


@dataclass(frozen=True)
class Example:
    """A figure of an application.

    Args:
        title: Heading.
        text: What the figure shows.
        code: Python that draws it.
        picture: The file that the code writes.
    """

    title: str
    text: str
    code: str
    picture: str


EXAMPLES = (
    Example(
        "Causal atlas",
        "What each of two frequency bands of each head of a run costs: removed, frozen at the head's mean "
        "lag, kept alone, and with attention to the first token spared; then the whole head.",
        """
sp.atlas(run, bands=2, examples=200, watch=sp.unwatched).figure().save("atlas.svg")
""",
        "atlas.svg",
    ),
    Example(
        "Audit of a checkpoint",
        "Wavelengths of the coordinate pairs of a small Llama that declares base 500,000 but whose rotary "
        "module was built with base 10,000: circles are declared, dots are measured.",
        """
from pathlib import Path

import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from spectrope.checkpoints.audit.figures import pair_panels
from spectrope.figures import panels_spec, write_spec


def llama(base):
    return transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )


model = transformers.LlamaForCausalLM(llama(500_000.0))
model.model.rotary_emb = LlamaRotaryEmbedding(llama(10_000.0))
panels = pair_panels(sp.audit(model, length=64))
write_spec(panels_spec(panels, 420, 1), Path("audit-pairs.svg"))
""",
        "audit-pairs.svg",
    ),
    Example(
        "Kernels of a checkpoint",
        "Mean logit of each head by lag in an MPT model with linear biases, one panel per layer.",
        """
from spectrope.checkpoints.audit.figures import kernel_panels

config = transformers.MptConfig(d_model=64, n_heads=4, n_layers=2, vocab_size=64, max_seq_len=128)
panels = kernel_panels(sp.audit(transformers.MptForCausalLM(config), length=64))
write_spec(panels_spec(panels, 300, 2), Path("audit-kernels.svg"))
""",
        "audit-kernels.svg",
    ),
    Example(
        "Grokking",
        "Accuracy and loss during training on multiplication modulo 13. This run is too short to generalise.",
        """
from spectrope.grokking import GrokExperiment, GrokTraining, ModularConfig
from spectrope.grokking.figures import course_panels

grokking = GrokExperiment(
    task=ModularConfig(p=13, operation="mul"),
    training=GrokTraining(steps=200, evaluate_every=10),
)
run = sp.train(grokking, root="grok-runs", watch=sp.unwatched)
write_spec(panels_spec(course_panels([run]), 330, 2), Path("grokking-course.svg"))
""",
        "grokking-course.svg",
    ),
    Example(
        "Attention in linear time",
        "Time and memory of exact and polynomial attention by length, and the certified and measured error "
        "by degree, as `spectrope attention bench --longest 2048 --kernels polynomial --out "
        "attention-crossover.svg` draws them.",
        """
from spectrope.cli import main

bench = ["attention", "bench", "--longest", "2048", "--kernels", "polynomial"]
main([*bench, "--out", "attention-crossover.svg", "--quiet"])
""",
        "attention-crossover.svg",
    ),
)


def figure_code(name: str) -> str:
    """The code that draws a figure."""
    return f'sp.figure("{_runs_of(name)}", "{name}").save("{name}.svg")\n'


def draw(folder: Path) -> None:
    """Train the runs of the gallery in a folder, as far as they are not there, and draw every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    namespace: dict[str, object] = {}
    with contextlib.chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore", SpectropeWarning)  # Small models may be near chance.
        for code in (RUNS, RATES, *map(figure_code, FIGURES), *(one.code for one in EXAMPLES)):
            exec(code, namespace)


def captions(folder: Path) -> dict[str, str]:
    """How to read each registered figure of the drawn runs, as a report has it below the figure."""
    told = {}
    for place, names in groupby(sorted(FIGURES, key=_runs_of), key=_runs_of):
        figures = {name: FIGURES[name] for name in names}
        tables = read_tables(sp.runs(folder / place), declared_tables(figures.values()))
        told |= {name: figure().caption(tables) for name, figure in figures.items()}
    return told


def _runs_of(name: str) -> str:
    """The folder of the runs of a figure."""
    return "grid" if FIGURES[name].needs in OF_GRID else "runs"


def page(told: Mapping[str, str]) -> str:
    """The page in Markdown, with what is `told` of each figure below it; pictures lie beside the page."""
    parts = [
        "# Gallery",
        "Every kind of figure, with the code that draws it. The first two blocks train the runs. The models "
        "are tiny, so that all of it takes about a minute of processor time: the numbers only illustrate "
        "what a figure looks like, and warnings say which models are near chance. `spectrope report` shows "
        "the same figures on an interactive page with exact values; you can add "
        "[a figure of your own](../how-to/own-figure.md).",
        f"```python\n{RUNS.strip()}\n```",
        "Figures of learning rates, and of accuracy by length, need runs at several of them:",
        f"```python\n{RATES.strip()}\n```",
    ]
    for name in sorted(FIGURES, key=lambda name: (FIGURES[name].place, name)):
        figure = FIGURES[name]
        parts += [
            f"## {figure.title}",
            textwrap.dedent(inspect.getdoc(figure) or "").partition("\n\n")[0],
            f"```python\n{figure_code(name).strip()}\n```",
            f"![{figure.title}]({name}.svg)",
            told[name],
            f"Data: table `{figure.needs}`, see [the columns of tables](../reference/tables.md).",
        ]
    for one in EXAMPLES:
        picture = f"![{one.title}]({one.picture})"
        parts += [f"## {one.title}", one.text, f"```python\n{one.code.strip()}\n```", picture]
    return "\n\n".join(parts) + "\n"
