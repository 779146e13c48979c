"""`spectrope encodings`: the catalogue."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.padding import Padding
from rich.text import Text

from spectrope.cli.show import console
from spectrope.core.config import to_dict
from spectrope.encodings.base import ENCODINGS, CatalogueEntry, describe


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """List encodings: formula, family, form, laws that they declare, settings, reference."""

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(name="encoding", help="Names; none means all.")
    ] = ()

    def run(self) -> None:
        """Print a paragraph per encoding."""
        for name in self.names or tuple(ENCODINGS):
            _show(describe(name))


def _show(entry: CatalogueEntry) -> None:
    laws = ", ".join(tag.lower().replace("_", "-") for tag in entry.tags) or "no law"
    form = entry.form.lower().replace("_", " ")
    settings = to_dict(ENCODINGS.config(entry.name)())
    del settings["kind"]
    console.print(Text(f"{entry.name} ", style="bold").append(f"({entry.family}; {form})", style="not bold"))
    for label, text in (
        ("formula", entry.formula),
        ("laws", laws),
        ("defaults", _fields(settings)),
        ("source", entry.reference),
    ):
        if text:
            console.print(
                Padding(Text(f"{label}: ", style="dim").append(text, style="not dim"), (0, 0, 0, 2))
            )


def _fields(settings: dict[str, object]) -> str:
    return ", ".join(f"{field}={_short(value)}" for field, value in settings.items())


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    if isinstance(value, dict):
        return str(value["kind"]) if "kind" in value else f"({_fields(value)})"
    return str(value)
