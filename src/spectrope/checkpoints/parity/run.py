"""Compare two runtimes on the same prompts, and look for the cause of a difference."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from jaxtyping import Int
from torch import Tensor, nn

from spectrope.checkpoints.adapters import drawable_tokens, sees_ahead
from spectrope.checkpoints.parity.cause import (
    PRECISION_SLACK,
    UNNOTICED,
    Causes,
    explained_by_nothing,
    find_causes,
)
from spectrope.checkpoints.parity.observed import Observed, divergence, shared
from spectrope.checkpoints.parity.places import PLACES, as_text, by_position, places_of
from spectrope.checkpoints.parity.runtimes import ModelRuntime, Runtime
from spectrope.checkpoints.parity.sites import LocalCopy
from spectrope.checkpoints.sequences import repeated_tokens
from spectrope.console import Shown
from spectrope.core import ConfigError, UnsupportedError, Watch, unwatched

SHOWN = 5  # Explanations in a table.
SCHEMA = {"code": pl.String, "explanation": pl.String, "explained": pl.Float64, "log10_ratio": pl.Float64}
LITTLE = 0.1  # Mean probability of tokens that both report below which equality is not claimed.
WHOLE = 0.999  # Above which it is not said how much was compared.
ParityAnswer = Literal["same", "precision", "differs", "cannot tell"]


@dataclass(frozen=True, repr=False)
class Parity(Shown):
    """How two runtimes of one model differ.

    Args:
        names: Of the runtimes.
        by_position: A row per range of positions: divergence in nats, agreement of the most probable tokens
            and rank correlation, with 95 % intervals over prompts.
        suspect: Index of the runtime that is further from the local copy, which the causes are of.
        causes: What would make it differ from the local copy as it does.
        nearer: Mean divergence, in nats, of the other runtime from the local copy.
        prompts: How many.
        length: Tokens of each.
        shared: Mean probability of the tokens that both report.
    """

    names: tuple[str, str]
    by_position: pl.DataFrame
    suspect: int
    causes: Causes
    nearer: float
    prompts: int
    length: int
    shared: float = 1.0

    @property
    def divergence(self) -> float:
        """Mean over all places, in nats."""
        return float(np.average(self.by_position["divergence"], weights=self.by_position["places"]))

    @property
    def answer(self) -> ParityAnswer:
        """Whether the runtimes predict the same; "cannot tell" where what both report hardly shows it."""
        same = self.causes.same or self.divergence <= UNNOTICED
        within = self.divergence <= PRECISION_SLACK * self.causes.precision_made
        if not (same or (within and self.causes.convincing is None)):
            return "differs"
        if self.shared < LITTLE:
            return "cannot tell"
        return "same" if same else "precision"

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        title = f"{self.names[1]} against {self.names[0]}, {self.prompts} prompts of {self.length} tokens"
        yield title, as_text(self.by_position)
        yield self.verdict
        if self.causes.ranked:
            shown = self.to_frame().head(SHOWN)
            yield f"Explanations: the {len(shown)} most likely of {len(self.causes.ranked)}", shown

    @property
    def verdict(self) -> str:
        """What explains the difference."""
        return " ".join(text for text in (self._explained(), self._of_the_copy()) if text)

    def _explained(self) -> str:
        if self.answer == "cannot tell":
            return (
                "Whether the predictions are the same cannot be told: the tokens that both runtimes report "
                f"have a probability of {self.shared:.1%}. Let servers report more tokens (in Python, "
                "`Endpoint(url, top=100)`)."
            )
        if self.answer == "same":
            part = f", of the tokens that both report ({self.shared:.1%} of the probability),"
            return (
                f"The predictions{part if self.shared < WHOLE else ''} are the same up to rounding on these "
                f"prompts of {self.length} tokens; longer ones were not compared."
            )
        cause = self.causes.cause
        if cause is None and self.answer == "precision":
            return (
                f"No cause: the divergence of {self.divergence:.2g} nats is at most {PRECISION_SLACK:g} "
                f"times what lower precision makes of the local copy ({self.causes.precision_made:.2g}), "
                f"and {self._unexplained}."
            )
        if cause is None and self.causes.convincing is not None:
            told = "; ".join(map(str, (self.causes.convincing, *self.causes.rivals[:3])))
            return f"Several faults explain it equally well, so none is named: {told}."
        if cause is None:
            return f"The predictions differ by more than precision, and {self._unexplained}."
        text = f"Acts like {cause}" if self.suspect == 1 else f"{self.names[0]} acts like {cause}"
        if self.causes.rivals:
            rivals = "; ".join(map(str, self.causes.rivals[:3]))
            return f"{text}; not distinguishable from: {rivals}."
        second = self.causes.next_best
        if second is None:
            return f"{text}."
        return f"{text}; the next best explanation, {second[0]}, is {_times(second[1])} times less likely."

    @property
    def _unexplained(self) -> str:
        if reason := self.causes.unsimulated:
            return f"no fault could be simulated: {reason}"
        return "no simulated fault explains it"

    def _of_the_copy(self) -> str:
        """That neither runtime predicts what the local copy does, where that is so."""
        if self.nearer <= max(UNNOTICED, PRECISION_SLACK * self.causes.precision_made):
            return ""
        return (
            f"Neither predicts what the local copy does: the nearer one, {self.names[1 - self.suspect]}, is "
            f"{self.nearer:.2g} nats from it."
        )

    def to_frame(self) -> pl.DataFrame:
        """Explanations, the most likely first; empty where predictions are the same."""
        rows = self.causes.ranked
        best = rows[0].log_likelihood if rows else 0.0
        return pl.DataFrame(
            [
                {
                    "code": " or ".join(one.codes),
                    "explanation": str(one).rpartition(" (")[0],
                    "explained": one.explained,
                    "log10_ratio": (best - one.log_likelihood) / np.log(10),
                }
                for one in rows
            ],
            schema=SCHEMA,
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, JSON-ready."""
        causes = self.causes
        return {
            "runtimes": list(self.names),
            "suspect": self.names[self.suspect],
            "answer": self.answer,
            "verdict": self.verdict,
            "prompts": self.prompts,
            "length": self.length,
            "shared": self.shared,
            "by_position": self.by_position.to_dicts(),
            "cause": None if causes.cause is None else asdict(causes.cause),
            "no_fault": asdict(causes.none),
            "nearer_from_local": self.nearer,
            "precision": [asdict(one) for one in causes.precision],
            "explanations": [asdict(one) for one in causes.ranked[:20]],
        }


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio < 1e4 else f"1e{int(np.log10(ratio))}"


