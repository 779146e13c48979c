"""The rows of a claim, arm by arm and seed by seed."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import isfinite

from spectrope.lab.experiments import AnyExperiment
from spectrope.study.predictions import Values
from spectrope.study.quantities import Quantity, learned
from spectrope.study.rows import Row, Rows


@dataclass(frozen=True)
class Seen:
    """What there is of the runs that a claim asks for.

    Args:
        arms: Names of the arms, in order.
        rows: Rows by arm and seed.
        left_out: A line for each row that exists but does not count.
    """

    arms: tuple[str, ...]
    rows: Mapping[tuple[str, int], Row]
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Rows,
        arms: Mapping[int, Mapping[str, AnyExperiment]],
        lost: tuple[str, ...] = (),
        precision: str | None = None,
    ) -> "Seen":
        """Look up each arm of each seed; rows in another precision are left out, by name.

        Args:
            rows: All rows that there are.
            arms: The claim's arms by seed.
            lost: A line for each of their rows that could not be read.
            precision: The one that counts; None takes that of most.
        """
        names = tuple(dict.fromkeys(name for group in arms.values() for name in group))
        found = {
            (name, seed): row
            for seed, group in arms.items()
            for name, experiment in group.items()
            if (row := rows.get(experiment)) is not None
        }
        if precision is None and found:
            precision = Counter(row.facts["precision"] for row in found.values()).most_common(1)[0][0]
        odd = {key: row for key, row in found.items() if row.facts["precision"] != precision}
        left_out = tuple(
            f"{name}, seed {seed} (run {row.run}), computed in {row.facts['precision']}, not {precision}"
            for (name, seed), row in odd.items()
        )
        kept = {key: row for key, row in found.items() if key not in odd}
        return cls(names, kept, (*lost, *left_out))

    @property
    def precision(self) -> str | None:
        """That of its rows; None if there are none."""
        return next((row.facts["precision"] for row in self.rows.values()), None)

    @property
    def n_layers(self) -> int:
        """Depth of the models, or 0 if there are none."""
        models = [getattr(row.experiment, "model", None) for row in self.rows.values()]
        return max((getattr(model, "n_layers", 0) for model in models), default=0)

    def values(self, arm: str, quantity: Quantity, *, only_learned: bool = False) -> Values:
        """A quantity of one arm, by seed, where it is defined."""
        own = {seed: row for (name, seed), row in self.rows.items() if name == arm}
        read = {seed: quantity(row) for seed, row in own.items() if learned(row) or not only_learned}
        return {s: value for s, value in sorted(read.items()) if value is not None and isfinite(value)}

    def complete(self, arms: Collection[str], *quantities: Quantity) -> set[int]:
        """Seeds of which every one of some arms has every one of some quantities."""
        found = [self.values(arm, quantity).keys() for arm in arms for quantity in quantities]
        return set[int].intersection(*map(set, found)) if found else set()

    def minus(self, first: str, second: str, quantity: Quantity, *, only_learned: bool = False) -> Values:
        """A quantity of the first arm minus that of the second, by seed, where both have it."""
        one, other = (self.values(arm, quantity, only_learned=only_learned) for arm in (first, second))
        return difference(one, other)


def difference(first: Values, second: Values) -> Values:
    """First minus second, where both are defined."""
    return {seed: value - second[seed] for seed, value in first.items() if seed in second}
