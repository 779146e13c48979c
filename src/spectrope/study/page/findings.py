"""Summary sentences, each computed from rows, and omitted if the rows are missing."""

from collections.abc import Collection, Iterable, Iterator
from math import floor
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy import stats

from spectrope.lab import experiment
from spectrope.stats import MIN_SEEDS, Interval, t_interval
from spectrope.study.arms import FITTED, NAMES, NAMES_AND_MLA, RIVALS, TASKS, length_only, untrained
from spectrope.study.claim import Claim
from spectrope.study.claims.confounds import Confounds
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.latent_attention import TABLE_1, LatentAttention
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.claims.tuned import DistanceOrderingTuned
from spectrope.study.conditions import RELEASED, SWITCHES
from spectrope.study.page.deposits import wide
from spectrope.study.page.grokked import grokked
from spectrope.study.predictions import Values, nearest
from spectrope.study.quantities import (
    ABLATION,
    Quantity,
    Seen,
    deposit,
    errors,
    fitted,
    gap,
    held_out,
    hits,
    log_odds,
    shallow,
    time_to_learn,
)
from spectrope.study.rows import StudyRows
from spectrope.study.study import Study

LEARNED = 90.0  # Percent.
LEVEL = 0.05  # Of p-values that a sentence is built on.


def findings(study: Study, rows: StudyRows) -> list[str]:
    """The sentences, the strongest first."""
    # Deposits are counted over all unselected seeds; a repetition on some of these is not independent.
    counted = [] if study.is_repeated else [_dropout]
    tellers = [
        _deposits_by_condition,
        _beside_table_1,
        _causal_mask,
        _rope_first,
        *counted,
        _padding,
        grokked,
    ]
    return [sentence for tell in tellers for sentence in tell(study, rows)]


def _deposits_by_condition(study: Study, rows: StudyRows) -> Iterator[str]:
    """Runs with a deposit at a depth that can locate one."""
    claim = SingleHead()
    if claim.untestable(study.scale):
        return
    seen = {condition: _seen(claim, study, rows, condition) for condition in study.conditions}
    exact = deposit(None, ABLATION)
    with_rope = {name: one for name, one in seen.items() if _values(one, "distance/rope", exact)}
    if not with_rope:
        return
    short = ", ".join(f"`{name}` {_count(one, ours=True)}" for name, one in with_rope.items())
    yield (
        f"**In models of {study.n_layers} layers, with dropout as in the paper, runs of RoPE with a deposit "
        f"on Task 1, in any layer, by the exact ablation: {short}.** "
        f"{' '.join(_told_deposits(*one) for one in with_rope.items())}"
    )


def _told_deposits(condition: str, seen: Seen) -> str:
    """Where RoPE's deposits are, how large its gaps get, and what other encodings that learned the task have.

    Under `released` the authors' ablation decides, and the exact one is told beside it.
    """
    half = shallow(seen.n_layers)
    theirs = condition == RELEASED
    who = "RoPE, which has an absolute term besides (R3)," if theirs else "RoPE"
    told = f"Under `{condition}` {who} has one in the first half of the layers in "
    told += f"{_count(seen, half, ours=True)} runs"
    if theirs:
        told += (
            "; by the authors' ablation (R9, R10), by which claim 3 is judged there, it has one in "
            f"{_count(seen, half)}, and in any layer in {_count(seen)}"
        )
    return f"{told}. {_told_gaps(seen, theirs=theirs)}"


def _told_gaps(seen: Seen, *, theirs: bool) -> str:
    """The largest gap of each run, over the encodings that learned the task."""
    learned_gaps = {
        name: _values(seen, f"distance/{name}", gap(), only_learned=True).values() for name in NAMES
    }
    told = ", ".join(
        f"{NAMES[name]} {_range(gaps)} points, n = {len(gaps)}" for name, gaps in learned_gaps.items() if gaps
    )
    by = " by the authors' ablation" if theirs else ""
    if not told:
        return "None of these runs learned the task."
    return (
        f"The largest gap between the two most important heads of a layer{by}, over runs that learned the "
        f"task: {told}."
    )


def _range(values: Collection[float]) -> str:
    """The least and the largest value, once where they print alike."""
    least, largest = (f"{value:.1f}" for value in (min(values), max(values)))
    return least if least == largest else f"{least} to {largest}"


def _count(seen: Seen, layers: Iterable[int] | None = None, *, ours: bool = False) -> str:
    """Runs of RoPE with a deposit in some layers, of all, by the exact ablation or by the condition's own."""
    found = _values(seen, "distance/rope", deposit(layers, ABLATION if ours else None))
    return f"{sum(found.values()):.0f} of {len(found)}"


