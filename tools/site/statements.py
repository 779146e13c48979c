"""Page of statements: what the papers say, where, the command that answers it, and its result."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from tools.site.evidence import Command, Evidence, read_evidence

from spectrope.study.conditions import SWITCHES, THROWN

IMAGES = Path(__file__).parents[2] / "docs" / "images"
FILE = Path(__file__).with_name("statements.toml")
CODE = "The first paper's public code"
OF_ABLATION = ("R9", "R10", "R12")  # Switches that concern the ablation alone.
KNOB = """## From content to position

Task `mixed` asks for a distance with a probability between 0 and 1, and otherwise about content. With
probability 1 it resembles Task 1, and with probability 0 a position-agnostic task. The figure shows held-out
accuracy against that share; the dashed line is the best possible accuracy of a model that sees the words in
random order. {runs}; the scores are in `docs/images/position-share.csv`.

```console
$ python -m tools.position_share --encodings nope sinusoidal random t5 alibi rope --seeds 3 --epochs 2
```

![Held-out accuracy against the share of questions about position](../images/position-share.svg)"""
MATH = re.compile(r":math:`([^`]+)`")


@dataclass(frozen=True)
class Statement:
    """One statement, setting or figure of a paper.

    Args:
        paper: The paper.
        where: Section, equation, figure or table; several are separated by semicolons.
        says: What it says, in our words.
        answers: What answers it.
    """

    paper: str
    where: str
    says: str
    answers: Sequence[Evidence]

    @property
    def places(self) -> list[str]:
        """Where it says so, one by one."""
        return self.where.split("; ")


def statements() -> Iterator[Statement]:
    """All statements, paper by paper, and the differences between the first paper and its code."""
    for paper in tomllib.loads(FILE.read_text(encoding="utf-8"))["paper"]:
        for row in paper["row"]:
            answers = [read_evidence(fields) for fields in row["answers"]]
            yield Statement(paper["name"], row["where"], row["says"], answers)
    yield from _switches()


def _switches() -> Iterator[Statement]:
    names = sorted({*SWITCHES, *OF_ABLATION}, key=lambda name: int(name[1:]))
    for name in names:
        conditions = " and ".join(f"`{one}`" for one in THROWN if name in THROWN[one])
        told = f"part of {conditions}" if conditions else "one of the switches of claim 11"
        command = (
            f"spectrope ablate RUN --protocol {name}" if name in OF_ABLATION else "spectrope claims show 11"
        )
        result = f"a switch, {told}; [conformance](../explanation/conformance.md) says what it changes"
        yield Statement(CODE, name, "Text and code differ.", [Command(command, result)])


def page() -> str:
    """The page in Markdown.

    Raises:
        LookupError: If a row names what does not exist.
    """
    by_paper: dict[str, list[Statement]] = {}
    for one in statements():
        by_paper.setdefault(one.paper, []).append(one)
    lead = (
        "Every statement, setting, figure and table of the papers behind SpectroPE, with the command that "
        "answers it and its result. The page is generated: verdicts are those of the "
        "[replication](../explanation/replication.md), judgements of theory those of the "
        "[ledger](../explanation/ledger.md), and each claim, member, command and test that a row names is "
        "looked up when the page is built. `RUN` stands for a run folder. Where nothing answers a statement, "
        "or only in part, the row says why."
    )
    parts = ["# What the papers say, row by row", lead]
    parts += [f"## {paper}\n\n{_table(some)}" for paper, some in by_paper.items()]
    return "\n\n".join((*parts, KNOB.format(runs=_runs()))) + "\n"


def _runs() -> str:
    """What the figure of the knob was drawn from."""
    scores = pl.read_csv(IMAGES / "position-share.csv")
    names = ", ".join(f"`{name}`" for name in scores["encoding"].unique(maintain_order=True))
    n_seeds = scores["seed"].n_unique()
    seeds = f"{n_seeds} seed{'s' if n_seeds > 1 else ''}"
    epochs = " or ".join(map(str, sorted(scores["epochs"].unique())))
    each = f"{epochs} epochs and {seeds} each"
    return f"It is drawn from {len(scores)} runs with the sizes of `mini`, {each}, of {names}"


def _table(some: Sequence[Statement]) -> str:
    lines = ["| where | what the paper says | command | result |", "| --- | --- | --- | --- |"]
    for one in some:
        found = [answer.found() for answer in one.answers]
        commands = "<br>".join(dict.fromkeys(f"`{each.command}`" for each in found if each.command))
        results = "<br>".join(dict.fromkeys(_cell(each.result) for each in found))
        lines.append(f"| {_cell(one.where)} | {_cell(one.says)} | {commands} | {results} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return MATH.sub(r"$\1$", text).replace("|", "\\|")
