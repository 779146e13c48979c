"""List the runs of a folder, and collect runs in one table."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from spectrope.core import SpectropeError, SpectropeWarning, StoreError, require_type
from spectrope.figures.names import differences
from spectrope.lab import DECODER, MARK, OWN, fullest, has_diverged
from spectrope.store import Run, survey

NAMES = ("encoding_name", "scale", "condition", "seed")
SCHEMA: dict[str, Any] = {
    "run": pl.String,
    "laboratory": pl.String,
    "task": pl.String,
    "encoding": pl.String,
    "scale": pl.String,
    "condition": pl.String,
    "seed": pl.Int64,
    "tuning": pl.String,
    "learning_rate": pl.Float64,
    "epochs": pl.Int64,
    "n_train": pl.Int64,
    "precision": pl.String,
    "finished": pl.Boolean,
    "train": pl.Float64,
    "test": pl.Float64,
    "ceiling": pl.Float64,
    "test_loss": pl.Float64,
    "diverged": pl.Boolean,
    "drop": pl.Float64,
    "layer": pl.Int64,
    "head": pl.Int64,
    "parameters": pl.Int64,
    "seconds": pl.Float64,
    "path": pl.String,
}
IDENTITY = ("laboratory", "task", "encoding", "scale", "condition", "seed", "tuning", "epochs", "n_train")
SCORES = {"train": "train_accuracy", "test": "test_accuracy", "ceiling": "bayes_accuracy"}


def runs(folder: str | Path = "runs", *, unfinished: bool = False) -> list[Run]:
    """The runs of a folder, by name.

    Folders that cannot be read as runs are left out with a warning that says why.

    Args:
        folder: Folder of the run folders.
        unfinished: Whether to include unfinished runs.

    Raises:
        StoreError: If there is no such folder.

    Example:
        >>> import spectrope as sp
        >>> _ = sp.train("nope", epochs=1, n_examples=60, root="my-runs", watch=sp.unwatched)
        >>> [run.config["encoding_name"] for run in sp.runs("my-runs")]
        ['nope']
    """
    require_type(folder, (str, Path), "folder", "the path of a folder")
    readable, broken = survey(folder)
    for path, reason in broken:
        warnings.warn(f"left out: {path.name}: {reason}", SpectropeWarning, stacklevel=2)
    return [run for run in readable if unfinished or run.finished]


def table(runs: Run | Iterable[Run] | str | Path = "runs") -> pl.DataFrame:
    """Collect runs in one data frame, one row per run; columns do not depend on the kind of run.

    Columns: what distinguishes the runs (`run`, its id; `laboratory`, `task`, `encoding`, `scale`,
    `condition`, `seed`, `tuning`, `learning_rate`, `epochs`, `n_train`), the `precision` of matrix products
    in a finished run, accuracies in percent (`train`, `test`, and `ceiling`, the best that the labels
    allow), `test_loss` in nats, whether training `diverged`, the largest `drop` of an ablated head in
    percentage points with its `layer` and `head`, counted from 0, the number of `parameters`, the `seconds`
    of training, and the `path`.
    Values that a run does not have are null.

    Args:
        runs: A run, several runs (finished or not, of any laboratory), a comparison, or a folder, of which
            all finished runs are taken.

    Raises:
        ConfigError: If it is none of these.
        StoreError: If there is no such folder, or a run is damaged.

    Example:
        >>> import spectrope as sp
        >>> _ = sp.train("nope", epochs=1, n_examples=60, root="my-runs", watch=sp.unwatched)
        >>> sp.table("my-runs").select("task", "encoding", "seed").rows()
        [('distance', 'nope', 0)]
    """
    chosen = _runs_of(runs) if isinstance(runs, str | Path) else as_runs(runs)
    return pl.concat([pl.DataFrame(schema=SCHEMA), *map(_frame, chosen)])


_runs_of = runs  # Other functions here take `runs`.


def as_runs(runs: Run | Iterable[Run] | str | Path) -> list[Run]:
    """Resolve one run, several runs, or the runs of a folder that a report includes by default.

    For a folder, these are the finished runs except learning-rate trials and other kinds of experiments.

    Raises:
        StoreError: If a folder holds none.
    """
    if isinstance(runs, Run):
        return [runs]
    if not isinstance(runs, str | Path):
        return _several(runs)
    chosen = [run for run in _runs_of(runs) if _is_shown(run)]
    if not chosen:
        raise StoreError(f"no finished run in {runs}; `compare` makes some.")
    return chosen


def _several(runs: Iterable[Run]) -> list[Run]:
    """The runs that an argument holds.

    Raises:
        ConfigError: If it holds anything else.
    """
    require_type(runs, Iterable, "runs", "a run, several, or a folder of them")
    chosen = list(runs)
    for one in chosen:
        require_type(one, Run, "every one of the runs", "a run, as sp.runs and sp.train return them")
    return chosen


def _is_shown(run: Run) -> bool:
    return run.config.get("tuning") != "trial" and MARK not in run.config


def listing(folder: str | Path) -> tuple[pl.DataFrame, list[tuple[Path, str]]]:
    """Table of all runs in a folder, finished or not, and the other folders with the reason why each is not a
    run.

    The columns are those of `table`, and `settings`: for runs that are alike in all that names them, the
    fields of their configurations in which they differ.

    Raises:
        StoreError: If there is no such folder.
    """
    readable, broken = survey(folder)
    rows, configs = [pl.DataFrame(schema=SCHEMA)], list[Mapping[str, Any]]()
    for run in readable:
        try:
            rows.append(_frame(run))
            configs.append(run.config)
        except SpectropeError as error:
            broken.append((run.path, str(error)))
    listed = pl.concat(rows)
    settings = differences(configs, listed.select(IDENTITY).rows())
    return listed.with_columns(pl.Series("settings", settings, pl.String)), broken


def _frame(run: Run) -> pl.DataFrame:
    """The row of a run as a table.

    Raises:
        StoreError: If something in it is of another type.
    """
    try:
        return pl.DataFrame([_row(run)], schema=SCHEMA)
    except (PolarsError, OverflowError, TypeError, UnicodeError):
        raise StoreError(
            "its configuration or one of its tables is damaged: a value has another type."
        ) from None


def _row(run: Run) -> dict[str, Any]:
    manifest = run.manifest if run.finished else {}
    return {
        "run": run.id,
        "path": str(run.path),
        "precision": manifest.get("precision"),
        "finished": run.finished,
        **_identity(run),
        **{name: _percent(manifest, key) for name, key in SCORES.items()},
        "test_loss": manifest.get("test_loss"),
        "diverged": has_diverged(manifest) if manifest else None,
        **_largest_drop(run),
        "parameters": manifest.get("n_parameters"),
        "seconds": manifest.get("seconds"),
    }


def _identity(run: Run) -> dict[str, Any]:
    """What tells a run from others, by its configuration."""
    config = run.config
    if MARK in config:
        return _of_other_laboratory(config)
    if missing := [name for name in ("task", *NAMES) if name not in config]:
        raise StoreError(f"its configuration is damaged: it has no {missing[0]!r}.")
    task = config["task"]
    if not (isinstance(task, dict) and "kind" in task):
        raise StoreError("its configuration is damaged: its task has no name.")
    names = {name.removesuffix("_name"): config[name] for name in NAMES}
    return {
        "laboratory": DECODER,
        "task": task["kind"],
        **names,
        "tuning": config.get("tuning", "none"),
        "learning_rate": _of_training(config, "learning_rate"),
        "epochs": _of_training(config, "epochs"),
        "n_train": config.get("n_train"),
    }


def _of_training(config: Mapping[str, Any], field: str) -> Any:
    """A field of the training of a configuration, whatever it is; None if there is none."""
    training = config.get("training")
    return training.get(field) if isinstance(training, Mapping) else None


def _of_other_laboratory(config: dict[str, Any]) -> dict[str, Any]:
    """A run of another laboratory goes by its label, or by its laboratory: no file is run to list it."""
    from spectrope.lab import read_experiment  # Loads torch, which tables of the decoder's runs do without.

    known = {"laboratory": config[MARK], "learning_rate": _of_training(config, "learning_rate")}
    if isinstance(config.get(OWN), dict):
        names = ", ".join(config[OWN])
        return known | {"task": config[MARK], "encoding": names, "seed": config.get("seed")}
    one = read_experiment(config)
    return known | {"task": one.label, "seed": one.seed}


def _percent(manifest: dict[str, Any], key: str) -> float | None:
    value = manifest.get(key)
    if key == "test_accuracy" and manifest and not isinstance(manifest.get(key, ""), int | float | None):
        raise StoreError("its manifest is damaged: 'test_accuracy' is not a number; train it again.")
    return None if value is None else 100 * value


def _largest_drop(run: Run) -> dict[str, Any]:
    mark = fullest(run, "ablation")
    if mark is None:
        return {}
    table, shown = run.frame(f"ablation{mark}"), ("drop", "layer", "head")
    if missing := [name for name in shown if name not in table.columns]:
        raise StoreError(f"its table of ablations is damaged: it has no column {missing[0]!r}.")
    heads = table.filter(pl.col("drop").is_finite()).select(shown)
    return next(heads.sort("drop", descending=True).head(1).iter_rows(named=True), {})