def _beside_table_1(study: Study, rows: StudyRows) -> Iterator[str]:
    """Accuracies on Task 1 at the depth of Table 1, beside it."""
    if SingleHead().untestable(study.scale):
        return
    printed = TABLE_1["distance"]
    told = []
    for condition in study.conditions:
        seen = _seen(LatentAttention(), study, rows, condition)
        means = {
            name: _mean(values)
            for name in printed
            if len(values := _values(seen, f"distance/{name}", held_out)) >= MIN_SEEDS
        }
        if means:
            scores = ", ".join(f"{NAMES_AND_MLA[name]} {mean:.1f} %" for name, mean in means.items())
            told.append(f"`{condition}` {scores}")
    if told:
        theirs = ", ".join(f"{NAMES_AND_MLA[name]} {value} %" for name, value in printed.items())
        here = experiment("distance", "rope", scale=study.scale).training
        yield (
            f"**Held-out accuracy on Task 1: {'; '.join(told)}.** Table 1 has {theirs}, after 100 epochs at "
            f"a learning rate of 0.0001; these runs have {here.epochs} at {here.learning_rate:g}."
        )


def _causal_mask(study: Study, rows: StudyRows) -> Iterator[str]:
    """What one switch does to NoPE on Task 1."""
    seen = _seen(Confounds(), study, rows, "released")
    with_mask, without = (_values(seen, f"distance/nope/{name}", held_out) for name in ("controlled", "R1"))
    if len(both := with_mask.keys() & without.keys()) > 1:
        change = t_interval(np.array([without[seed] - with_mask[seed] for seed in sorted(both)]))
        others = {
            name: _mean(values)
            for name in SWITCHES
            if name != "R1" and len(values := _values(seen, f"distance/nope/{name}", held_out)) >= MIN_SEEDS
        }
        tried = ", ".join(others)
        least = floor(10 * min(others.values(), default=0.0)) / 10
        rest = f" Of the others tried alone there ({tried}) none brings it below {least:.1f} %."
        yield (
            "**Without the causal mask NoPE fails on Task 1.** Under `controlled`, a decoder without "
            f"positional encoding reaches {_mean(with_mask):.1f} %, and without the mask (R1 alone) "
            f"{_mean(without):.1f} %: {change.estimate:.1f} [{change.low:.1f} to {change.high:.1f}] points, "
            f"{len(both)} seeds.{_blind(study)}{_unfinished(seen, ('controlled', 'R1'))}"
            f"{rest if others else ''}"
            f"{_masked_again(seen)}"
            f"{_as_described(study, rows, ('nope',), 'the mask too')}"
        )


def _blind(study: Study) -> str:
    """What a model can reach that does not see the order of words, here and at the paper's sizes."""
    here, there = (_by_length(scale) for scale in (study.scale, "paper"))
    return (
        " Without mask and encoding the model does not see the order of the words: from the length of a "
        f"sequence, the best possible accuracy is {here:.1f} %, and {there:.1f} % at the paper's "
        f"sizes, where Table 1 has {TABLE_1['distance']['nope']} %."
    )


def _by_length(scale: str) -> float:
    best = length_only(experiment("distance", "nope", scale=scale))
    assert best is not None
    return best


def _unfinished(seen: Seen, settings: Iterable[str]) -> str:
    """Which of some runs of NoPE did not finish training; empty if all did."""
    arms = untrained(seen, [f"distance/nope/{one}" for one in settings])
    return f" Training accuracy: {arms}." if arms else ""


def _masked_again(seen: Seen) -> str:
    """What the mask alone restores under the public code; empty where no run tells."""
    end, again = (_values(seen, f"distance/nope/{name}", held_out) for name in ("released", "without R1"))
    if len(both := end.keys() & again.keys()) < 2:
        return ""
    change = t_interval(np.array([again[seed] - end[seed] for seed in sorted(both)]))
    return (
        f" With all other switches of the public code left as they are, the mask moves it from "
        f"{_mean(end):.1f} to {_mean(again):.1f} %: {change.estimate:+.1f} [{change.low:+.1f} to "
        f"{change.high:+.1f}] points, {len(both)} seeds."
    )


def _as_described(study: Study, rows: StudyRows, names: Iterable[str], shared: str) -> str:
    """What encodings reach under the paper's text, which shares a setting; empty where no run tells."""
    seen = _seen(DistanceOrdering(), study, rows, "described")
    means = {name: _mean(values) for name in names if (values := _values(seen, name, held_out))}
    told = ", ".join(f"{NAMES[name]} {mean:.1f} %" for name, mean in means.items())
    return f" Under `described`, which has {shared} and differs in other ways: {told}." if told else ""


