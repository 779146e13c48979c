"""A study: claims, conditions, a scale and seeds, with the runs that they need and the results so far."""

import shlex
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from spectrope.core import (
    ConfigError,
    Precision,
    SpectropeError,
    StoreError,
    UnknownNameError,
    Watch,
    require,
    unwatched,
)
from spectrope.lab import (
    OWN,
    OWN_TASKS,
    SCALES,
    AnyExperiment,
    Engine,
    Job,
    discard_checkpoints,
    read_experiment,
)
from spectrope.store import Run, survey
from spectrope.study.claim import EXPLORED_AT, Claim, chosen_claims
from spectrope.study.claims.tuned import AtBestRates
from spectrope.study.conditions import THROWN
from spectrope.study.plan import planned_scales, planned_times, unplanned
from spectrope.study.quantities import Seen
from spectrope.study.rows import StudyRow, StudyRows, run_name
from spectrope.study.schedule import scheduled
from spectrope.study.verdict import ClaimVerdict, Word

RESULTS = Path("results")  # Where rows are, unless said otherwise.
SHIPPED = Path(__file__).with_name("results")  # The same rows in an installed wheel.
BESIDE = Path(__file__).parents[3] / "results"  # The same rows in the clone of an editable installation.


def place_of_rows(folder: Path = RESULTS) -> Path | None:
    """The folder of rows: this one, or that of the installation where `results` is asked for and not there;
    None if there is none."""
    places = (folder, SHIPPED, BESIDE) if folder == RESULTS else (folder,)
    return next((place for place in places if place.exists()), None)


def stored_rows(scale: str = "mini") -> StudyRows:
    """The rows of a scale in the folder `results`, or those that the package comes with.

    Raises:
        UnknownNameError: If there is no such scale.
        StoreError: If there are no rows of it, or they cannot be read.

    Example:
        >>> len(stored_rows("mini")) > 1000
        True
    """
    if scale not in SCALES:
        raise UnknownNameError("scale", scale, SCALES)
    if (place := place_of_rows()) is None:
        raise StoreError(f"no folder {RESULTS} here, and this installation comes with no rows.")
    if not (file := place / f"{scale}.jsonl").exists():
        raise StoreError(f"{place} has no rows of scale {scale!r}: no file {file.name}.")
    return StudyRows.load(file).unwritten()


