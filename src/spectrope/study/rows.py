"""Rows: the record of a finished run from which claims are judged."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from reprlib import repr as short
from typing import Any

import polars as pl

from spectrope.core import ConfigError, StoreError, config_hash, finite
from spectrope.lab import DATA_VERSION, MEASURES, AnyExperiment, Job, read_experiment, written
from spectrope.store import FIELD, RESULTS_VERSION, Complaint, Run, append_record, read_records, renumbered
from spectrope.study.corrections import TABLES, Withdrawals
from spectrope.study.kept import FACTS, KEPT, LATER, NEEDED, paired

DIGITS = 6  # Significant ones that a row keeps.


@dataclass(frozen=True)
class StudyRow:
    """Record of one finished run, as used by claims.

    Args:
        experiment: What was run.
        facts: Of the run's manifest: scores as fractions, wall and processor time in seconds, commit,
            precision, machine.
        tables: The run's tables by name, as far as there are any.
        run: The run's id when it was recorded.
    """

    experiment: AnyExperiment
    facts: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame]
    run: str

    @classmethod
    def of(cls, run: Run) -> "StudyRow":
        """The row of a finished run.

        Raises:
            StoreError: If it is unfinished or damaged, or holds what a row cannot.
        """
        tables = {name: run.frame(name) for name in KEPT if run.has_frame(name)}
        facts = {name: run.manifest.get(name) for name in _facts_in(run.manifest)}
        return cls(read_experiment(run.config), *_checked(run.id, facts, tables), run.id)

    def record(self) -> dict[str, Any]:
        """This row as JSON-ready values: text that git merges, where run folders have compact Parquet."""
        return {
            "run": self.run,
            "results_version": RESULTS_VERSION,
            "data_version": DATA_VERSION,
            FIELD: 0,
            "config": written(self.experiment),
            "facts": finite(self.facts),
            "tables": {name: _columns(table) for name, table in self.tables.items()},
        }

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "StudyRow":
        """Read a row back; layers and heads count from 0, also in one that was written when they did not.

        Tables that a correction withdraws are left out.

        Raises:
            StoreError: If it is of another version, no row, its experiment is not one of today's, or a fact
                or table is not what claims read.
        """
        return cls._of(*_identified(record), record)

    @classmethod
    def _of(cls, run: str, experiment: AnyExperiment, record: Mapping[str, Any]) -> "StudyRow":
        """The row of a record that has been identified."""
        try:
            columns_of = {name: one for name, one in record["tables"].items() if name not in TABLES}
            tables = {name: pl.DataFrame(columns) for name, columns in columns_of.items()}
            facts = {name: record["facts"][name] for name in _facts_in(record["facts"])}
        except (KeyError, TypeError, AttributeError, OverflowError, UnicodeError, pl.exceptions.PolarsError):
            raise _no_row(run) from None
        if record.get(FIELD, 1) == 1:
            tables = {name: renumbered(table) for name, table in tables.items()}
        return cls(experiment, *_checked(run, facts, tables), run)

    def covers(self, job: Job) -> bool:
        """Whether this row holds all that a job would make."""
        return job.experiment == self.experiment and set(job.tables) <= set(self.tables)

    def joined(self, later: "StudyRow") -> "StudyRow":
        """This row, updated with a later row of the same training. If an experiment was trained twice, the
        row with more tables counts, or else the later one. They are not merged, because scores and tables
        must come from the same network. A fact that the earlier row lacks is left out of the same training.
        """
        if self.facts["finished_at"] == later.facts["finished_at"]:
            known = {name: fact for name, fact in later.facts.items() if name in self.facts}
            return replace(later, facts={**self.facts, **known}, tables={**self.tables, **later.tables})
        return self if set(later.tables) < set(self.tables) else later


@dataclass
class StudyRows:
    """Rows by experiment, in memory and in a file that grows by one line per row.

    Args:
        path: The file that grows; None keeps new rows in memory alone.
        source: The file that was read; None where there was none.
        complaints: One for each record that was left out.
        withdrawals: The rows, and tables of rows, that corrections have withdrawn.
    """

    path: Path | None = None
    source: Path | None = None
    complaints: list[Complaint] = field(default_factory=list)
    withdrawals: Withdrawals = field(default_factory=Withdrawals)
    _rows: dict[AnyExperiment, StudyRow] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "StudyRows":
        """The rows of a file that stand; what cannot be read as a row is named in `complaints`.

        Raises:
            StoreError: If the file cannot be read.
        """
        rows = cls(path, path)
        records, complaints = read_records(path) if path.exists() else ([], [])
        rows.complaints += complaints
        for record in records:
            try:
                run, experiment = _identified(record)
                if rows.withdrawals.note(run, experiment, record["tables"]):
                    rows._take(StudyRow._of(run, experiment, record))
            except StoreError as error:
                rows.complaints.append(Complaint(f"{path.name}: {error}", _name_today(record)))
        return rows

    @classmethod
    def of(cls, rows: Iterable[StudyRow]) -> "StudyRows":
        """Rows in memory."""
        collected = cls()
        for row in rows:
            collected._take(row)
        return collected

    def unwritten(self) -> "StudyRows":
        """The same rows, which others join in memory alone."""
        return replace(self, path=None, _rows=dict(self._rows))

    def __iter__(self) -> Iterator[StudyRow]:
        return iter(self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, experiment: AnyExperiment) -> StudyRow | None:
        """The row of an experiment, if there is one."""
        return self._rows.get(experiment)

    def measured(self, experiment: AnyExperiment) -> list[str]:
        """What has been measured on an experiment's run, by the names of measures."""
        row = self.get(experiment)
        return [] if row is None else [name for name in row.tables if name in MEASURES]

    def lost(self, experiments: Iterable[AnyExperiment]) -> list[Complaint]:
        """What was left out of the rows of some experiments that have none now."""
        named = [complaint for complaint in self.complaints if complaint.run is not None]
        if not named:
            return []
        names = {run_name(one) for one in experiments if one not in self._rows}
        return [complaint for complaint in named if complaint.run in names]

    def covers(self, job: Job) -> bool:
        """Whether a job need not be run again."""
        row = self.get(job.experiment)
        return row is not None and row.covers(job)

    def add(self, row: StudyRow) -> None:
        """Take a row in, and write it to the file where there is one.

        Raises:
            StoreError: If the file cannot be written.
        """
        if self.path is not None:
            append_record(self.path, self._joined(row).record())
        self._take(row)

    def _take(self, row: StudyRow) -> None:
        self._rows[row.experiment] = self._joined(row)

    def _joined(self, row: StudyRow) -> StudyRow:
        earlier = self._rows.get(row.experiment)
        return row if earlier is None else earlier.joined(row)