def _rope_first(study: Study, rows: StudyRows) -> Iterator[str]:
    """RoPE against the nearest other encoding in points and errors, at one rate and at chosen rates."""
    seen = _seen(DistanceOrdering(), study, rows)
    plain = _lead(seen)
    if plain is None:
        return
    speed = {name: _mean(_values(seen, name, time_to_learn)) for name in NAMES}
    later = min(speed[rival] for rival in RIVALS)
    if plain.odds.low <= 0 or speed["rope"] >= later:
        return
    sentence = (
        "**Among the encodings of claim 1, RoPE is first and fastest on Task 1 under `controlled`.** It is "
        f"{plain.points:.1f} points ahead of {NAMES[plain.rival]}, the nearest in log odds: "
        f"{_errors(seen, plain.rival)}. It reaches 90 % of what is possible by "
        f"{100 * speed['rope']:.0f} % of the steps, the next encoding by "
        f"{100 * later:.0f} %, as far as evaluations after each epoch show (a run that never gets there "
        "counts as if it did at the evaluation after its end)."
    )
    at_best = _seen(DistanceOrderingTuned(rows), study, rows)
    if (tuned := _lead(at_best)) is not None:
        sentence += (
            f" With a learning rate of its own for each encoding, the nearest is {NAMES[tuned.rival]}, "
            f"{tuned.points:.1f} points behind: {_errors(at_best, tuned.rival)}."
        )
    yield sentence + "".join(_with_confounds(study, rows))


def _with_confounds(study: Study, rows: StudyRows) -> Iterator[str]:
    """The same lead under the text and the public code, where its rows are there."""
    for condition in ("described", "released"):
        seen = _seen(DistanceOrdering(), study, rows, condition)
        lead = _lead(seen)
        if lead is None or lead.n < MIN_SEEDS:
            continue
        trained = _mean(_values(seen, "rope", fitted))
        unfinished = (
            f", where RoPE answers only {trained:.1f} % of its training examples," if trained < FITTED else ""
        )
        ahead, behind = lead.odds.low > 0, lead.odds.high < 0
        said = "leads" if ahead else "falls behind" if behind else "is not shown to lead"
        yield (
            f" Under `{condition}`{unfinished} it {said}: {lead.points:+.1f} points against "
            f"{NAMES[lead.rival]}, the strongest rival in log odds, {lead.odds.estimate:+.2f} "
            f"[{lead.odds.low:+.2f} to {lead.odds.high:+.2f}]."
        )


def _errors(seen: Seen, rival: str) -> str:
    """Errors of RoPE and of another encoding over all seeds."""
    wrong = {name: sum(_values(seen, name, errors).values()) for name in ("rope", rival)}
    asked = wrong["rope"] + sum(_values(seen, "rope", hits).values())
    return f"RoPE errs on {wrong['rope']:,.0f} of {asked:,.0f} answers, {NAMES[rival]} on {wrong[rival]:,.0f}"


def _dropout(study: Study, rows: StudyRows) -> Iterator[str]:
    """Deposits of RoPE with and without dropout, and of each encoding at the scale's rate."""
    pairs = wide(Dropout(), study, rows)
    deep, half = (_lost(pairs, depth) for depth in (2 / 3, 1 / 2))
    if not deep.n:
        return
    seen = wide(SingleHead(), study, rows)
    counts = {
        name: (sum(by_seed.values()), len(by_seed))
        for name in NAMES
        if (by_seed := _values(seen, f"distance/{name}", deposit()))
    }
    shares = sorted(counts.items(), key=lambda item: -item[1][0] / item[1][1])
    deposits_by_name = ", ".join(f"{NAMES[name]} {some:.0f} of {of}" for name, (some, of) in shares)
    shown = deep.lost > deep.gained and deep.p <= LEVEL
    words = "fewer" if shown else "not shown to be fewer"
    yield (
        f"**In models of {pairs.n_layers} layers RoPE's deposits under `controlled` are {words} with "
        "dropout** (exploratory: claim 4 below has the verdict, or the reason why there is none). In the "
        f"first two thirds of the layers RoPE has a deposit {deep.words()}. In the first half, by which "
        f"claims 3 and 4 are judged, it has one {half.words()}. At 0.1, runs with a deposit in any layer: "
        f"{deposits_by_name}.{_without_dropout(pairs)}"
    )