@dataclass(frozen=True)
class Study:
    """Some claims at one scale.

    Args:
        claims: The claims.
        conditions: Conditions to test; each claim is tested under those that apply to it.
        scale: How large the runs are.
        seeds: Seeds of every arm, counted from the first that a claim has not explored; a claim about
            something rare takes more (`seeds_of`).

    Raises:
        ConfigError: If one of these is empty or unknown, or no claim is tested under the conditions.
    """

    claims: tuple[Claim, ...]
    conditions: tuple[str, ...]
    scale: str
    seeds: tuple[int, ...]

    def __post_init__(self) -> None:
        for field in ("claims", "conditions", "seeds"):
            require(len(getattr(self, field)) > 0, self, field, "at least one")
        require(min(self.seeds) >= 0, self, "seeds", "none below 0")
        for name in self.conditions:
            if name not in THROWN:
                raise UnknownNameError("condition", name, THROWN)
        if self.scale not in SCALES:
            raise UnknownNameError("scale", self.scale, SCALES)
        if not self.cases():
            asked, known = (", ".join(names) for names in (self.conditions, self._concerned()))
            raise ConfigError(f"none of these claims is tested under {asked}; they are tested under {known}.")

    def rows_of(self, rows: StudyRows) -> list[StudyRow]:
        """The rows that there are of planned runs."""
        return [row for job in self.jobs(rows) if (row := rows.get(job.experiment)) is not None]

    def commands(self, place: Path = RESULTS) -> list[str]:
        """Commands that complete this study, for the claims themselves and for their tuned forms.

        Args:
            place: Folder of the rows.
        """
        every, tested = {claim.kind for claim in chosen_claims(())}, {claim for claim, _ in self.cases()}
        tuned = sorted(claim.inner.kind for claim in tested if isinstance(claim, AtBestRates))
        plain = sorted(claim.kind for claim in tested if not isinstance(claim, AtBestRates))
        named = [plain if set(plain) < every else []] if plain else []
        named += [[*tuned, "--tune"]] if tuned else []
        return [self.command(names, place) for names in named]

    def command(self, words: Sequence[str], place: Path = RESULTS) -> str:
        """The command that runs some claims on the seeds of this study.

        Args:
            words: Names of the claims, none for all, and options such as "--tune".
            place: Folder of the rows.
        """
        options = ["--scale", self.scale, "--seeds", *spans(self.seeds)]
        options += ["--rows", str(place)] if place != RESULTS else []
        options += ["--condition", *self.conditions] if set(self.conditions) < set(THROWN) else []
        return shlex.join(["spectrope", "claims", "run", *words, *options])

    @property
    def n_layers(self) -> int:
        """Depth of the models of its scale."""
        return max(preset.model.n_layers for preset in SCALES[self.scale].values())

    def cases(self) -> list[tuple[Claim, str]]:
        """Each claim with each condition that concerns it."""
        return [
            (claim, name) for claim in self.claims for name in self.conditions if name in claim.conditions
        ]

    def _concerned(self) -> list[str]:
        """The conditions that concern any of the claims."""
        return [name for name in THROWN if any(name in claim.conditions for claim in self.claims)]

    @property
    def is_repeated(self) -> bool:
        """Whether the first planned seeds are left out, so that it repeats the study on further ones."""
        return min(self.seeds, default=0) > 0

    def jobs(self, rows: StudyRows | None = None) -> list[Job]:
        """What there is to do; a run that several claims need comes once, with all tables.

        At a scale that the plan covers these are its runs, in its order; elsewhere all, claim by claim.

        Args:
            rows: What there is already, for claims that plan by it.
        """
        jobs = (job for claim, name in self.cases() for job in self.jobs_of(claim, name, rows))
        return scheduled(merged(jobs), self.scale)

    def jobs_of(self, claim: Claim, condition: str, rows: StudyRows | None = None) -> list[Job]:
        """What one claim needs under one condition, as far as the plan has it: nothing at a scale whose runs
        lack its headline, since what it measures would decide nothing.
        """
        if self.scale in planned_scales() and unplanned(claim.planned_as, self.scale):
            return []
        return scheduled(claim.jobs(condition, self.scale, self.seeds_of(claim, condition), rows), self.scale)

    def seeds_of(self, claim: Claim, condition: str) -> tuple[int, ...]:
        """The seeds of a claim: as many per seed of the study as it needs at this scale, without overlap."""
        planned = planned_times(self.scale, claim.planned_as, condition)
        times = claim.times if self.scale == EXPLORED_AT else planned
        return tuple(times * seed + more for seed in self.seeds for more in range(times))

    def verdicts(self, rows: StudyRows) -> list[ClaimVerdict]:
        """The verdict of each case on the rows that there are of its planned seeds, and what these lack."""
        return [self._verdict(claim, condition, rows) for claim, condition in self.cases()]

    def _verdict(self, claim: Claim, condition: str, rows: StudyRows) -> ClaimVerdict:
        verdict = claim.judge(rows, condition, self.scale, self.seeds_of(claim, condition))
        jobs = self.jobs_of(claim, condition, rows)
        if reason := self._unplanned(claim, jobs):
            return replace(verdict, word="not testable here", reason=reason)
        n_left = len(outstanding(jobs, rows))
        to_do = f"; {n_left} of {len(jobs)} planned runs to do" if n_left else ""
        return replace(verdict, reason=verdict.reason + to_do)

    def _unplanned(self, claim: Claim, jobs: Sequence[Job]) -> str:
        """Why the plan cannot decide a claim at this scale; empty if it can, or does not cover the scale."""
        if self.scale not in planned_scales():
            return ""
        why = unplanned(claim.planned_as, self.scale)
        return f"not planned at {self.scale}{f': {why}' * bool(why)}" if why or not jobs else ""

    def seen(self, claim: Claim, condition: str, rows: StudyRows) -> Seen:
        """The rows that count for a claim."""
        return claim.see(rows, condition, self.scale, self.seeds_of(claim, condition))

    def words_without_one(self, claim: Claim, verdict: ClaimVerdict, rows: StudyRows) -> dict[int, Word]:
        """The word that a verdict would have without each of its seeds (see `Claim.words_without_one`)."""
        return claim.words_without_one(rows, verdict, self.seeds_of(claim, verdict.condition))

    def power(self, claim: Claim, rows: StudyRows) -> str:
        """What the planned seeds can show of a claim."""
        return claim.power(self.seeds_of(claim, claim.conditions[0]), rows, self.scale)


