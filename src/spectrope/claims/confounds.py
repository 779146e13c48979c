"""Claim 11: which single confound accounts for what the public code shows?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from spectrope.claims.arms import NAMES
from spectrope.claims.base import Claim
from spectrope.claims.predictions import AtLeast
from spectrope.claims.quantities import Quantity, gap, held_out, shallow
from spectrope.claims.seen import Seen, Values, difference
from spectrope.claims.verdict import Part
from spectrope.sweeps.job import Job
from spectrope.training.conditions import SWITCHES
from spectrope.training.config import Experiment
from spectrope.training.scales import experiment

PROTOCOLS = {"R9": "value-bias-unrestored", "R10": "all"}  # Switches of the ablation, as tables name them.
RELEASED = "value-bias-unrestored-all"
DIFFERENCE = 5.0  # Points between `released` and `controlled` that are worth explaining.
HALF = 0.5  # Share of the difference that one switch must account for.


@dataclass(frozen=True)
class Effects:
    """What each switch alone does to one quantity of one encoding, by seed.

    Args:
        subject: Such as "RoPE, held-out accuracy".
        whole: `released` minus `controlled`.
        single: One switch alone minus `controlled`, by the switch's name.
    """

    subject: str
    whole: Values
    single: dict[str, Values]


class Confounds(Claim, name="confounds"):
    """One switch at a time, from `controlled` on."""

    number = 11
    title = "One confound alone accounts for each difference between `released` and `controlled`"
    statement = (
        "The public code differs from the text in switches R1 to R14. Where its results differ from those "
        "without any of them, one switch alone makes most of the difference."
    )
    source = "The released code, read against Secs. 3 to 5; not a statement of the authors"
    prediction = (
        "for each encoding whose held-out accuracy on Task 1, or RoPE whose gap, differs by 5 points or "
        "more, some switch r has effect(r) ≥ ½ (released − controlled)"
    )
    test = (
        "Each switch that changes an encoding's run is thrown alone; effects are paired by seed. The switch "
        "with the largest effect is tested by Student's t against half of the difference, at a level "
        "corrected for the number of switches (Bonferroni). R9 and R10 concern the ablation alone, and act "
        "on the same runs."
    )
    paper = "none: the authors do not discuss these differences"
    conditions = ("released",)
    unplanned = "It is about the difference between `released` and `controlled`, so it has one verdict."

    def arms(self, condition: str, scale: str, seed: int) -> dict[str, Experiment]:
        return {
            f"{name}/{setting}": one for name in NAMES for setting, one in switched(name, scale, seed).items()
        }

    def jobs(self, condition: str, scale: str, seeds: Iterable[int]) -> list[Job]:
        found = []
        for seed in seeds:
            for arm, one in self.arms(condition, scale, seed).items():
                extra = {"rope/controlled": PROTOCOLS.values(), "rope/released": (RELEASED,)}.get(arm, ())
                found.append(Job(one, (*self.tables, *(f"ablation-{name}" for name in extra))))
        return found

    def parts(self, seen: Seen) -> Iterator[Part]:
        for effects in self.effects(seen):
            part = _strongest(effects)
            if part is not None:
                yield part

    def effects(self, seen: Seen) -> list[Effects]:
        """What each switch does to each quantity that the claim looks at."""
        found = [_effects(seen, name, held_out) for name in NAMES]
        return [*found, _gap_effects(seen)]


def switched(encoding: str, scale: str, seed: int) -> dict[str, Experiment]:
    """Task 1 under `controlled`, under `released`, and under each switch alone that changes something."""

    def under(condition: str) -> Experiment:
        return experiment("distance", encoding, scale=scale, condition=condition, seed=seed)

    base = under("controlled")
    alone = {name: switch(base) for name, switch in SWITCHES.items()}
    changed = {name: replace(one, condition=name) for name, one in alone.items() if one != base}
    return {"controlled": base, "released": under("released"), **changed}


def _effects(seen: Seen, encoding: str, quantity: Quantity) -> Effects:
    base = seen.values(f"{encoding}/controlled", quantity)
    settings = [arm.split("/")[1] for arm in seen.arms if arm.startswith(f"{encoding}/")]
    moved = {name: difference(seen.values(f"{encoding}/{name}", quantity), base) for name in settings}
    whole = moved.pop("released", {})
    moved.pop("controlled", None)
    return Effects(f"{NAMES[encoding]}, held-out accuracy", whole, moved)


def _gap_effects(seen: Seen) -> Effects:
    """The same for RoPE's gap in shallow layers; here the ablation's own switches count too."""
    layers = shallow(seen.n_layers)
    found = _effects(seen, "rope", gap(layers))
    base = seen.values("rope/controlled", gap(layers))
    for name, table in PROTOCOLS.items():
        found.single[name] = difference(seen.values("rope/controlled", gap(layers, f"deposit-{table}")), base)
    whole = difference(seen.values("rope/released", gap(layers, f"deposit-{RELEASED}")), base)
    return Effects(f"{NAMES['rope']}, gap in shallow layers", whole, found.single)


def _strongest(effects: Effects) -> Part | None:
    """Whether the strongest switch makes half of the difference; None if that is not worth explaining."""
    mean = float(np.mean(list(effects.whole.values()))) if effects.whole else None
    if mean is not None and abs(mean) < DIFFERENCE:
        return None
    sign = 1.0 if mean is None or mean > 0 else -1.0
    excess = {name: _excess(values, effects.whole, sign) for name, values in effects.single.items()}
    known = {name: values for name, values in excess.items() if values}
    if not known:
        return Part(quantity=f"{effects.subject}: strongest switch", prediction=AtLeast(0.0), values={})
    name = max(known, key=lambda one: float(np.mean(list(known[one].values()))))
    return Part(
        quantity=f"{effects.subject}: {name} alone minus half of the difference",
        prediction=AtLeast(0.0, tried=len(known)),
        values=known[name],
        note="" if mean is None else f"the difference is {mean:+.1f} points",
    )


def _excess(single: Values, whole: Values, sign: float) -> Values:
    return {seed: sign * (single[seed] - HALF * whole[seed]) for seed in single if seed in whole}