def _without_dropout(pairs: Seen) -> str:
    """Deposits in any layer without dropout; empty where ALiBi has no such run."""
    counts = {name: _values(pairs, f"{name}/0", deposit()) for name in ("rope", "alibi")}
    if not counts["alibi"]:
        return ""
    told = ", ".join(f"{NAMES[name]} {sum(one.values()):.0f} of {len(one)}" for name, one in counts.items())
    return f" Without dropout: {told}."


class Lost(NamedTuple):
    """Deposits of RoPE without dropout and with it, on the same seeds.

    Args:
        without: Runs with one, without dropout.
        with_it: Runs with one at 0.1.
        lost: Seeds that have one without dropout alone.
        gained: Seeds that have one with it alone.
        n: Seeds.
    """

    without: int
    with_it: int
    lost: int
    gained: int
    n: int

    @property
    def p(self) -> float:
        """Of McNemar's exact test, two-sided."""
        changed = self.lost + self.gained
        return float(stats.binomtest(self.lost, changed).pvalue) if changed else 1.0

    def words(self) -> str:
        """Counts and p-value, to follow "a deposit"."""
        return (
            f"in {self.without} of {self.n} runs without dropout and in {self.with_it} of the same seeds at "
            f"0.1: {self.lost} lost, {self.gained} gained (exact McNemar p = {self.p:.2g})"
        )


def _lost(pairs: Seen, depth: float) -> Lost:
    """Deposits in the first part of the depth."""
    layers = tuple(shallow(pairs.n_layers, depth))
    without, with_it = (_values(pairs, f"rope/{rate}", deposit(layers)) for rate in ("0", "0.1"))
    both = without.keys() & with_it.keys()
    return Lost(
        round(sum(without[seed] for seed in both)),
        round(sum(with_it[seed] for seed in both)),
        sum(without[seed] > with_it[seed] for seed in both),
        sum(without[seed] < with_it[seed] for seed in both),
        len(both),
    )


def _padding(study: Study, rows: StudyRows) -> Iterator[str]:
    """What visible padding does on Task 1."""
    seen = _seen(Confounds(), study, rows, "released")
    ends = {
        name: tuple(_values(seen, f"distance/{name}/{at}", held_out) for at in ("controlled", "R7"))
        for name in NAMES
    }
    means = {name: (_mean(a), _mean(b)) for name, (a, b) in ends.items() if a and b}
    if means and all(after >= LEARNED for _, after in means.values()):
        least = min(after for _, after in means.values())
        ranges = ", ".join(f"{NAMES[name]} {a:.1f} to {b:.1f} %" for name, (a, b) in means.items())
        yield (
            f"**Padding left visible, and all else as under `controlled`, brings each of {len(means)} "
            f"encodings to {least:.1f} % or more on {TASKS['distance']}.** R7 alone: {ranges}."
            f"{_not_run(NAMES.keys() - means.keys())}"
            f"{_as_described(study, rows, NAMES, 'visible padding too')}"
        )


def _not_run(names: Collection[str]) -> str:
    return f" Not run with R7 alone: {', '.join(NAMES[name] for name in sorted(names))}." if names else ""


class Lead(NamedTuple):
    """Lead of RoPE over the encoding with the closest mean.

    Args:
        rival: That encoding.
        points: Mean difference of held-out accuracies.
        odds: Of the log odds of a right held-out answer, paired by seed.
        n: Seeds that all encodings have.
    """

    rival: str
    points: float
    odds: Interval
    n: int


def _lead(seen: Seen) -> Lead | None:
    """None with fewer than two seeds that all encodings have."""
    seeds = seen.complete(("rope", *RIVALS), log_odds)
    if len(seeds) < 2:
        return None
    margins = {
        rival: {seed: value for seed, value in seen.minus("rope", rival, log_odds).items() if seed in seeds}
        for rival in RIVALS
    }
    rival = nearest(margins)
    points = [value for seed, value in seen.minus("rope", rival, held_out).items() if seed in seeds]
    return Lead(rival, fmean(points), t_interval(np.array(list(margins[rival].values()))), len(seeds))


def _seen(claim: Claim, study: Study, rows: StudyRows, condition: str = "controlled") -> Seen:
    return claim.see(rows, condition, study.scale, study.seeds_of(claim, condition))


def _values(seen: Seen, arm: str, quantity: Quantity, *, only_learned: bool = False) -> Values:
    return seen.values(arm, quantity, only_learned=only_learned)


def _mean(values: Values) -> float:
    return fmean(values.values())