def spans(seeds: Iterable[int]) -> list[str]:
    """Seeds as the command line takes them: `0:6`, and one after the other where they are no range."""
    words: list[str] = []
    for _, group in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0]):
        first, *others = (seed for _, seed in group)
        words.append(f"{first}:{others[-1] + 1}" if others else str(first))
    return words


def merged(jobs: Iterable[Job]) -> list[Job]:
    """One job per experiment, which leaves the tables of all jobs of that experiment."""
    tables: dict[AnyExperiment, dict[str, None]] = {}
    for job in jobs:
        tables.setdefault(job.experiment, {}).update(dict.fromkeys(job.tables))
    return [Job(experiment, tuple(names)) for experiment, names in tables.items()]


def outstanding(jobs: Iterable[Job], rows: StudyRows) -> list[Job]:
    """The jobs whose rows are not there yet, each with what its row has already.

    Where the run folder is gone, the run is made anew, and its row takes the place of the earlier one.
    """
    return [
        replace(job, tables=tuple(dict.fromkeys((*job.tables, *rows.measured(job.experiment)))))
        for job in jobs
        if not rows.covers(job)
    ]


def usual_precision(rows: Iterable[StudyRow]) -> Precision:
    """The precision of most rows whose experiments leave it open, or "auto" if there are none.

    Claims leave rows in another precision than most of theirs out.
    """
    counts = Counter(row.facts["precision"] for row in rows if row.experiment.precision == "auto")
    return counts.most_common(1)[0][0] if counts else "auto"


def harvest(root: Path, wanted: Container[AnyExperiment], rows: StudyRows) -> tuple[int, list[str]]:
    """Take the rows of finished runs, where they add something to what there is.

    Args:
        root: Folder of the run folders.
        wanted: Runs of other experiments are left alone.
        rows: Where the rows go.

    Returns:
        How many there were, and a line for each run that cannot be read.

    Raises:
        StoreError: If `root` is no folder, or the rows cannot be written.
    """
    runs, broken = survey(root)
    complaints = [f"{path.name}: {reason}" for path, reason in broken]
    n_new = 0
    for run in runs:
        try:
            if {OWN, OWN_TASKS} & set(run.config) or not run.finished:
                continue
            if (one := read_experiment(run.config)) not in wanted:
                continue
            if run.id != run_name(one):
                raise StoreError(
                    f"has the configuration of run {run_name(one)}; rename or remove the folder."
                )
            row = StudyRow.of(run)
        except SpectropeError as error:
            complaints.append(f"{run.id}: {error}")
            continue
        earlier = rows.get(row.experiment)
        if earlier is None or set(earlier.tables) < set(earlier.joined(row).tables):
            rows.add(row)
            n_new += 1
    return n_new, complaints


def tidy(root: Path, wanted: Iterable[AnyExperiment]) -> None:
    """Remove the checkpoints of finished runs, where a process was killed before it did.

    Args:
        root: Folder of the run folders.
        wanted: Runs of other experiments are left alone.

    Raises:
        StoreError: If `root` is no folder, or a checkpoint cannot be removed.
    """
    names = {run_name(experiment) for experiment in wanted}
    for run in survey(root)[0]:
        if run.finished and run.id in names:
            discard_checkpoints(run)


def carry_out(
    jobs: Sequence[Job], rows: StudyRows, root: Path, engine: Engine, watch: Watch = unwatched
) -> None:
    """Run the jobs that no row covers, and add each row when its job ends.

    Raises:
        Interrupted: After Ctrl-C; what was done is kept.
        SpectropeError: If a job fails; the others are done first.
    """
    engine(outstanding(jobs, rows), root, watch, record_of, lambda record: rows.add(StudyRow.read(record)))


def record_of(run: Run) -> dict[str, Any]:
    """What a study keeps of a finished run, as JSON-ready values that can be sent between machines."""
    return StudyRow.of(run).record()