def run_name(experiment: AnyExperiment) -> str:
    """The id of an experiment's run."""
    return config_hash(written(experiment), DATA_VERSION, RESULTS_VERSION)


def _identified(record: Mapping[str, Any]) -> tuple[str, AnyExperiment]:
    """The run and the experiment of a record, which is all that has to be read of one that is withdrawn."""
    run = record.get("run", "unknown")
    for name, current in (("results_version", RESULTS_VERSION), ("data_version", DATA_VERSION)):
        if record.get(name) != current:
            raise StoreError(f"run {run} has {name} {short(record.get(name))}, not {current}.")
    if (first := record.get(FIELD, 1)) not in (0, 1):
        raise StoreError(f"run {run} has {FIELD} {short(first)}, not 0 or 1.")
    try:
        identity = config_hash(record["config"], DATA_VERSION, RESULTS_VERSION)
        experiment = read_experiment(record["config"])
    except ConfigError as error:
        raise StoreError(f"run {run} is of another program: {error}") from None
    except (KeyError, TypeError, AttributeError, OverflowError, UnicodeError):
        raise _no_row(run) from None
    if identity != run:
        raise StoreError(f"run {run} has the configuration of run {identity}.")
    if not isinstance(record.get("tables"), Mapping):
        raise _no_row(run)
    return run, experiment


def is_row(record: Mapping[str, Any]) -> bool:
    """Whether a record is a row of today's program, withdrawn or not."""
    try:
        StudyRow.read(record)
    except StoreError:
        return False
    return True


def _no_row(run: str) -> StoreError:
    return StoreError(f"run {run} is no row of a study.")


def _name_today(record: Mapping[str, Any]) -> str | None:
    """The id that the configuration of a record has in this version, or the one that it says it has."""
    config, run = record.get("config"), record.get("run")
    if config:
        return config_hash(config, DATA_VERSION, RESULTS_VERSION)
    return run if isinstance(run, str) else None


def _facts_in(source: Mapping[str, Any]) -> list[str]:
    """Names of the facts to take: all, but of those that earlier versions lack only what is there, since a
    row that is written again must not differ."""
    return [name for name in FACTS if name in source or name not in LATER]


def _checked(
    run: str, facts: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]
) -> tuple[Mapping[str, Any], dict[str, pl.DataFrame]]:
    """The facts, and what a row keeps of the tables, once all of them are what claims read."""
    for name, value in facts.items():
        rule, fits = FACTS[name]
        if not fits(value) and (value is not None or name in NEEDED):
            raise StoreError(f"run {run}: {name} is {short(value)}, and has to be {rule}.")
    kept = {}
    for name, table in tables.items():
        if name not in KEPT:
            raise StoreError(f"run {run}: no row has a table {name!r}.")
        try:
            kept[name] = KEPT[name].of(table)
        except StoreError as error:
            raise StoreError(f"run {run}: table {name!r} {error}") from None
    return facts, paired(kept)


def _columns(table: pl.DataFrame) -> dict[str, list[Any]]:
    numbers = pl.col(pl.Float64, pl.Float32)
    rounded = pl.when(numbers.is_finite()).then(numbers.round_sig_figs(DIGITS)).name.keep()
    return table.with_columns(rounded).to_dict(as_series=False)
