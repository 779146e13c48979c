"""Claims 1 and 2 again, each encoding at the learning rate that trials on one grid chose."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from spectrope.core import UnsupportedError
from spectrope.lab import FACTORS, Experiment, Job, Trial, Tuning, grid
from spectrope.study.arms import NAMES_AND_MLA as NAMES
from spectrope.study.arms import Arms
from spectrope.study.claim import Claim
from spectrope.study.claims.counting_ordering import CountingBiases, CountingTable, CountingText
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.quantities import Seen
from spectrope.study.rows import StudyRow, StudyRows
from spectrope.study.verdict import Part

TITLE = "{}, each encoding at the learning rate that a trial chose"
TEST = (
    "{} Learning rates are those of highest accuracy, and of lowest loss between equals, among "
    + ", ".join(f"{factor:g}" for factor in FACTORS)
    + " times the scale's, tried on seed 0 of each encoding: a fifth of its training examples is left out of "
    "training to judge them, so that held-out examples play no part. With one seed and accuracy as the "
    "criterion the choice is noisy: by loss, random and relative would have another rate on Task 1, and "
    "ALiBi is no better at its rate than at the scale's. A star marks an end of the grid, beyond "
    "which a better rate may lie. At `mini`, six earlier seeds that counted, from {} on, were judged with a "
    "grid that ended at 3, where nearly every choice lay; it was widened for all encodings alike, and the "
    "claim began anew on the next six. On Task 2 RoPE and absolute had been seen on those six as well, at "
    "another rate, for claim 2 as the text has it."
)


class AtBestRates(Claim):
    """A claim whose arms use the learning rates chosen by trials; an arm without completed trials has no run
    yet.

    Args:
        rows: Where the rows of the trials are, now or later.
    """

    inner: ClassVar[Claim]  # The claim at the scale's own rate.
    conditions = ("controlled",)
    unplanned = (
        "The paper has one learning rate for all encodings. A rate of its own for each makes `controlled` "
        "fairer, and would no longer be `described` or `released`."
    )
    explored = 12
    planned_later = "the runs at the rates that trials choose, at most as many as without --tune"

    def __init__(self, rows: StudyRows) -> None:
        self.rows = rows

    @property
    def planned_as(self) -> str:
        return self.inner.kind

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        tunings = self._tunings(condition, scale)
        untuned = experiments(self.inner, condition, scale, seed)
        return {name: at_best_rate(one, tuning) for name, one in untuned.items() if (tuning := tunings[name])}

    def jobs(
        self, condition: str, scale: str, seeds: Sequence[int], rows: StudyRows | None = None
    ) -> list[Job]:
        """The trials, and the runs at those rates that they have chosen already."""
        first = experiments(self.inner, condition, scale, 0).values()
        trials = [Job(trial, ()) for one in first for trial in grid(one)]
        return [*trials, *super().jobs(condition, scale, seeds, rows)]

    def see(self, rows: StudyRows, condition: str, scale: str, seeds: Sequence[int] | None = None) -> Seen:
        """The rows at chosen rates, and the trials that could not choose one."""
        seen = super().see(rows, condition, scale, seeds)
        first = experiments(self.inner, condition, scale, 0)
        lost = (str(one) for experiment in first.values() for one in self.rows.lost(grid(experiment)))
        odd = (line for name, experiment in first.items() for line in unfit(name, experiment, self.rows))
        return replace(seen, left_out=(*seen.left_out, *lost, *odd))

    def parts(self, seen: Seen) -> Iterator[Part]:
        for number, part in enumerate(self.inner.parts(seen)):
            yield (
                part if number else replace(part, note=f"rates: {', '.join(self._rates(seen))}; {part.note}")
            )

    def _tunings(self, condition: str, scale: str) -> dict[str, Tuning | None]:
        first = experiments(self.inner, condition, scale, 0)
        return {name: tuning_of(one, self.rows) for name, one in first.items()}

    def _rates(self, seen: Seen) -> Iterator[str]:
        decoders = {arm: run for (arm, _), row in seen.rows.items() if (run := Experiment.of(row.experiment))}
        first = next(iter(decoders.values()), None)
        tunings = self._tunings(first.condition, first.scale) if first else {}
        for arm in seen.arms:
            if arm in decoders and (tuning := tunings[arm]):
                yield f"{NAMES.get(arm, arm)} {tuning.chosen.rate:.2g}{'*' * tuning.at_edge}"


class DistanceOrderingTuned(AtBestRates, DistanceOrdering):
    """Claim 1."""

    kind = "distance-ordering-tuned"
    inner = DistanceOrdering()
    title, test = TITLE.format(inner.title), TEST.format(inner.test, inner.explored)


class CountingTextTuned(AtBestRates, CountingText):
    """Claim 2, as the text has it."""

    kind = "counting-text-tuned"
    explored = 18
    inner = CountingText()
    title, test = TITLE.format(inner.title), TEST.format(inner.test, inner.explored)


class CountingTableTuned(AtBestRates, CountingTable):
    """Claim 2, as Table 1 has it."""

    kind = "counting-table-tuned"
    inner = CountingTable()
    title, test = TITLE.format(inner.title), TEST.format(inner.test, inner.explored)


class CountingBiasesTuned(AtBestRates, CountingBiases):
    """Claim 2, what both readings share."""

    kind = "counting-biases-tuned"
    inner = CountingBiases()
    title, test = TITLE.format(inner.title), TEST.format(inner.test, inner.explored)


TUNED = {
    one.inner.kind: one
    for one in (DistanceOrderingTuned, CountingTextTuned, CountingTableTuned, CountingBiasesTuned)
}


def tuned_forms(claims: Sequence[Claim], rows: StudyRows) -> list[Claim]:
    """The tuned forms of those of some claims that have one."""
    return [TUNED[claim.kind](rows) for claim in claims if claim.kind in TUNED]


def tuned_claims(claims: Sequence[Claim], rows: StudyRows) -> list[Claim]:
    """Those of some claims that have a tuned form, in it.

    Raises:
        UnsupportedError: If none has.
    """
    forms = tuned_forms(claims, rows)
    if not forms:
        raise UnsupportedError(f"learning rates are tuned for claims {', '.join(TUNED)} alone.")
    return forms


def tried_claims(claims: Sequence[Claim], rows: StudyRows, scale: str) -> list[Claim]:
    """Some claims, each followed by its tuned form if a trial of its grids has a row."""
    listed = []
    for claim in claims:
        listed.append(claim)
        if claim.kind in TUNED and _is_tried(claim, rows, scale):
            listed.append(TUNED[claim.kind](rows))
    return listed


def tuning_of(experiment: Experiment, rows: StudyRows) -> Tuning | None:
    """What the trials of an experiment's grid say; None as long as one is missing, or unfit to compare."""
    trials = grid(experiment)
    trial_rows = [row for trial in trials if (row := rows.get(trial)) is not None]
    if len(trial_rows) < len(trials) or any(unfit("", experiment, rows)):
        return None
    return Tuning(
        experiment,
        tuple(Trial.of(trial, row.facts, row.run) for trial, row in zip(trials, trial_rows, strict=True)),
    )


