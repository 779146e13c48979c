"""Text of the report: headline, summary table, and what was run on which machine."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from spectrope.figures.sources import source_lines, wrong_declarations
from spectrope.figures.tables import Tables
from spectrope.stats import MIN_SEEDS, Interval, t_interval
from spectrope.store import Run

LEARNED = 0.9  # Of the best possible accuracy.
SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class HeadlineEntry:
    """Sentences about a setting, or about the number of seeds."""

    subject: str
    sentences: list[str]


@dataclass(frozen=True, kw_only=True)
class Drop:
    """The head of a run whose removal costs most, in percentage points."""

    encoding: str
    seed: int
    layer: int
    head: int
    drop: float
    second: float | None  # The next largest drop of the same run.

    @property
    def name(self) -> str:
        """Such as 2.3, head 3 of layer 2, both counted from 0."""
        return f"{self.layer}.{self.head}"


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """One encoding in one setting: means over seeds, accuracies in percent."""

    encoding: str
    n_seeds: int
    train: float
    test: float
    interval: Interval | None  # Of the mean held-out accuracy, from two seeds on.
    ceiling: float
    drops: list[Drop]  # The largest of each seed that has been ablated.
    spread: float | None  # Standard deviation over seeds of the held-out accuracy, from two seeds on.
    fall: float | None  # Largest fall of the held-out accuracy between two evaluations in a row.
    cpu_seconds: float | None
    parameters: int

    @property
    def gap(self) -> float:
        """Points between the ceiling and the held-out accuracy."""
        return self.ceiling - self.test

    @property
    def overfitting(self) -> float:
        """Points between the accuracies on training and on held-out examples."""
        return self.train - self.test

    @property
    def drop(self) -> float | None:
        """Mean over seeds of the largest drop, or None where no run has been ablated."""
        return float(np.mean([drop.drop for drop in self.drops])) if self.drops else None


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Student's 95 % interval of a mean over seeds, or None for a single seed."""
    return t_interval(np.asarray(values, dtype=float)) if len(values) > 1 else None


def rows_of(tables: Tables, setting: str) -> list[SummaryRow]:
    """A row per encoding of a setting, in the order of the figures."""
    groups = tables.runs.filter(pl.col("setting") == setting).partition_by("encoding", as_dict=True)
    return [_row(tables, groups[name,]) for name in tables.encodings if (name,) in groups]


def headline(tables: Tables) -> list[HeadlineEntry]:
    """Summary of the runs: accuracies relative to the ceiling, the largest drops, and permissible
    conclusions."""
    entries = [HeadlineEntry(setting, _of_setting(tables, setting)) for setting in tables.settings]
    wrong = wrong_declarations(tables.sources)
    laws = [HeadlineEntry("laws", wrong)] if wrong else []
    return [*laws, *entries, HeadlineEntry("seeds", [_allowed(tables)])]


def _row(tables: Tables, part: pl.DataFrame) -> SummaryRow:
    runs = part["run"].to_list()
    means = {name: float(part[name].mean()) for name in ("train", "test", "ceiling", "parameters")}  # pyright: ignore[reportArgumentType]
    return SummaryRow(
        encoding=part["encoding"][0],
        n_seeds=len(runs),
        train=means["train"],
        test=means["test"],
        interval=mean_interval(part["test"].to_list()),
        ceiling=means["ceiling"],
        spread=float(part["test"].std()) if len(runs) > 1 else None,  # pyright: ignore[reportArgumentType]
        fall=_fall(tables.metrics, runs),
        drops=[drop for run in runs if (drop := _largest(tables.ablation, run)) is not None],
        cpu_seconds=part["cpu_seconds"].cast(pl.Float64).mean(),  # pyright: ignore[reportArgumentType]
        parameters=round(means["parameters"]),
    )


def _fall(metrics: pl.DataFrame, runs: Sequence[str]) -> float | None:
    """Points by which held-out accuracy falls most from one evaluation to the next, as a mean over runs."""
    if metrics.is_empty():
        return None
    scored = metrics.filter((pl.col("split") == "test") & pl.col("run").is_in(runs)).sort("epoch")
    falls = scored.group_by("run").agg(-pl.col("accuracy").diff().min().clip(upper_bound=0.0))
    return falls["accuracy"].mean()  # pyright: ignore[reportReturnType]


def _largest(ablation: pl.DataFrame, run: str) -> Drop | None:
    if ablation.is_empty():
        return None
    heads = ablation.filter((pl.col("run") == run) & pl.col("drop").is_finite()).sort("drop", descending=True)
    if heads.is_empty():
        return None
    top = {name: heads[name][0] for name in ("encoding", "seed", "layer", "head", "drop")}
    return Drop(**top, second=heads["drop"][1] if len(heads) > 1 else None)