def prompts_of(model: nn.Module, n: int, length: int, seed: int = 0) -> Int[Tensor, "n t"]:
    """Random tokens that repeat at random distances, so that predictions depend on positions.

    Args:
        model: Whose tokens are drawn.
        n: Prompts.
        length: Tokens of each.
        seed: Of the tokens.
    """
    ids, _ = repeated_tokens(drawable_tokens(model), n, length, "distance", seed)
    return ids


def parity(
    first: Runtime,
    second: Runtime,
    prompts: Int[Tensor, "n t"],
    local: nn.Module,
    *,
    places: int = PLACES,
    watch: Watch = unwatched,
) -> Parity:
    """Compare the predictions of two runtimes; if they differ, simulate faults on the local copy.

    The local copy is held to be right, and causes are those of the runtime that is further from it.

    Args:
        first: A runtime.
        second: Other runtime.
        prompts: Token ids, at least two prompts of at least 16 tokens.
        local: A model of transformers with the same weights, in float32, on which faults are simulated.
        places: Places in each prompt after which tokens are predicted, at most.
        watch: Progress callback.

    Raises:
        ConfigError: If prompts are too few or too short.
        UnsupportedError: If a runtime does not report what is needed, or the local copy reads ahead.
    """
    n, length = prompts.shape
    if n < 2 or length < 16:
        raise ConfigError(f"parity needs at least 2 prompts of at least 16 tokens; got {n} of {length}.")
    at, own = places_of(length, places), ModelRuntime(local, "the local copy")
    names, wanted = (first.name, second.name), own.predict(prompts, at)
    if sees_ahead(local):
        raise UnsupportedError(
            f"{type(local).__name__} reads tokens after the one that it predicts from; parity compares "
            "models that complete texts."
        )
    copy = LocalCopy.of(local)
    seen = [runtime.predict(prompts, at) for runtime in (first, second)]
    for name, one in zip(names, seen, strict=True):
        _check_vocabulary(name, one, wanted.logs.shape[-1])
    away = [divergence(one, wanted) for one in seen]
    suspect = int(away[1].mean() >= away[0].mean())
    common = float(shared(*seen).mean())
    if float(divergence(seen[1], seen[0]).mean()) <= UNNOTICED:
        causes = Causes((), explained_by_nothing(away[suspect]), ())
    else:
        causes = find_causes(copy, prompts, at, seen[suspect], watch)
    nearer = float(away[1 - suspect].mean())
    return Parity(names, by_position(seen[0], seen[1], at), suspect, causes, nearer, n, length, common)


def _check_vocabulary(name: str, seen: Observed, size: int) -> None:
    """Refuse a runtime of another model.

    Raises:
        ConfigError: If it predicts tokens that the local copy does not have.
    """
    most = seen.logs.shape[-1] if seen.ids is None else int(seen.ids.max()) + 1
    if most > size or (seen.ids is None and most != size):
        raise ConfigError(
            f"{name} predicts token {most - 1}, and the local copy has {size} tokens; is it the same model?"
            if most > size
            else f"{name} predicts {most} tokens, and the local copy has {size}; is it the same model?"
        )
