"""What the rows say, in sentences: each computed from rows, and left out where these are not there."""

from collections.abc import Iterable, Iterator
from math import exp
from statistics import fmean

import numpy as np
from scipy import stats

from spectrope.stats import MIN_SEEDS, t_interval
from spectrope.study.arms import NAMES, RIVALS, TASKS
from spectrope.study.claim import Claim
from spectrope.study.claims.confounds import Confounds
from spectrope.study.claims.distance_ordering import DistanceOrdering
from spectrope.study.claims.dropout import Dropout
from spectrope.study.claims.single_head import SingleHead
from spectrope.study.claims.tuned import DistanceOrderingTuned
from spectrope.study.conditions import SWITCHES
from spectrope.study.page.deposits import wide
from spectrope.study.predictions import Values
from spectrope.study.quantities import (
    Quantity,
    Seen,
    deposit,
    errors,
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
    tellers = (_causal_mask, _rope_first, _dropout, _padding)
    return [sentence for tell in tellers for sentence in tell(study, rows)]


def _causal_mask(study: Study, rows: StudyRows) -> Iterator[str]:
    """What one switch does to NoPE on Task 1."""
    seen = _seen(Confounds(), study, rows, "released")
    with_mask, without = (_values(seen, f"distance/nope/{name}", held_out) for name in ("controlled", "R1"))
    if len(both := with_mask.keys() & without.keys()) > 1:
        change = t_interval(np.array([without[seed] - with_mask[seed] for seed in sorted(both)]))
        others = {
            name: _mean(values)
            for name in SWITCHES
            if name != "R1" and (values := _values(seen, f"distance/nope/{name}", held_out))
        }
        tried = ", ".join(others)
        rest = (
            f" Of the others tried alone there ({tried}) none brings it below {min(others.values()):.1f} %."
        )
        yield (
            "**Without the causal mask NoPE fails on Task 1.** Under `controlled`, a decoder without "
            f"positional encoding reaches {_mean(with_mask):.1f} %, and without the mask (R1 alone) "
            f"{_mean(without):.1f} %: {change.estimate:.1f} [{change.low:.1f} to {change.high:.1f}] points, "
            f"{len(both)} seeds.{rest if others else ''}{_masked_again(seen)}"
            f"{_as_described(study, rows, ('nope',), 'the mask too')}"
        )


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
    """RoPE against the runner-up in points and errors: without confounds, at best rates, with confounds."""
    seen = _seen(DistanceOrdering(), study, rows)
    plain = _margins(seen)
    if plain is None:
        return
    speed = {name: _mean(_values(seen, name, time_to_learn)) for name in NAMES}
    later = min(speed[rival] for rival in RIVALS)
    if plain[1] <= 0 or speed["rope"] >= later:
        return
    sentence = (
        f"**RoPE is first and fastest on Task 1 under `controlled`.** It leads the runner-up of each seed by "
        f"{plain[0]:.1f} points: {_errors(seen)}. It reaches 90 % of what is possible after "
        f"{100 * speed['rope']:.0f} % of the steps, the next one after {100 * later:.0f} % (a run that never "
        "gets there counts with all of them)."
    )
    at_best = _seen(DistanceOrderingTuned(rows), study, rows)
    if tuned := _margins(at_best):
        sentence += (
            f" At learning rates of their own the margin is {tuned[0]:.1f} points: {_errors(at_best)}. With "
            "half an error added to each run, the odds of an error differ by a factor of "
            f"{_factor(tuned[1])}, which is {_factor(plain[1])} at one rate for all."
        )
    yield sentence + "".join(_with_confounds(study, rows))


def _with_confounds(study: Study, rows: StudyRows) -> Iterator[str]:
    """The same lead under the text and the public code, where its rows are there."""
    for condition in ("described", "released"):
        seen = _seen(DistanceOrdering(), study, rows, condition)
        margins = _lead(seen, log_odds)
        if len(margins) < MIN_SEEDS:
            continue
        lead, points = t_interval(np.array(list(margins.values()))), _mean(_lead(seen, held_out))
        said = "leads" if lead.low > 0 else "falls behind" if lead.high < 0 else "is not shown to lead"
        yield (
            f" Under `{condition}` it {said}: {points:.1f} points against the best other encoding of each "
            f"seed, {lead.estimate:.2f} [{lead.low:.2f} to {lead.high:.2f}] log odds."
        )


def _errors(seen: Seen) -> str:
    """Errors of RoPE and of the encoding that errs least after it, over all seeds."""
    wrong = {name: sum(_values(seen, name, errors).values()) for name in NAMES}
    asked = sum(_values(seen, "rope", errors).values()) + sum(_values(seen, "rope", hits).values())
    rival = min(RIVALS, key=lambda name: wrong[name])
    own = f"RoPE errs on {wrong['rope']:,.0f} of {asked:,.0f} answers"
    return f"{own}, {NAMES[rival]}, the next, on {wrong[rival]:,.0f}"


def _dropout(study: Study, rows: StudyRows) -> Iterator[str]:
    """Deposits of RoPE with and without dropout, and of each encoding at the scale's rate."""
    pairs = wide(Dropout(), study, rows)
    n, depth = pairs.n_layers, shallow(pairs.n_layers, 2 / 3)
    without, with_it = (_values(pairs, f"rope/{rate}", deposit(tuple(depth))) for rate in ("0", "0.1"))
    if not (both := without.keys() & with_it.keys()):
        return
    lost = sum(without[seed] > with_it[seed] for seed in both)
    gained = sum(without[seed] < with_it[seed] for seed in both)
    p = stats.binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
    seen = wide(SingleHead(), study, rows)
    counts = {
        name: (sum(by_seed.values()), len(by_seed))
        for name in NAMES
        if (by_seed := _values(seen, f"distance/{name}", deposit()))
    }
    shares = sorted(counts.items(), key=lambda item: -item[1][0] / item[1][1])
    deposits_by_name = ", ".join(f"{NAMES[name]} {some:.0f} of {of}" for name, (some, of) in shares)
    decides = "decides" if lost > gained and p <= LEVEL else "is not shown to decide"
    yield (
        f"**At this scale dropout {decides} whether RoPE deposits** (exploratory, in models of {n} layers, "
        f"until `mid` has spoken). In the first two thirds of the layers RoPE has a deposit in "
        f"{sum(without[s] for s in both):.0f} of {len(both)} runs without dropout and in "
        f"{sum(with_it[s] for s in both):.0f} of the same seeds at 0.1: {lost} lost, {gained} gained (exact "
        f"McNemar p = {p:.2g}). At 0.1, runs with a deposit in any layer: {deposits_by_name}."
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
        ranges = ", ".join(f"{NAMES[name]} {a:.1f} to {b:.1f} %" for name, (a, b) in means.items())
        yield (
            f"**Padding left visible, and all else as under `controlled`, lets every encoding that was tried "
            f"learn {TASKS['distance']}.** R7 alone: {ranges}."
            f"{_as_described(study, rows, NAMES, 'visible padding too')}"
        )


def _margins(seen: Seen) -> tuple[float, float] | None:
    """RoPE's mean lead over the best other encoding of each seed, in points and in log odds."""
    leads = [_lead(seen, quantity) for quantity in (held_out, log_odds)]
    return (_mean(leads[0]), _mean(leads[1])) if all(leads) else None


def _lead(seen: Seen, quantity: Quantity) -> Values:
    gaps = [seen.minus("rope", rival, quantity) for rival in RIVALS]
    return {seed: min(gap[seed] for gap in gaps) for seed in set.intersection(*map(set, gaps))}


def _seen(claim: Claim, study: Study, rows: StudyRows, condition: str = "controlled") -> Seen:
    return claim.see(rows, condition, study.scale, study.seeds_of(claim))


def _values(seen: Seen, arm: str, quantity: Quantity) -> Values:
    return seen.values(arm, quantity)


def _factor(margin: float) -> str:
    return f"{exp(margin):.0f}"


def _mean(values: Values) -> float:
    return fmean(values.values())
