"""Base class of claims: a statement of a paper, the runs that test it, and a verdict."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from spectrope.core import ConfigError, Registered, Registry
from spectrope.lab import SCALES, AnyExperiment, Job
from spectrope.stats import MIN_SEEDS
from spectrope.study.conditions import THROWN
from spectrope.study.plan import headline_of, planned_scales
from spectrope.study.power import power_of
from spectrope.study.predictions import AtLeast, OfMean
from spectrope.study.quantities import ABLATION, Seen, own_ablation
from spectrope.study.rows import StudyRows
from spectrope.study.verdict import ClaimVerdict, Part, PartResult, Word, decide

CLAIMS: Registry[type["Claim"]] = Registry("claim", "spectrope.study.claims")
EXPLORED = 6  # Seeds from 0 on that were looked at while scales, tests and layers were chosen,
EXPLORED_AT = "mini"  # at this scale.
PAPER = "Unpacking Positional Encoding in Transformers (Gu et al., 2025)"


class Claim(Registered, ABC):
    """A statement that runs can support or contradict. A subclass registers its name (`class Dropout(Claim,
    name="dropout")`), and defines the runs that it needs in `arms` and its predictions in `parts`. Planning,
    verdict, page and command line use these two methods.
    """

    registry = CLAIMS
    kind: ClassVar[str]
    article: ClassVar[str] = PAPER  # Whose statement it is about.
    number: ClassVar[int]  # Place among the claims.
    title: ClassVar[str]
    statement: ClassVar[str]  # What the paper says.
    quote: ClassVar[str] = ""  # The same, verbatim, if the paper's text is at hand.
    source: ClassVar[str]  # Where.
    prediction: ClassVar[str]  # In symbols.
    test: ClassVar[str]  # How it is decided.
    paper: ClassVar[str]  # The paper's own numbers.
    conditions: ClassVar[tuple[str, ...]] = tuple(THROWN)
    unplanned: ClassVar[str] = ""  # Why under these conditions alone.
    planned_later: ClassVar[str] = ""  # Runs that only the rows of the first ones tell apart.
    tables: ClassVar[tuple[str, ...]] = ()  # What is measured on each run.
    minimum_seeds: ClassVar[int] = MIN_SEEDS
    times: ClassVar[int] = 1  # As many seeds as are asked for, times this, where that is rare or noisy.
    explored: ClassVar[int] = EXPLORED  # Seeds of `mini` that chose its settings; none counts.
    history: ClassVar[str] = ""  # How its test came to its seeds of `mini`, in whole sentences.
    later: ClassVar[str] = ""  # What was chosen on seeds that count, to follow that.
    plan_page: ClassVar[str] = ""  # The page that had its headline part before its first row at `mini`.
    ours: ClassVar[bool] = False  # Whether the prediction is this study's and not the paper's.
    least_layers: ClassVar[int] = 1  # Fewer cannot tell what the paper says of 6.

    @abstractmethod
    def arms(self, condition: str, scale: str, seed: int) -> Mapping[str, AnyExperiment]:
        """The runs of one seed, by the names used in `parts`."""

    @abstractmethod
    def parts(self, seen: Seen) -> Iterator[Part]:
        """The predictions of the claim; the plan names the part that decides, by default the first."""

    def named(self, condition: str, scale: str, seeds: Sequence[int]) -> dict[AnyExperiment, str]:
        """All runs under a condition with their arms, seed by seed, counted from the first unexplored one.

        Raises:
            ConfigError: If the claim is not tested under that condition.
        """
        if condition not in self.conditions:
            known = ", ".join(self.conditions)
            raise ConfigError(f"claim {self.kind!r} is tested under {known}; got {condition!r}.")
        groups = (self.arms(condition, scale, seed) for seed in self.numbers(seeds, scale))
        return {one: arm for group in groups for arm, one in group.items()}

    def plan(self, condition: str, scale: str, seeds: Sequence[int]) -> list[AnyExperiment]:
        """The same without names."""
        return list(self.named(condition, scale, seeds))

    def jobs(
        self, condition: str, scale: str, seeds: Sequence[int], rows: StudyRows | None = None
    ) -> list[Job]:
        """The same with what is measured on each; a claim may need fewer for what `rows` show already."""
        return [Job(one, self.measured(arm, one)) for one, arm in self.named(condition, scale, seeds).items()]

    def measured(self, arm: str, experiment: AnyExperiment) -> tuple[str, ...]:
        """The claim's tables, and the ablation that the run is judged by, where heads are ablated."""
        ablations = (own_ablation(experiment),) if ABLATION in self.tables else ()
        return tuple(dict.fromkeys((*self.tables, *ablations)))

    def see(self, rows: StudyRows, condition: str, scale: str, seeds: Sequence[int] | None = None) -> Seen:
        """The rows of this claim's arms.

        Args:
            rows: All rows that there are.
            condition: Whose confounds the runs keep.
            scale: Their size.
            seeds: Those that were planned, counted as in `plan`, so that no verdict grows with seeds that
                were added after a look; None takes all that the rows have.
        """
        everything = {row.experiment.seed for row in rows}
        return self.look(rows, condition, scale, everything if seeds is None else self.numbers(seeds, scale))

    def look(
        self,
        rows: StudyRows,
        condition: str,
        scale: str,
        numbers: Collection[int],
        precision: str | None = None,
    ) -> Seen:
        """The rows of some seeds, in one precision, by default that of most.

        Args:
            rows: All rows that there are.
            condition: Whose confounds the runs keep.
            scale: Their size.
            numbers: The seeds of the experiments themselves.
            precision: The one that counts.
        """
        arms = {seed: self.arms(condition, scale, seed) for seed in sorted(numbers)}
        lost = rows.lost(one for group in arms.values() for one in group.values())
        committed = scale in planned_scales()
        seen = Seen.of(rows, arms, tuple(map(str, lost)), precision, committed=committed)
        return replace(seen, withdrawn=rows.withdrawals.told(condition))

    def numbers(self, seeds: Sequence[int], scale: str) -> list[int]:
        """Seeds of experiments, from those that are counted from the first unexplored one of a scale."""
        first = self.explored if scale == EXPLORED_AT else 0
        return [first + seed for seed in seeds]

    def n_judged(self, seeds: Sequence[int]) -> int:
        """How many of the planned seeds a verdict rests on."""
        return len(seeds)

    def judge(
        self,
        rows: StudyRows,
        condition: str = "controlled",
        scale: str = "mini",
        seeds: Sequence[int] | None = None,
    ) -> ClaimVerdict:
        """The verdict of the rows that `see` sees."""
        seen = self.see(rows, condition, scale, seeds)
        headline = headline_of(self.planned_as)
        parts, untestable = list(self.parts(seen)), self.untestable(scale)
        waiting = [] if seeds is None else seen.waiting
        return decide(
            self.kind, condition, scale, parts, seen, self.minimum_seeds, headline, untestable, waiting
        )

    def words_without_one(
        self, rows: StudyRows, verdict: ClaimVerdict, seeds: Sequence[int]
    ) -> dict[int, Word]:
        """The word that the deciding part would have without each of its seeds, whatever number of seeds a
        verdict takes; premises are left as they are.

        None where one seed fewer could not give the word, whatever it shows: by exact tests, for values that
        all agree, whose p-values depend on the number of seeds alone, and for the largest of several
        candidates, which cannot be ranked by fewer.

        Args:
            rows: All rows that there are.
            verdict: Of all its seeds.
            seeds: Those that were planned, counted as in `plan`.
        """
        decided = verdict.headline
        if decided is None or not _can_spare_a_seed(decided.part):
            return {}
        words: dict[int, Word] = {}
        of_seed = dict(zip(self.numbers(seeds, verdict.scale), seeds, strict=True))
        for number in decided.part.values:
            rest = [seed for seed in seeds if seed != of_seed[number]]
            for part in self.parts(self.see(rows, verdict.condition, verdict.scale, rest)):
                if part.quantity == decided.part.quantity:
                    words[number] = PartResult.of(part, minimum=0).word
        return words

    @property
    def planned_as(self) -> str:
        """The name under which the plan has it."""
        return self.kind

    def setting(self, scale: str) -> str:
        """What its runs train on at a scale, and for how long, where the data card does not have it; else
        empty."""
        return ""

    def untestable(self, scale: str) -> str:
        """Why runs of a scale cannot test the claim, whatever their results; empty if they can."""
        n_layers = max(preset.model.n_layers for preset in SCALES[scale].values()) if scale in SCALES else 0
        if n_layers >= self.least_layers:
            return ""
        return f"{n_layers} layers cannot locate what the paper finds in {self.least_layers} layers"

    def power(self, seeds: Sequence[int], rows: StudyRows, scale: str = "mini") -> str:
        """Power of the planned seeds, stated before they are run; in points if existing rows determine the
        spread."""
        n = self.n_judged(seeds)
        if n < self.minimum_seeds:
            few = f"{n} seed{'s' * (n != 1)}"
            return f"{few} decide{'s' * (n == 1)} nothing; {self.minimum_seeds} are needed."
        first = self.conditions[0]
        seen = self.see(rows, first, scale, seeds)
        arms = seen.arms or tuple(self.arms(first, scale, *self.numbers((0,), scale)))
        return power_of(self._deciding(self.foreseen(replace(seen, arms=arms))), n)

    def _deciding(self, parts: Sequence[Part]) -> list[Part]:
        """The premises, and the part that decides."""
        named = headline_of(self.planned_as)
        deciding = [part for part in parts if not part.premise and named in (None, part.quantity)]
        return [*(part for part in parts if part.premise), *deciding[:1]]

    def foreseen(self, seen: Seen) -> list[Part]:
        """The parts for which power is reported: all, unless rows decide which there are."""
        return list(self.parts(seen))


def _can_spare_a_seed(part: Part) -> bool:
    """Whether a part is decided by how its values spread, and not by their number alone."""
    chosen = isinstance(part.prediction, AtLeast) and part.prediction.tried > 1
    return isinstance(part.prediction, OfMean) and not chosen and len(set(part.values.values())) > 1


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """The claims of these names or numbers, all if there are none, in the paper's order.

    Raises:
        ConfigError: If no claim has a number.
        UnknownNameError: If a name is not known.
    """
    everything = sorted((CLAIMS[name]() for name in CLAIMS), key=lambda claim: (claim.number, claim.kind))
    if not names:
        return everything
    numbers = {str(claim.number) for claim in everything}
    if wrong := [name for name in names if name.isdecimal() and name not in numbers]:
        raise ConfigError(f"claims are numbered 1 to {everything[-1].number}; got {wrong[0]}.")
    kinds = {CLAIMS[name].kind for name in names if name not in numbers}
    return [claim for claim in everything if claim.kind in kinds or str(claim.number) in names]
