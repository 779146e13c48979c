"""Data card of the study: what each scale, task and condition is, and which rows are committed."""

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from spectrope.lab import DATA_VERSION, SCALES, experiment
from spectrope.lab.training.scales import TRAIN_SHARE
from spectrope.store import RESULTS_VERSION, read_records
from spectrope.study.arms import NAMES_AND_MLA
from spectrope.study.conditions import SWITCHES, THROWN
from spectrope.study.grok_arms import MODULUS, SHARE, SIDES, STEPS, scaled
from spectrope.study.plan import plan, planned_sections
from spectrope.study.rows import is_row
from spectrope.tasks import TASKS

OF_MODELS = ("n_layers", "n_heads", "head_dim", "d_model", "d_ff", "dropout")
OF_TRAINING = ("batch_size", "betas", "weight_decay", "warmup")
MATH = re.compile(r":math:`([^`]+)`")
EXAMPLE = ("distance", "rope")  # Of which the settings of a scale are printed.


def data_card(place: Path) -> str:
    """The card in Markdown.

    Args:
        place: Folder of the rows.

    Raises:
        StoreError: If a file of rows cannot be read.
    """
    parts = [
        "# Data card",
        "What the [replication](replication.md) and [the runs at scale `mid`](replication-mid.md) were made "
        "from: scales, tasks, conditions and rows. `spectrope claims publish` writes this page from the code "
        "and from the stored rows.",
        "## Data",
        "All examples are synthetic and drawn by the tasks below; no people, texts or licences are behind "
        "them. Of the tasks of the first paper, example i of seed s is always the same, whatever else is "
        f"drawn; the first {100 * TRAIN_SHARE:.0f} % of the examples train and the others are held out; two "
        "draws may be alike by chance. Version of the data: "
        f"{DATA_VERSION}; of the results: {RESULTS_VERSION}.",
        "## Scales",
        _table(("scale", *OF_MODELS, *OF_TRAINING), map(_scale, SCALES)),
        "## Tasks",
        *map(_task, TASKS),
        "## Residues",
        "The claims on grokking of the second paper train on all pairs of residues modulo p, of which the "
        "seed draws those that train; all others are the test set. A square or a strip of pairs never "
        "trains: those with both operands, or the first, at most k. These runs have one layer; they have no "
        "condition of the first paper, and count as `described`.",
        _table(("scale", "modulus p", "pairs that train, %", "k", "steps"), map(_residues, MODULUS)),
        "## Conditions",
        "Each switch departs from `controlled` as the [table of switches](conformance.md) "
        "says. Below are the fields of the configuration that it changes, for the encodings and tasks of the "
        "study at scale `paper`.",
        _table(("condition", "switches"), map(_condition, THROWN)),
        _table(("switch", "field", "from", "to", "in"), _switches()),
        "## Rows",
        "One line per run, in JSON: configuration, facts (accuracies, losses, seconds, commit, machine) and "
        "tables. A run that was measured further has a second line, whose tables are added to those of the "
        "first. Rows of pilots never count in an estimate; withdrawn rows are counted here, and named on "
        "the page of the replication.",
        _table(("file", "scale", "condition, or laboratory", "runs", "seeds", "finished"), _rows(place)),
        "\n".join(map(_planned, planned_sections())),
    ]
    return "\n\n".join(parts) + "\n"


def _table(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    head = (columns, ["---"] * len(columns))
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (*head, *lines))


