"""The record of a pair audit."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from spectrope.checkpoints.audit.catalogue import code_of
from spectrope.checkpoints.audit.records import Audit
from spectrope.console import Shown

Answer = Literal["yes", "no", "cannot tell"]
COLUMNS = ("model", "layers", "applies")


@dataclass(frozen=True)
class Obstacle:
    """One reason why two models do not fit together.

    Args:
        where: Layer, or "sizes".
        what: The respect.
        first: What the first model has in it.
        second: What the other model has.
        other: Name of the other model.
        note: What it looks like.
    """

    where: str
    what: str
    first: str
    second: str
    other: str
    note: str = ""

    @property
    def code(self) -> str:
        """Of the catalogue."""
        return code_of(self.what)

    def told(self, first: str) -> str:
        """All of it in one line, with the name of the first model."""
        note = f" ({self.note})" if self.note else ""
        both = f"{self.first} in {first}, {self.second} in {self.other}"
        return f"{self.where}: {self.code} {self.what}: {both}{note}"


@dataclass(frozen=True, repr=False)
class PairAudit(Shown):
    """Whether models fit together for a purpose.

    Args:
        role: What the others are to the first model.
        purpose: What they are to be used for together.
        names: Of the models, the first one first.
        audits: Of each.
        obstacles: Why they do not fit.
        unclear: What could not be told.
        notes: What was seen besides.
    """

    role: str
    purpose: str
    names: tuple[str, ...]
    audits: tuple[Audit, ...]
    obstacles: tuple[Obstacle, ...]
    unclear: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def answer(self) -> Answer:
        """Whether they fit."""
        if self.obstacles:
            return "no"
        return "cannot tell" if self.unclear else "yes"

    @property
    def ok(self) -> bool:
        """Whether they fit."""
        return self.answer == "yes"

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why not, a line each."""
        return tuple(one.told(self.names[0]) for one in self.obstacles)

    def to_frame(self) -> pl.DataFrame:
        """A row per model and encoding, with the layers that apply it."""
        rows: list[tuple[str, str, str]] = []
        for name, audit in zip(self.names, self.audits, strict=True):
            applied: dict[str, list[str]] = {}
            for layer in audit.layers:
                applied.setdefault(layer.effective.describe(layer.declared.turning), []).append(layer.name)
            rows += [(name, ", ".join(layers), text) for text, layers in applied.items()]
        return pl.DataFrame(rows, schema=dict.fromkeys(COLUMNS, pl.String), orient="row")

    def parts(self) -> Iterator[str | tuple[str, pl.DataFrame]]:
        yield f"{self.audits[0].length} positions", self.to_frame()
        yield from self.reasons
        yield from (f"cannot tell: {one}" for one in self.unclear)
        yield from self.notes
        yield f"positional encodings compatible for {self.purpose}: {self.answer}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, with the summary first."""
        return {
            "answer": self.answer,
            "role": self.role,
            "purpose": self.purpose,
            "models": list(self.names),
            "obstacles": [{"code": one.code, **dataclasses.asdict(one)} for one in self.obstacles],
            "unclear": list(self.unclear),
            "notes": list(self.notes),
            "encodings": self.to_frame().to_dicts(),
        }
