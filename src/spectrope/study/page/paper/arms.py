"""The runs that a figure or a table of the paper is made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spectrope.encodings import EncodingConfig
from spectrope.lab import SCALES, Experiment
from spectrope.study.arms import planned
from spectrope.study.claims.partial_rope import by_count
from spectrope.study.rows import StudyRow, StudyRows

TASKS = {"distance": "Task 1", "counting": "Task 2"}


@dataclass(frozen=True)
class PaperRuns:
    """Stored runs of one scale, condition and choice of seeds.

    Args:
        rows: All rows that there are.
        scale: Their scale.
        condition: Their condition.
        seeds: Their seeds.
    """

    rows: StudyRows
    scale: str
    condition: str
    seeds: Sequence[int]

    def experiments(self, task: str, encoding: str | EncodingConfig) -> list[Experiment]:
        """The experiments of an encoding on a task, a seed each."""
        sizes = {"scale": self.scale, "condition": self.condition}
        return [planned(task, encoding, seed=seed, **sizes) for seed in self.seeds]

    def found(self, task: str, encoding: str | EncodingConfig, table: str) -> "CaseRuns":
        """The rows of these experiments that have a table; without dropout, where there are none with it."""
        wanted = self.experiments(task, encoding)
        rows = self._with(wanted, table)
        if rows:
            return CaseRuns(rows, "")
        bare = [replace(one, model=replace(one.model, dropout=0.0)) for one in wanted]
        return CaseRuns(self._with(bare, table), "without dropout")

    def _with(self, experiments: Iterable[Experiment], table: str) -> list[StudyRow]:
        rows = (self.rows.get(one) for one in experiments)
        return [row for row in rows if row is not None and table in row.tables]

    def by_heads(self) -> Mapping[int, EncodingConfig]:
        """RoPE on the first k heads, by k."""
        n_heads = SCALES[self.scale]["distance"].model.n_heads
        return by_count(self.condition, self.scale, n_heads)


@dataclass(frozen=True)
class CaseRuns:
    """The rows of one encoding on one task.

    Args:
        rows: A row per seed; none where nothing has been run.
        note: How these runs differ from the requested ones; empty if they do not.
    """

    rows: list[StudyRow]
    note: str
