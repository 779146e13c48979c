"""Claim 11: does a single confound suffice for the results of the public code?"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

import numpy as np

from spectrope.encodings.nope import NoPE
from spectrope.lab import AnyExperiment, Experiment, Job
from spectrope.stats import MIN_SEEDS
from spectrope.study.arms import NAMES_AND_MLA, TASKS, Arms, length_only, run_of, untrained
from spectrope.study.claim import Claim
from spectrope.study.conditions import SWITCHES, alone, without
from spectrope.study.predictions import ALPHA, AtLeast, Values, Within, largest
from spectrope.study.quantities import ABLATION, Quantity, Seen, difference, gap, held_out, shallow
from spectrope.study.rows import StudyRows
from spectrope.study.verdict import Part

# Switches of the ablation, by the tables that they leave on runs without any other switch.
ABLATIONS: Mapping[str, Mapping[str, str]] = {
    "distance/rope": {"R9": "ablation-unrestored", "R10": "ablation-all"},
    "distance/mla": {"R10": "ablation-all", "R12": "ablation-latent-columns"},
}
DIFFERENCE = 5.0  # Points between `released` and `controlled` that are worth explaining.
STRONGEST = "the strongest switch alone minus half of the difference"
MISSED = "the switch whose removal undoes most of it, minus half of the difference"
REMOVED_OF = (
    "distance/nope",
    "distance/rope",
    "distance/mla",
)  # Of which switches are also removed, one by one.
HALF = 0.5  # Share of the difference that one switch must account for.
ENDS = ("controlled", "released")
WITHOUT = "without "  # How an arm begins that has all switches but one.


@dataclass(frozen=True)
class ConfoundEffects:
    """Effect of each single switch on one quantity of one encoding on one task, by seed.

    Args:
        runs: Task and encoding, as arms begin.
        subject: Such as "RoPE, Task 1, held-out accuracy".
        whole: `released` minus `controlled`.
        single: One switch alone minus `controlled`, by the switch's name.
        removed: `released` minus the same without one switch, likewise.
        unfinished: The runs that did not finish training, in words, by setting.
        blind: The best possible accuracy in percent, by setting, of models that do not see the order of
            tokens.
    """

    runs: str
    subject: str
    whole: Values
    single: dict[str, Values]
    removed: dict[str, Values]
    unfinished: Mapping[str, str] = field(default_factory=dict)
    blind: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Of the whole difference."""
        return float(_array(self.whole).mean()) if self.whole else 0.0

    @property
    def worth(self) -> bool:
        """Whether, over enough seeds, the mean difference is large enough to be explained by single
        switches."""
        return len(self.whole) >= MIN_SEEDS and abs(self.mean) >= DIFFERENCE

    @property
    def small(self) -> bool:
        """Whether enough seeds show that `released` and `controlled` differ by less than is of interest."""
        enough = len(self.whole) >= MIN_SEEDS
        return enough and Within(DIFFERENCE).weigh(_array(self.whole)).p_reproduced <= ALPHA

    def untrained(self, *settings: str) -> str:
        """Which runs of some settings, and of both ends, did not finish training."""
        asked = dict.fromkeys((*ENDS, *settings))
        return ", ".join(self.unfinished[one] for one in asked if one in self.unfinished)


