"""`spectrope encodings`: the catalogue."""

from dataclasses import dataclass

from spectrope.cli.show import table
from spectrope.encodings.base import ENCODINGS, describe


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """List every encoding: formula, family, form, laws that it declares, reference."""

    def run(self) -> None:
        """Print a row per encoding."""
        columns = ("name", "family", "formula", "form", "tags", "reference")
        entries = [describe(name) for name in ENCODINGS]
        rows = [(e.name, e.family, e.formula, e.form, " ".join(e.tags), e.reference) for e in entries]
        table("", columns, rows)