def unfit(arm: str, experiment: Experiment, rows: StudyRows) -> Iterator[str]:
    """A line for each thing that keeps the trials of an experiment's grid from being compared."""
    trial_rows = [row for trial in grid(experiment) if (row := rows.get(trial)) is not None]
    precisions = sorted({row.facts["precision"] for row in trial_rows})
    if len(precisions) > 1:
        yield f"trials of {arm}, computed in {' and '.join(precisions)}"
    yield from (
        f"a trial of {arm} (run {row.run}), without accuracy" for row in trial_rows if not _is_judged(row)
    )


def at_best_rate(experiment: Experiment, tuning: Tuning) -> Experiment:
    """The experiment at the chosen rate: itself, where that is the rate it has."""
    rate = tuning.chosen.rate
    if rate == experiment.training.learning_rate:
        return experiment
    return replace(experiment, training=replace(experiment.training, learning_rate=rate), tuning="chosen")


def experiments(claim: Claim, condition: str, scale: str, seed: int) -> Arms:
    """A claim's arms, all of them runs of the decoder."""
    arms = claim.arms(condition, scale, seed)
    return {name: run for name, one in arms.items() if (run := Experiment.of(one))}


def _is_judged(row: StudyRow) -> bool:
    return row.facts["test_accuracy"] is not None


def _is_tried(claim: Claim, rows: StudyRows, scale: str) -> bool:
    conditions = TUNED[claim.kind].conditions
    firsts = (experiments(claim, condition, scale, 0) for condition in conditions)
    trials = (trial for first in firsts for one in first.values() for trial in grid(one))
    return any(rows.get(trial) is not None for trial in trials)