class Confounds(Claim, name="confounds"):
    """One switch at a time, from `controlled` on."""

    number = 11
    title = (
        "NoPE on Task 1: one switch alone suffices for half of the difference between `released` and "
        "`controlled`"
    )
    statement = (
        "The public code differs from the text, or goes beyond it, in switches R1 to R17. Where its results "
        "differ from those without any of them, one switch alone suffices for half of the difference."
    )
    source = "The released code, read against Secs. 3 to 5; not a statement of the authors"
    prediction = (
        "for each encoding and MLA whose held-out accuracy on a task, and RoPE or MLA whose gap on Task 1, "
        "differs by 5 points or more, some switch r has effect(r) ≥ ½ (released − controlled)"
    )
    test = (
        "Each switch that changes a run is thrown alone where the whole difference is 5 points or more on "
        "average over 6 seeds or more; where it is less, but not shown to be less, that quantity stays "
        "undecided. Effects are paired by seed, and counted, as the difference is, in the direction of the "
        "difference. That some switch suffices for half of it holds if the one with the largest effect does, "
        "by Student's t at a level corrected for the number of switches (Bonferroni), and fails if each "
        "falls short. For NoPE, RoPE and MLA on Task 1 each switch is also removed from `released` by "
        "itself, if these runs exist: a supplementary part, which decides nothing; more would exceed the "
        "four hours of training that this edition had for them. Switches without runs are named. The "
        "headline was chosen among 16 quantities after these rows existed, for which nothing is "
        "corrected. R9, R10 and R12 concern the ablation alone, and act on the same runs. Gaps are of "
        "models that reach half of the best possible accuracy. A switch may do more than the whole, which "
        "others then undo; quantities whose difference is shown to be less than 5 points are left out."
    )
    paper = "none: the authors do not discuss these differences"
    conditions = ("released",)
    ours = True
    unplanned = "It is about the difference between `released` and `controlled`, so it has one verdict."
    tables = (ABLATION,)
    planned_later = "each switch alone, where these differ by 5 points or more"

    def arms(self, condition: str, scale: str, seed: int) -> Arms:
        return {
            f"{task}/{name}/{setting}": one
            for task in TASKS
            for name in NAMES_AND_MLA
            for setting, one in switched(task, name, scale, seed).items()
        }

    def jobs(
        self, condition: str, scale: str, seeds: Sequence[int], rows: StudyRows | None = None
    ) -> list[Job]:
        """Both ends of every arm, and each switch alone where rows of these show what is worth explaining."""
        seen = self.see(rows or StudyRows(), condition, scale, seeds)
        asked = {effects.runs for effects in self.effects(seen) if effects.worth}
        return [
            Job(one, self.measured(arm, one))
            for one, arm in self.named(condition, scale, seeds).items()
            if _setting(arm) in ENDS or _runs(arm) in asked
        ]

    def measured(self, arm: str, experiment: AnyExperiment) -> tuple[str, ...]:
        if _runs(arm) not in ABLATIONS:
            return ()
        extra = ABLATIONS[_runs(arm)].values() if _setting(arm) == "controlled" else ()
        return (*super().measured(arm, experiment), *extra)

    def parts(self, seen: Seen) -> Iterator[Part]:
        for effects in self.effects(seen):
            if effects.worth:
                yield _strongest(effects)
                if effects.removed:
                    yield _missed(effects)
            elif not effects.small:
                yield _undecided(effects)

    def foreseen(self, seen: Seen) -> list[Part]:
        return [_strongest(effects) for effects in self.effects(seen) if not effects.small]

    def effects(self, seen: Seen) -> list[ConfoundEffects]:
        """What each switch does to each quantity that is looked at."""
        everything = dict.fromkeys(map(_runs, seen.arms))
        on_accuracy = [_effects(seen, runs, "held-out accuracy", held_out) for runs in everything]
        layers = {"distance/rope": shallow(seen.n_layers), "distance/mla": None}
        words = {"distance/rope": "gap in shallow layers", "distance/mla": "gap in any layer"}
        return on_accuracy + [_gap_effects(seen, runs, words[runs], layers[runs]) for runs in layers]


@cache  # Planning asks for the same runs over and over.
def switched(task: str, encoding: str, scale: str, seed: int) -> Mapping[str, Experiment]:
    """A task under `controlled`, under `released`, and under each switch alone that changes something."""

    def under(condition: str) -> Experiment:
        return run_of(task, encoding, condition, scale, seed)

    base = under("controlled")
    changed = {name: one for name in SWITCHES if (one := alone(name, base)) != base}
    removed = changed if f"{task}/{encoding}" in REMOVED_OF else ()
    left = {f"{WITHOUT}{name}": without(name, base) for name in removed}
    return MappingProxyType({"controlled": base, "released": under("released"), **changed, **left})


def _runs(arm: str) -> str:
    return arm.rpartition("/")[0]


def _setting(arm: str) -> str:
    return arm.rpartition("/")[2]


def _effects(
    seen: Seen, runs: str, words: str, quantity: Quantity, *, only_learned: bool = False
) -> ConfoundEffects:
    settings = {
        _setting(arm): seen.values(arm, quantity, only_learned=only_learned)
        for arm in seen.arms
        if _runs(arm) == runs
    }
    blind = {name: best for name in settings if (best := _without_order(seen, f"{runs}/{name}")) is not None}
    unfinished = {
        name: told for name in settings if name not in blind and (told := untrained(seen, [f"{runs}/{name}"]))
    }
    base, end = (settings.pop(name, {}) for name in ENDS)
    task, name = runs.split("/")
    return ConfoundEffects(
        runs,
        f"{NAMES_AND_MLA[name]}, {TASKS[task]}, {words}",
        difference(end, base),
        {name: difference(one, base) for name, one in settings.items() if not name.startswith(WITHOUT)},
        {
            name.removeprefix(WITHOUT): difference(end, one)
            for name, one in settings.items()
            if name.startswith(WITHOUT) and one
        },
        unfinished,
        blind,
    )


