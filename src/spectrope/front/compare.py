"""The comparison of encodings: trained, ablated, and shown as one table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from spectrope import lab
from spectrope.console import Shown
from spectrope.core import ConfigError, Device, Watch, choose_device, require_type
from spectrope.figures import Drawing
from spectrope.figures.names import name_runs
from spectrope.front.arguments import as_folder, as_settings, require_callback, require_whole
from spectrope.front.figure import HEATMAP, figure, report
from spectrope.front.progress import watching
from spectrope.front.runs import table
from spectrope.front.train import tried, warn_of_failures
from spectrope.lab import (
    COMPARED,
    COMPARED_TASKS,
    AnyEncoding,
    AnyTask,
    Engine,
    Experiment,
    Tuning,
    comparison_plan,
)
from spectrope.lab.compare import several
from spectrope.lab.tune import tune
from spectrope.store import Run

RUNS = (
    "accuracy in %; drop in points if the most important head (layer.head, from 0) is silenced; s: seconds "
    "of training"
)
LENGTHS = "accuracy in %, mean over seeds, on held-out sequences of these multiples of the trained length"
RATES = "learning rates: accuracy in % on training examples that were left out; s: seconds of training"


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """The result of a comparison.

    Args:
        runs: Finished and ablated runs, ordered by task, seed and encoding.
        tuned: The same runs at their chosen learning rates, if a grid was requested.
        tunings: The grid of each encoding on each task.
        lengths: Scores by length, where lengths were asked for: a row per run, scaling and factor.

    Example:
        >>> import spectrope as sp
        >>> found = sp.compare(["rope", "nope"], "distance", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> [run.config["encoding_name"] for run in found], found.figure("accuracy").name
        (['rope', 'nope'], 'accuracy')
    """

    runs: tuple[Run, ...]
    tuned: tuple[Run, ...] = ()
    tunings: tuple[Tuning, ...] = ()
    lengths: pl.DataFrame | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[Run]:
        """All runs, so that `table`, `figure` and `report` accept a comparison."""
        return iter((*self.runs, *self.tuned))

    def __len__(self) -> int:
        return len(self.runs) + len(self.tuned)

    def to_frame(self) -> pl.DataFrame:
        """A row per run, with the columns of `table`."""
        return table(self)

    def to_dict(self) -> dict[str, Any]:
        """The rows of `to_frame`, the trials of each grid of learning rates, and the scores by length."""
        grids = [
            {"task": one.task, "encoding": one.encoding, "trials": one.table().to_dicts()}
            for one in self.tunings
        ]
        lengths = [] if self.lengths is None else self.lengths.to_dicts()
        return {"runs": self.to_frame().to_dicts(), "tunings": grids, "lengths": lengths}

    def figure(self, name: str = HEATMAP) -> Drawing:
        """One figure of all runs; see `figure`."""
        return figure(self, name)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write the report of all runs; see `report`."""
        return report(self, path)

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield f"{RUNS}; {_precisions(self.runs)}", _shown(self.runs)
        if self.tunings:
            yield RATES, _rates(self.tunings)
            yield _cost(self.tunings)
            yield (
                f"the same at the learning rates chosen above; {_precisions(self.tuned)}",
                _shown(self.tuned),
            )
        if self.lengths is not None:
            yield LENGTHS, _by_length(self.lengths)


def compare(
    encodings: AnyEncoding | Sequence[AnyEncoding] = COMPARED,
    tasks: AnyTask | Sequence[AnyTask] = COMPARED_TASKS,
    seeds: int | Sequence[int] = 0,
    *,
    scale: str = "mini",
    condition: str = "controlled",
    epochs: int | None = None,
    n_examples: int | None = None,
    settings: Mapping[str, Any] | None = None,
    rates: Sequence[float] | None = None,
    lengths: Sequence[float | int] | None = None,
    scalings: Sequence[str] = ("none",),
    root: str | Path = "runs",
    device: Device = "auto",
    workers: int = 1,
    engine: Engine | None = None,
    watch: Watch | None = None,
) -> Comparison:
    """Train a decoder with each encoding on each task, and ablate every head.

    Finished runs in `root` are reused. Encodings and tasks from files are tested before anything is trained,
    and the laws of such encodings are printed.

    Args:
        encodings: One or several encodings: names, `mla+NAME` for latent attention, classes, classes in files
            (`file.py:Class`), or configurations.
        tasks: One or several tasks: names, classes, classes in files, or configurations.
        seeds: Seeds, with one run per seed, task and encoding; a number is a single seed.
        scale: Size of models and data, and length of training; see `experiment`.
        condition: Which confounds to remove or keep: a name in `CONDITIONS`.
        epochs: Number of epochs (default: the scale's).
        n_examples: Number of examples (default: the scale's).
        settings: Other fields of every experiment by name, as for `Experiment.with_`.
        rates: Learning rates of a grid, as multiples of the scale's. Each encoding is then also trained at
            its best rate, chosen on training examples that were left out. Default: the scale's rate only.
        lengths: Multiples of the trained length at which every run is also scored, such as (1, 2, 4); with
            a grid, the runs at the chosen learning rates.
        scalings: How positions are scaled at these lengths, by names in `spectrope.lab.SCALINGS`; "none" is
            the model as it was trained.
        root: Folder of the runs.
        device: Device to compute on; on CUDA, a single worker is used.
        workers: Number of processes on a CPU, which share its threads. A script that uses several must
            protect its calls with `if __name__ == "__main__":`.
        engine: Engine that carries out the runs, such as `spectrope.lab.Ray` (default: this machine).
        watch: Progress callback (default: show progress in the terminal or notebook).

    Raises:
        ConfigError: If there is nothing to compare, an argument would have no effect, or a value breaks a
            rule.
        UnknownNameError: If a name is unknown.
        Interrupted: After Ctrl-C, once every unfinished run is saved; the same call resumes.

    Example:
        >>> import spectrope as sp
        >>> found = sp.compare(["rope", "nope"], "distance", epochs=1, n_examples=60, watch=sp.unwatched)
        >>> found.to_frame()["encoding"].to_list()
        ['rope', 'nope']
    """
    plan = comparison_plan(
        encodings,
        tasks,
        seeds,
        scale=scale,
        condition=condition,
        epochs=epochs,
        n_examples=n_examples,
        settings=as_settings(settings),
    )
    folder = as_folder(root)
    require_callback(watch)
    require_whole(1, workers=workers)
    if rates is not None:
        _check_rates(rates)
    factors, schedules = several(lengths), several(scalings)
    if lengths is not None:
        lab.check_lengths(factors, schedules, [one.task for one in plan])
    elif schedules != ("none",):
        raise ConfigError(
            f"scalings go with lengths, such as lengths=(1, 2); got scalings={scalings!r} alone."
        )
    _check_engine(engine, device, workers, scored=lengths is not None)
    tried(plan)
    work = _Work(plan, folder, device, workers, engine, watch)
    runs = work.untuned()
    tunings, tuned = ([], []) if rates is None else work.tuned(runs, rates)
    scored = None if lengths is None else _scored(tuned or runs, factors, schedules, device)
    comparison = Comparison(tuple(runs), tuple(tuned), tuple(tunings), scored)
    warn_of_failures(comparison)
    return comparison


def _scored(
    runs: Sequence[Run], factors: Sequence[float | int], scalings: Sequence[str], device: Device
) -> pl.DataFrame:
    """Scores of all runs by length, under the names of the runs."""
    place, tables = choose_device(device), []
    for run, (task, encoding) in zip(runs, name_runs([run.config for run in runs]), strict=True):
        names = {"task": task, "encoding": encoding}
        names |= {"seed": run.config["seed"], "run": run.id}
        table = lab.extrapolate(run, factors, scalings, device=place)
        tables.append(table.select(*(pl.lit(value).alias(name) for name, value in names.items()), pl.all()))
    return pl.concat(tables)


def _by_length(scores: pl.DataFrame) -> pl.DataFrame:
    """Mean accuracy over seeds of each encoding and scaling, a column per length, dashes for none."""
    percent = 100 * pl.col("accuracy")
    means = scores.group_by("task", "encoding", "scaling", "factor", maintain_order=True).agg(
        pl.when(percent.is_null().any()).then(None).otherwise(percent.mean()).round(1).alias("accuracy")
    )
    shown = means.with_columns(
        pl.col("factor").map_elements("x{:g}".format, return_dtype=pl.String).alias("length")
    )
    wide = shown.pivot("length", index=["task", "encoding", "scaling"], values="accuracy")
    return wide.with_columns(pl.col(pl.Float64).cast(pl.String).fill_null("-"))


def _check_engine(engine: object, device: Device, workers: int, *, scored: bool) -> None:
    """Refuse what is no engine, and what would have no effect beside one.

    Raises:
        ConfigError: If there is any.
    """
    if engine is None:
        return
    require_type(engine, Engine, "engine", "an engine, such as spectrope.lab.Ray()")
    if workers != 1:
        raise ConfigError(f"workers are for runs without an engine; got {workers}. The engine has its own.")
    if device != "auto" and not scored:
        raise ConfigError(f"device is for runs without an engine; got {device!r}. The engine has its own.")


def _check_rates(rates: Sequence[float]) -> None:
    require_type(rates, Sequence, "rates", "multiples of the scale's learning rate, such as (0.5, 1, 2)")
    for rate in rates:
        require_type(rate, (int, float), "every one of the rates", "a number")
    if not (rates and all(rate > 0 for rate in rates)):
        raise ConfigError(f"rates must be at least one, and positive; got {tuple(rates)}.")


@dataclass(frozen=True)
class _Work:
    """A plan, and where and how it is carried out."""

    plan: list[Experiment]
    root: Path
    device: Device
    workers: int
    engine: Engine | None
    watch: Watch | None

    @property
    def _how(self) -> dict[str, Any]:
        return {"device": self.device, "workers": self.workers, "engine": self.engine}

    def untuned(self) -> list[Run]:
        with watching(self.watch, [one.label for one in self.plan]) as shown:
            return lab.execute(self.plan, self.root, watch=shown, **self._how)

    def tuned(self, untuned: list[Run], rates: Sequence[float]) -> tuple[list[Tuning], list[Run]]:
        """The grids, and the runs at the rates chosen by them."""
        trials = lab.trials_of(self.plan, rates)
        with watching(self.watch, [one.label for one in trials]) as shown:
            tunings = tune(self.plan, self.root, factors=rates, watch=shown, **self._how)
        with watching(self.watch, [f"{one.label}, tuned" for one in self.plan]) as shown:
            runs = lab.run_tuned(self.plan, tunings, self.root, untuned=untuned, watch=shown, **self._how)
        return tunings, runs


def _precisions(runs: Sequence[Run]) -> str:
    """The precision of matrix products in some runs, in words."""
    found = sorted({str(run.manifest["precision"]) for run in runs if "precision" in run.manifest})
    return f"matrix products in {' and '.join(found) or 'an unknown precision'}"


def _shown(runs: Sequence[Run]) -> pl.DataFrame:
    """Accuracy, ceiling and the most important head of each run, in 80 columns."""
    rows = table(runs)
    points = {"train": "train", "held-out": "test", "ceiling": "ceiling", "drop": "drop"}
    return rows.select(
        "task",
        "encoding",
        "seed",
        *(_rounded(column, 1).alias(name) for name, column in points.items()),
        pl.concat_str("layer", "head", separator=".").alias("head"),
        _rounded("seconds", 0).alias("s"),
    )


def _rates(tunings: Sequence[Tuning]) -> pl.DataFrame:
    """Accuracy at each learning rate, the chosen rate (marked at an end of the grid), and the cost."""
    most = max(len(tuning.trials) for tuning in tunings)
    rows = []
    for tuning in tunings:
        reached = [f"{trial.rate:.2g}: {100 * trial.accuracy:.1f}" for trial in tuning.trials]
        rates = {f"rate {n}": text for n, text in enumerate(reached, 1)}
        chosen = f"{tuning.chosen.rate:.2g}{'*' if tuning.at_edge else ''}"
        names = {"task": tuning.task, "encoding": tuning.encoding}
        rows.append(names | rates | {"chosen": chosen, "s": f"{tuning.seconds:.0f}"})
    columns = ("task", "encoding", *(f"rate {n}" for n in range(1, most + 1)), "chosen", "s")
    return pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String))


def _cost(tunings: Sequence[Tuning]) -> str:
    seconds, trials = sum(one.seconds for one in tunings), sum(len(one.trials) for one in tunings)
    edge = (
        " * is an end of the grid: a better rate may lie beyond." if any(t.at_edge for t in tunings) else ""
    )
    return f"The grids took {trials} runs and {seconds:.0f} s of training time.{edge}"


def _rounded(column: str, digits: int) -> pl.Expr:
    """Numbers as text with so many digits after the point, never "-0"."""
    return pl.col(column).map_elements(lambda value: f"{value:z.{digits}f}", return_dtype=pl.String)
