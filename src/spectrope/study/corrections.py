"""Errors of earlier editions of the conditions, so that their rows can be withdrawn by name."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from spectrope.attention import Latent
from spectrope.lab import AnyExperiment, Experiment

RunsById = dict[str, AnyExperiment]  # By id.


def is_latent(experiment: Experiment) -> bool:
    """Whether its model has latent attention."""
    return isinstance(experiment.model.attention, Latent.Config)


@dataclass(frozen=True)
class Correction:
    """A correction of a condition: runs of earlier editions differed from what the condition is meant to be.

    Args:
        condition: Its name, or that of a switch thrown alone.
        latent: Whether it concerns latent attention, or all others.
        edition: The first correct edition.
        reason: What was wrong before, in one line.
    """

    condition: str
    latent: bool
    edition: int
    reason: str

    @property
    def name(self) -> str:
        """Such as "released (MLA)"."""
        return f"{self.condition} ({'MLA' if self.latent else 'all but MLA'})"

    def concerns(self, experiment: Experiment) -> bool:
        """Whether an experiment is of this condition, in any edition."""
        return experiment.condition == self.condition and is_latent(experiment) == self.latent


_TRAINING = "AdamW's betas were (0.9, 0.98), not the printed (0.98, 0.9) (R15)"
_SITES = "dropout also acted between the feed-forward layers (R16)"
_LATENT_SITES = (
    "dropout also acted on attention, and twice on the feed-forward output (R16); loss and accuracy left "
    "label 0 out (R13); the output projection had a bias (R17)"
)

CORRECTIONS = (
    Correction("described", latent=False, edition=2, reason=f"{_TRAINING}; {_SITES}"),
    Correction(
        "described",
        latent=True,
        edition=2,
        reason=f"{_TRAINING}; {_LATENT_SITES}; a norm followed the last layer, which the text does not have "
        "(R7)",
    ),
    Correction("released", latent=False, edition=2, reason=f"{_TRAINING}; {_SITES}"),
    Correction(
        "released",
        latent=True,
        edition=2,
        reason=f"{_TRAINING}; {_LATENT_SITES}; keys and values came from the embeddings (R2); latents had "
        "norms, and learned positions did not start at zero (R17)",
    ),
    Correction(
        "R2", latent=True, edition=2, reason="the public code's MLA takes keys from hidden states: no switch"
    ),
    Correction("R13", latent=True, edition=2, reason="loss and accuracy left label 0 out, which MLA's count"),
    Correction("R14", latent=True, edition=2, reason="dropout acted twice on the feed-forward output"),
)

# Tables of runs that are themselves right, and what was wrong with them.
TABLES: Mapping[str, str] = dict.fromkeys(
    (f"{table}-value-bias-unrestored{data}" for table in ("ablation", "deposit") for data in ("", "-all")),
    "the head's value bias was left, which the public code zeroes (R9)",
)


def in_present_edition(experiment: Experiment) -> Experiment:
    """The experiment, marked with the edition of its condition that is right."""
    editions = [one.edition for one in CORRECTIONS if one.concerns(experiment)]
    return replace(experiment, edition=max(editions, default=1))


def correction_of(experiment: AnyExperiment) -> Correction | None:
    """The correction that withdraws an experiment's results, or None if they stand."""
    if (decoder := Experiment.of(experiment)) is None:
        return None
    concerned = (one for one in CORRECTIONS if one.concerns(decoder))
    return next((one for one in concerned if decoder.edition < one.edition), None)


@dataclass
class Withdrawals:
    """Rows that corrections withdraw: of runs, and of single tables.

    Args:
        runs: By correction, the runs that do not count.
        tables: By name of the table, the runs that count without it.
    """

    runs: dict[Correction, RunsById] = field(default_factory=dict)
    tables: dict[str, RunsById] = field(default_factory=dict)

    def note(self, run: str, experiment: AnyExperiment, tables: Iterable[str]) -> bool:
        """Note what is withdrawn of a run, and tell whether its row stands."""
        correction = correction_of(experiment)
        if correction is not None:
            self.runs.setdefault(correction, {})[run] = experiment
            return False
        for name in TABLES.keys() & set(tables):
            self.tables.setdefault(name, {})[run] = experiment
        return True

    def told(self, condition: str) -> str:
        """What is withdrawn of a condition, as a reason; empty if nothing is."""
        n = sum(len(runs) for one, runs in self.runs.items() if one.condition == condition)
        return (
            f"incomplete: {condition!r} was corrected, and its {n} earlier rows were withdrawn" if n else ""
        )

    def lines(self) -> Iterator[tuple[str, int, str]]:
        """What is withdrawn, of how many runs, and why."""
        for correction in CORRECTIONS:
            if runs := self.runs.get(correction):
                yield correction.name, len(runs), correction.reason
        for name, runs in sorted(self.tables.items()):
            yield f"table {name}", len(runs), TABLES[name]