def _without_order(seen: Seen, arm: str) -> float | None:
    """Best accuracy on Task 1, in percent, of an arm that does not see the order of tokens; else None."""
    row = next((row for (name, _), row in seen.rows.items() if name == arm), None)
    one = None if row is None else Experiment.of(row.experiment)
    if one is None or one.model.causal or not isinstance(one.model.encoding, NoPE.Config):
        return None
    return length_only(one)


def _gap_effects(seen: Seen, runs: str, words: str, layers: Iterable[int] | None) -> ConfoundEffects:
    """The same for the gap of models that learned the task; the ablation's own switches count too."""
    effects = _effects(seen, runs, words, gap(layers), only_learned=True)
    own = f"{runs}/controlled"
    base = seen.values(own, gap(layers), only_learned=True)
    for name, table in ABLATIONS[runs].items():
        effects.single[name] = difference(seen.values(own, gap(layers, table), only_learned=True), base)
    return effects


def _strongest(effects: ConfoundEffects) -> Part:
    """Whether some switch suffices for half of the difference."""
    told = (_ceiling(effects), _reverse(effects))
    beside = "; ".join(one for one in told if one)
    return replace(_half(effects, effects.single, STRONGEST), beside=beside)


def _ceiling(effects: ConfoundEffects) -> str:
    """What `released` can reach at most if it does not see the order of tokens; else empty."""
    best = effects.blind.get("released")
    return (
        ""
        if best is None
        else f"NoPE without a causal mask does not see the order of tokens: at most {best:.1f} % is possible"
    )


def _reverse(effects: ConfoundEffects) -> str:
    """How much of the difference the removal of one switch undoes; empty with fewer than two seeds."""
    if not effects.removed or len((part := _missed(effects)).values) < 2:
        return ""
    beyond = part.prediction.weigh(_array(part.values)).interval
    name, _, _ = part.note.partition(";")
    undone, whole = (
        abs(float(np.mean([values[seed] for seed in part.values])))
        for values in (effects.removed[name], effects.whole)
    )
    side, sign = ("beyond", 1) if beyond.estimate >= 0 else ("short of", -1)
    low, high = sorted((sign * beyond.low, sign * beyond.high))
    return (
        f"conversely, removing {name} alone from `released` undoes {undone:.1f} of {whole:.1f} points, "
        f"{sign * beyond.estimate:.1f} [{low:.1f} to {high:.1f}] {side} half"
    )


def _missed(effects: ConfoundEffects) -> Part:
    """Whether the difference is half undone without some switch."""
    return _half(effects, effects.removed, MISSED, WITHOUT)


def _half(effects: ConfoundEffects, by_switch: Mapping[str, Values], words: str, setting: str = "") -> Part:
    """Whether one of some switches accounts for half of the difference.

    Args:
        effects: Of one quantity.
        by_switch: What each switch changes, by seed.
        words: What is compared.
        setting: How the name of the setting begins that a switch is thrown in.
    """
    sign = float(np.sign(effects.mean))
    excess = {name: _excess(one, effects.whole, sign) for name, one in by_switch.items()}
    name = largest(excess)
    return Part(
        quantity=f"{effects.subject}: {words}",
        prediction=AtLeast.of_some(0.0, name, excess),
        values=excess[name],
        untrained=effects.untrained(f"{setting}{name}"),
        note=f"{name}; the difference is {effects.mean:+.1f} points{_without_runs(by_switch)}",
    )


def _without_runs(by_switch: Mapping[str, Values]) -> str:
    """The switches with fewer runs than a verdict takes."""
    names = [name for name, values in by_switch.items() if len(values) < MIN_SEEDS]
    return f"; not run, or not on {MIN_SEEDS} seeds: {', '.join(names)}" if names else ""


def _undecided(effects: ConfoundEffects) -> Part:
    """A difference of which it is not known whether it is worth explaining."""
    sign = float(np.sign(effects.mean)) or 1.0
    return Part(
        quantity=f"{effects.subject}: size of the difference",
        prediction=AtLeast(DIFFERENCE),
        values={seed: sign * value for seed, value in effects.whole.items()},
        untrained=effects.untrained(),
        note="not known to be worth explaining, so that no switch is judged",
    )


def _excess(single: Values, whole: Values, sign: float) -> Values:
    return {seed: sign * (single[seed] - HALF * whole[seed]) for seed in single if seed in whole}


def _array(values: Values) -> np.ndarray:
    return np.array(list(values.values()))