def _words(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _scale(name: str) -> list[Any]:
    one = experiment(*EXAMPLE, scale=name)
    settings = [getattr(one.model, field) for field in OF_MODELS]
    settings += [getattr(one.training, field) for field in OF_TRAINING]
    return [f"`{name}`", *(_words(value) if isinstance(value, tuple) else value for value in settings)]


def _task(name: str) -> str:
    """What a task asks, and its sizes."""
    text = inspect.getdoc(TASKS[name]) or ""
    stated = text.partition("\nReferences:")[0].partition("\nArgs:")[0].strip()
    lines = [_sizes(name, scale) for scale in SCALES]
    columns = ("scale", "vocabulary", "longest", "labels", "best accuracy", "examples", "epochs", "peak rate")
    text = MATH.sub(r"$\1$", stated)
    return f"### `{name}`\n\n{text}\n\n{_table(columns, lines)}"


def _sizes(name: str, scale: str) -> list[Any]:
    one = experiment(name, "rope", scale=scale)
    task = one.task.build()
    return [
        f"`{scale}`",
        task.vocabulary,
        task.max_length,
        task.n_classes,
        f"{task.bayes_accuracy():.3g}",
        one.n_train + one.n_test,
        one.training.epochs,
        f"{one.training.learning_rate:g}",
    ]


def _residues(scale: str) -> list[Any]:
    """The setting of grokking runs at a scale, and the bounds of what is held out."""
    bounds = _words(scaled(k, scale) for k in SIDES)
    return [f"`{scale}`", MODULUS[scale], f"{100 * SHARE[scale]:.0f}", bounds, f"{STEPS[scale]:,}"]


def _condition(name: str) -> list[str]:
    return [f"`{name}`", _words(THROWN[name]) or "none"]


def _switches() -> Iterator[list[str]]:
    """The fields that each switch changes, from and to what, and for which encodings."""
    for name, switch in SWITCHES.items():
        changes: dict[tuple[str, str, str], list[str]] = {}
        for task in ("distance", "counting"):
            for encoding, words in NAMES_AND_MLA.items():
                before = experiment(task, encoding, scale="paper")
                for field, old, new in _changes(before, switch(before)):
                    changes.setdefault((field, old, new), []).append(words)
        for (field, old, new), where in changes.items():
            named = dict.fromkeys(where)
            told = "all" if len(named) == len(NAMES_AND_MLA) else _words(named)
            yield [name, f"`{field}`", f"`{old}`", f"`{new}`", told]


def _changes(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """The fields in which two configurations of one class differ, with those of nested ones."""
    for field in vars(before):
        old, new = getattr(before, field), getattr(after, field)
        if old == new:
            continue
        if is_dataclass(old) and type(old) is type(new):
            yield from ((f"{field}.{inner}", one, other) for inner, one, other in _changes(old, new))
        else:
            yield field, _short(old), _short(new)


def _short(value: Any) -> str:
    """A value on one line, without the fields of nested configurations."""
    parts = getattr(value, "parts", None)
    if parts is not None:
        return " + ".join(map(_short, parts))
    name = type(value).__qualname__.removesuffix(".Config")
    return name if is_dataclass(value) else str(value)


def _planned(name: str) -> str:
    section = plan()[name]
    seeds = set(section["seeds"]).union(*(one.get("seeds", ()) for one in section["order"]))
    return (
        f"- Planned in section `{name}` at scale `{section['scale']}`: seeds {_words(sorted(seeds))} "
        f"under {' and '.join(section['conditions'])}, at most {section['core_hours']} core-hours."
    )


def _rows(place: Path) -> Iterator[list[Any]]:
    """How many runs each file has, by condition, or by laboratory where there are no conditions."""
    names = [(scale, f"{scale}{of}.jsonl") for scale in SCALES for of in ("", "-pilots")]
    for scale, file in ((scale, place / name) for scale, name in names if (place / name).exists()):
        newest = {record["run"]: record for record in read_records(file)[0] if is_row(record)}.values()
        keys = [r["config"].get("condition") or r["config"]["laboratory"] for r in newest]
        for condition, n in Counter(keys).items():
            some = [r for r, key in zip(newest, keys, strict=True) if key == condition]
            seeds = {r["config"].get("seed") for r in some}
            dates = sorted(str(r["facts"]["finished_at"])[:10] for r in some)
            yield [
                f"`results/{file.name}`",
                scale,
                condition,
                n,
                f"{len(seeds)}, {min(seeds)} to {max(seeds)}",
                f"{dates[0]} to {dates[-1]}",
            ]