def _of_setting(tables: Tables, setting: str) -> list[str]:
    rows = sorted(rows_of(tables, setting), key=lambda row: -row.test)
    reached = ", ".join(f"{row.encoding}{SPACE}{_accuracy(row)}" for row in rows)
    text = f"Held-out accuracy in percent (best possible: {_ceilings(rows)}): {reached}."
    drops = [drop for row in rows for drop in row.drops]
    largest = [_of_drop(max(drops, key=lambda drop: drop.drop))] if drops else []
    trouble = [*_diverged(tables, setting), *_near_chance(tables, setting)]
    return [text, *trouble, *largest, *_speed(tables, setting), *_shared_rate(tables, setting)]


def _speed(tables: Tables, setting: str) -> list[str]:
    """How many epochs each encoding takes to nine tenths of the ceiling, on average over its seeds."""
    names = ("run", "encoding")
    scored = tables.metrics.filter((pl.col("setting") == setting) & (pl.col("split") == "test"))
    if scored.is_empty():
        return []
    ceilings = tables.runs.select("run", "ceiling")
    reached = scored.join(ceilings, on="run").filter(pl.col("accuracy") >= LEARNED * pl.col("ceiling"))
    firsts = reached.group_by(names).agg(pl.col("epoch").min())
    epochs = firsts.group_by("encoding").agg(pl.col("epoch").mean(), pl.len().alias("n"))
    runs = dict(scored.select(names).unique().group_by("encoding").len().iter_rows())
    late = [name for name in runs if name not in set(epochs["encoding"])]
    order = sorted((epoch, name, n) for name, epoch, n in epochs.iter_rows())
    of_runs = {name: f" ({n} of {runs[name]} runs)" if n < runs[name] else "" for _, name, n in order}
    told = ", ".join(f"{name}{SPACE}{epoch:.3g}{of_runs[name]}" for epoch, name, _ in order)
    quick = (
        [f"Epochs to reach {100 * LEARNED:.0f}{SPACE}% of the best possible accuracy: {told}."]
        if told
        else []
    )
    return quick + ([f"Not reached within the epochs trained: {', '.join(sorted(late))}."] if late else [])


def _shared_rate(tables: Tables, setting: str) -> list[str]:
    """Caveat that all encodings share one learning rate."""
    runs = set(tables.runs.filter(pl.col("setting") == setting)["run"])
    configs = [run.config for run in tables.sources if run.id in runs]
    rates = {config["training"]["learning_rate"] for config in configs}
    if all(config.get("tuning") == "chosen" for config in configs):
        return []
    if len(rates) > 1 or len({config["encoding_name"] for config in configs}) < 2:
        return []
    return [
        f"All encodings share the learning rate {rates.pop():g}. With a tuned rate for each encoding "
        "(compare --tune), their order may differ."
    ]


def _diverged(tables: Tables, setting: str) -> list[str]:
    if names := _runs_where(tables, setting, pl.col("diverged")):
        return [
            f"Training diverged (the held-out loss is not finite), so accuracies are meaningless: {names}."
        ]
    return []


def _near_chance(tables: Tables, setting: str) -> list[str]:
    if names := _runs_where(tables, setting, pl.col("near_chance") & ~pl.col("diverged")):
        return [
            "Near chance, so that drops of heads are not meaningful (train on more examples or for more "
            f"epochs, unless the best possible accuracy is that of guessing): {names}."
        ]
    return []


def _runs_where(tables: Tables, setting: str, condition: pl.Expr) -> str:
    """Encoding and seed of the runs of a setting that meet a condition."""
    runs = tables.runs.filter((pl.col("setting") == setting) & condition)
    return ", ".join(f"{row['encoding']}, seed {row['seed']}" for row in runs.iter_rows(named=True))


def _accuracy(row: SummaryRow) -> str:
    if row.interval is None:
        return f"{row.test:.1f}"
    return f"{row.test:.1f}{SPACE}±{SPACE}{row.interval.high - row.interval.estimate:.1f}"


def _ceilings(rows: Sequence[SummaryRow]) -> str:
    low, high = min(row.ceiling for row in rows), max(row.ceiling for row in rows)
    return f"{low:.1f}" if high - low < 0.05 else f"{low:.1f} to {high:.1f}"


def _of_drop(drop: Drop) -> str:
    if drop.drop <= 0:
        return "Silencing any single head does not reduce the accuracy."
    where = f"head {drop.head} of layer {drop.layer} in {drop.encoding}, seed {drop.seed}"
    text = f"The most important head is {where}: silencing it costs {drop.drop:.1f} points"
    return (
        f"{text}." if drop.second is None else f"{text}, the next head of that run {drop.second:z.1f} points."
    )


