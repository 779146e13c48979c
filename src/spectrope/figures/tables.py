"""Tidy tables of runs: one row per run, evaluation or ablated head, with common columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from spectrope.core import ConfigError, StoreError
from spectrope.figures.names import name_runs, ordered_encodings, ordered_settings
from spectrope.lab import fullest, has_diverged, is_near_chance
from spectrope.store import Run

CONFIG_FIELDS = ("encoding_name", "task", "model", "training", "scale", "condition", "seed")
SCORES = ("train_accuracy", "test_accuracy", "bayes_accuracy", "seconds", "n_parameters")
METRICS = {"epoch": pl.Int64, "split": pl.String, "loss": pl.Float64, "accuracy": pl.Float64}
HEAD: dict[str, Any] = {"layer": pl.Int64, "head": pl.Int64}
ABLATION = HEAD | dict.fromkeys(("intact", "ablated", "drop", "low", "high"), pl.Float64)
OWN: dict[str, Any] = dict.fromkeys(("layers", "heads", "kind"), pl.String)
MEASURED: dict[str, dict[str, Any]] = {
    "deposit": HEAD
    | dict.fromkeys(("drop", "gap", "gap_low", "share", "share_low"), pl.Float64)
    | {"deposit": pl.Boolean},
    "cumulative": HEAD
    | {"n_changed": pl.Int64}
    | dict.fromkeys(("single", "drop", "drop_low", "drop_high"), pl.Float64),
    "screen": HEAD | dict.fromkeys(("drop", "loss_increase_estimate"), pl.Float64),
    "spectrum": HEAD | dict.fromkeys(("toeplitz", "toeplitz_low", "toeplitz_high"), pl.Float64),
    "correlation": {
        "quantity": pl.String,
        "scope": pl.String,
        **dict.fromkeys(("rho", "rho_low", "rho_high"), pl.Float64),
    },
    "bands": {
        **HEAD,
        "band": pl.Int64,
        **dict.fromkeys(("frequency_low", "frequency_high", "share", "share_low", "share_high"), pl.Float64),
    },
    "shares": {
        "layer": pl.Int64,
        "part": pl.String,
        **dict.fromkeys(("share", "share_low", "share_high", "null"), pl.Float64),
    },
    "kernel": HEAD | dict.fromkeys(("lag", "effect", "effect_low", "effect_high"), pl.Float64),
    "terms": {"design": pl.String, **HEAD, "term": pl.String}
    | dict.fromkeys(("share", "covariance", "toeplitz"), pl.Float64),
    "term_kernel": {"design": pl.String, **HEAD}
    | dict.fromkeys(("lag", "effect", "entry_low", "entry_high"), pl.Float64),
    "symbol": OWN | dict.fromkeys(("theta", "symbol"), pl.Float64),
    "extremes": OWN
    | dict.fromkeys(("lower_bound", "smallest_estimate", "largest_estimate", "upper_bound"), pl.Float64),
    "eigenvalues": HEAD
    | {"kind": pl.String, "rank": pl.Int64}
    | dict.fromkeys(("value", "symbol"), pl.Float64),
    "szego": HEAD
    | {"kind": pl.String, "theorem_applies": pl.Boolean}
    | dict.fromkeys(("distance", "relative", "tail_share"), pl.Float64),
    "learning": {"step": pl.Int64}
    | HEAD
    | dict.fromkeys(("gradient_share", "positional_share", "positional_null"), pl.Float64),
    "participation": {"step": pl.Int64, "layer": pl.Int64}
    | dict.fromkeys(("gradient", "weight"), pl.Float64),
    "tuning": dict.fromkeys(("rate", "accuracy", "seconds"), pl.Float64) | {"chosen": pl.Boolean},
    "extrapolation": {"scaling": pl.String}
    | dict.fromkeys(("factor", "accuracy", "low", "high"), pl.Float64),
}  # What figures draw of what `spectrope ablate`, `spectrum`, `train --probe` and `compare --tune` keep.
LEADERS = {"deposit": "ablation", "term_kernel": "terms"} | dict.fromkeys(
    ("correlation", "bands", "shares", "kernel", "symbol", "extremes", "eigenvalues", "szego"), "spectrum"
)  # What a table was measured with, and whose size is therefore its own.
OPEN = frozenset({"spectrum"})  # Tables whose further estimates, with an interval each, are read along.


@dataclass(frozen=True)
class Tables:
    """What the figures draw. Accuracies are in percent, drops in percentage points, losses in nats.

    Args:
        sources: The runs themselves, setting by setting, encoding by encoding, seed by seed.
        runs: A row per run: run, setting, encoding, seed, train, test, ceiling, seconds, cpu_seconds,
            parameters, diverged, near_chance.
        metrics: A row per evaluation: the run's names, epoch, split, loss, accuracy.
        ablation: A row per ablated head: the run's names, layer, head, intact, ablated, drop, low, high.
        deposit: A row per layer: what the deposit rule finds. It and the tables below have the columns in
            `MEASURED`.
        cumulative: A row per head silenced after the others.
        screen: A row per head: its first-order estimate beside its drop.
        spectrum: A row per measured head: its Toeplitz share, and the other quantities that its run has. It
            and the tables below are those that `spectrope spectrum` keeps.
        declared: Further tables, whose columns figures declare, in the units of the run.
    """

    sources: list[Run]
    runs: pl.DataFrame
    metrics: pl.DataFrame
    ablation: pl.DataFrame
    deposit: pl.DataFrame = field(default_factory=pl.DataFrame)
    cumulative: pl.DataFrame = field(default_factory=pl.DataFrame)
    screen: pl.DataFrame = field(default_factory=pl.DataFrame)
    spectrum: pl.DataFrame = field(default_factory=pl.DataFrame)
    correlation: pl.DataFrame = field(default_factory=pl.DataFrame)
    bands: pl.DataFrame = field(default_factory=pl.DataFrame)
    shares: pl.DataFrame = field(default_factory=pl.DataFrame)
    kernel: pl.DataFrame = field(default_factory=pl.DataFrame)
    terms: pl.DataFrame = field(default_factory=pl.DataFrame)
    term_kernel: pl.DataFrame = field(default_factory=pl.DataFrame)
    symbol: pl.DataFrame = field(default_factory=pl.DataFrame)
    extremes: pl.DataFrame = field(default_factory=pl.DataFrame)
    eigenvalues: pl.DataFrame = field(default_factory=pl.DataFrame)
    szego: pl.DataFrame = field(default_factory=pl.DataFrame)
    learning: pl.DataFrame = field(default_factory=pl.DataFrame)
    participation: pl.DataFrame = field(default_factory=pl.DataFrame)
    tuning: pl.DataFrame = field(default_factory=pl.DataFrame)
    extrapolation: pl.DataFrame = field(default_factory=pl.DataFrame)
    declared: Mapping[str, pl.DataFrame] = field(default_factory=dict)

    def __getitem__(self, name: str) -> pl.DataFrame:
        """A table by its name, as a figure has declared it; empty where no run has it."""
        return self.declared[name] if name in self.declared else getattr(self, name)

    @property
    def settings(self) -> list[str]:
        """Tasks, told apart by condition, scale or size where need be, in the order of the page."""
        return ordered_settings(self.runs["setting"].to_list())

    @property
    def encodings(self) -> list[str]:
        """Encodings in the order that every figure keeps."""
        return ordered_encodings(self.runs["encoding"].to_list())

    @property
    def seeds(self) -> list[int]:
        """Seeds of any run, ascending."""
        return sorted(set(self.runs["seed"].to_list()))


def read_tables(runs: Sequence[Run], declared: Mapping[str, Mapping[str, Any]] | None = None) -> Tables:
    """Read the tables of finished runs, independent of the order of runs and without duplicates.

    Args:
        runs: Finished runs.
        declared: Columns with their types, by table, that figures declare; see `declared_tables`.

    Raises:
        ConfigError: If there is no run, or two are the same experiment.
        StoreError: If one is unfinished, was not made by training, or has a damaged table.
    """
    if not runs:
        raise ConfigError("a report needs at least one run; got none.")
    keyed = _keyed(list({run.path.resolve(): run for run in runs}.values()))
    heads = [_ablation(run, key, name) for run, key in keyed if (name := _stored(run, "ablation"))]
    return Tables(
        sources=[run for run, _ in keyed],
        runs=pl.DataFrame([key | _scores(run) for run, key in keyed]),
        metrics=pl.concat([_metrics(run, key) for run, key in keyed]),
        ablation=pl.concat(heads) if heads else pl.DataFrame(),
        **{name: _measured(keyed, name, columns) for name, columns in MEASURED.items()},
        declared={name: _measured(keyed, name, columns) for name, columns in (declared or {}).items()},
    )


def _measured(
    keyed: Sequence[tuple[Run, dict[str, Any]]], name: str, columns: Mapping[str, Any]
) -> pl.DataFrame:
    stored = [(run, key, table) for run, key in keyed if (table := _stored(run, name))]
    frames = [_labelled(_frame(run, table, columns, name in OPEN), key) for run, key, table in stored]
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def _stored(run: Run, name: str) -> str | None:
    """The table of a run that is drawn: of the usual size, or of the largest other one."""
    mark = fullest(run, LEADERS.get(name, name))
    table = f"{name}{mark}"
    return table if mark is not None and run.has_frame(table) else None


def _keyed(runs: Sequence[Run]) -> list[tuple[Run, dict[str, Any]]]:
    """Each run with its names, in the order of the page."""
    configs = [_config(run) for run in runs]
    names = name_runs(configs)
    settings = ordered_settings(setting for setting, _ in names)
    encodings = ordered_encodings(encoding for _, encoding in names)
    placed: dict[tuple[int, int, int], tuple[Run, dict[str, Any]]] = {}
    for run, config, (setting, encoding) in zip(runs, configs, names, strict=True):
        place = (settings.index(setting), encodings.index(encoding), int(config["seed"]))
        if place in placed:
            raise ConfigError(
                f"{placed[place][0].path} and {run.path} are one experiment; report one of them."
            )
        placed[place] = run, {"run": run.id, "setting": setting, "encoding": encoding, "seed": place[2]}
    return [placed[place] for place in sorted(placed)]


def _config(run: Run) -> dict[str, Any]:
    config = run.config
    if missing := [name for name in CONFIG_FIELDS if name not in config]:
        raise StoreError(f"run {run.id} is not a training run: its configuration has no {missing[0]!r}.")
    for name in ("task", "model", "training"):
        if not isinstance(config[name], dict):
            raise StoreError(f"run {run.id} is damaged: {name!r} of its configuration holds no fields.")
    if not isinstance(config["seed"], int):
        raise StoreError(f"run {run.id} is damaged: its seed is no whole number; got {config['seed']!r}.")
    if "kind" not in config["task"]:
        raise StoreError(f"run {run.id} is not a training run: its task has no name.")
    return config


def _scores(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    if missing := [name for name in SCORES if manifest.get(name) is None]:
        raise StoreError(f"run {run.id} has no {missing[0]!r} in its manifest; train it again.")
    for name in SCORES:
        if not isinstance(manifest[name], int | float):
            complaint = f"{name!r} in its manifest is not a number; got {manifest[name]!r}"
            raise StoreError(f"run {run.id} is damaged: {complaint}. Train it again.")
    return {
        "train": 100.0 * manifest["train_accuracy"],
        "test": 100.0 * manifest["test_accuracy"],
        "ceiling": 100.0 * manifest["bayes_accuracy"],
        "seconds": float(manifest["seconds"]),
        "cpu_seconds": manifest.get("cpu_seconds"),
        "parameters": int(manifest["n_parameters"]),
        "diverged": has_diverged(manifest),
        "near_chance": is_near_chance(manifest),
    }


def _metrics(run: Run, key: dict[str, Any]) -> pl.DataFrame:
    return _labelled(_frame(run, "metrics", METRICS), key).with_columns(pl.col("accuracy") * 100)


def _ablation(run: Run, key: dict[str, Any], name: str) -> pl.DataFrame:
    return _labelled(_frame(run, name, ABLATION), key).with_columns(pl.col("intact", "ablated") * 100)


def _frame(run: Run, name: str, columns: Mapping[str, Any], more: bool = False) -> pl.DataFrame:
    frame = run.frame(name)
    if missing := [column for column in columns if column not in frame.columns]:
        raise StoreError(f"run {run.id}: table {name!r} has no column {missing[0]!r}.")
    estimates = (name for name in frame.columns if more and f"{name}_low" in frame.columns)
    wanted: dict[str, Any] = dict.fromkeys(estimates, pl.Float64) | dict(columns)
    try:
        return frame.select(list(wanted)).cast(wanted)  # pyright: ignore[reportArgumentType]
    except PolarsError:
        raise StoreError(f"run {run.id}: table {name!r} holds something other than numbers.") from None


def _labelled(frame: pl.DataFrame, key: dict[str, Any]) -> pl.DataFrame:
    return frame.select(*(pl.lit(value).alias(name) for name, value in key.items()), pl.all())