def _allowed(tables: Tables) -> str:
    counts = tables.runs.group_by("setting", "encoding").len()["len"].to_list()
    least, most = min(counts), max(counts)
    number = str(least) if least == most else f"{least} to {most}"
    seeds = f"{number} seed{'s' if most > 1 else ''} for each encoding and task"
    interval = " ± is the half-width of the 95 % t interval of the mean over seeds." if most > 1 else ""
    if least < MIN_SEEDS:
        rule = f"a general statement needs at least {MIN_SEEDS} seeds"
        return f"With only {seeds}, these results describe only these runs; {rule}.{interval}"
    return f"There are {seeds}.{interval}"


def about(runs: Sequence[Run]) -> dict[str, list[str]]:
    """What was run, where and when: lines by heading, one for each value that differs between runs."""
    configs, manifests = [run.config for run in runs], [run.manifest for run in runs]
    moments = sorted(_moment(manifest["finished_at"]) for manifest in manifests if "finished_at" in manifest)
    ids = {run.id for run in runs}  # A run at a rate that it already had is a copy, which took no time.
    seconds = sum(float(one["seconds"]) for one in manifests if one.get("copied_from") not in ids)
    lines = {
        "Condition": _distinct(config["condition"] for config in configs),
        "Scale": _distinct(config["scale"] for config in configs),
        "Seeds": [", ".join(map(str, sorted({int(config["seed"]) for config in configs})))],
        "Model": _distinct(_model(config["model"]) for config in configs),
        "Training": _distinct(map(_training, configs)),
        "User-defined encodings": source_lines(runs),
        "Machine": _distinct(_machine(manifest) for manifest in manifests),
        "Software": _distinct(_software(manifest) for manifest in manifests),
        "Finished": _distinct(moments[:1] + moments[-1:]),
        "Training time": [f"{seconds / 60:.1f} minutes, all runs together{_beside(configs)}"],
    }
    return {name: text for name, text in lines.items() if text}


def _beside(configs: Sequence[Mapping[str, Any]]) -> str:
    """That trials are no runs of the report, where there were some."""
    tuned = any(config.get("tuning") == "chosen" for config in configs)
    return ", without the trials of learning rates" if tuned else ""


def rebuild_command(runs: Sequence[Run], path: Path) -> str:
    """The command that writes the page again."""
    return shlex.join(["spectrope", "report", *_named(runs), "--out", str(path)])


def figure_command(runs: Sequence[Run], kind: str) -> str:
    """The command that saves one figure of the page."""
    return shlex.join(["spectrope", "report", *_named(runs), "--figure", kind, "--out", f"{kind}.svg"])


def _named(runs: Sequence[Run]) -> list[str]:
    """Runs as a command names them."""
    folders = {run.path.parent for run in runs}
    if len(folders) == 1:
        return [*(run.id for run in runs), "--runs", str(folders.pop())]
    return [str(run.path) for run in runs]


def _distinct(values: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(value) for value in values if value not in ("", None)))


def _moment(text: str) -> str:
    """A time of day without the seconds, in UTC as the manifest has it."""
    return f"{text[:16].replace('T', ' ')} UTC"


def _list(fields: Mapping[str, Any], forms: Mapping[str, str]) -> str:
    """The known fields, each in its form, separated by commas."""
    return ", ".join(
        form.format(fields[name]) for name, form in forms.items() if fields.get(name) is not None
    )


def _model(model: Mapping[str, Any]) -> str:
    forms = {
        "n_layers": "{} layers",
        "n_heads": "{} heads",
        "head_dim": "head_dim {}",
        "d_model": "d_model {}",
        "d_ff": "d_ff {}",
        "dropout": "dropout {}",
    }
    return _list(model, forms)


def _training(config: Mapping[str, Any]) -> str:
    sizes = _list(config, {"n_train": "{:,} training examples", "n_test": "{:,} held out"})
    forms = {"epochs": "{} epochs", "batch_size": "batch {}", "learning_rate": "learning rate {:g}"}
    return f"{config['task']['kind']}: {', '.join(filter(None, (sizes, _list(config['training'], forms))))}"


def _machine(manifest: Mapping[str, Any]) -> str:
    machine = dict(manifest.get("machine", {}))
    if machine.get("accelerator") == "none":
        del machine["accelerator"]
    threads = "{} thread" if machine.get("threads") == 1 else "{} threads"
    named = _list(machine, {"processor": "{}", "threads": threads, "accelerator": "{}", "system": "{}"})
    return ", ".join(filter(None, (named, _list(manifest, {"device": "on {}", "precision": "in {}"}))))


def _software(manifest: Mapping[str, Any]) -> str:
    versions = _list(manifest.get("machine", {}), {"python": "Python {}", "torch": "torch {}"})
    return ", ".join(filter(None, (versions, _list(manifest, {"commit": "commit {}"}))))
