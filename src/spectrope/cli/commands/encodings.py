"""`spectrope encodings`: list encodings, print their cards, or measure their cost."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import tyro

from spectrope.cli.lists import show_entry, shown_members, without_stop
from spectrope.console import DeviceOption, JsonOption, print_json, refuse_given, say
from spectrope.core import require
from spectrope.encodings import NAMED

PACKAGES = {  # Packages whose members are listed, under their titles.
    "spectrope.encodings": "Encodings, with settings after a colon: alibi:learned=true, sum:rope+sinusoidal",
    "spectrope.encodings.schedules": "Frequency schedules of rotary encodings: rope:yarn,factor=8",
    "spectrope.encodings.positions": "Position rules, after an @: rope@shifted,max_shift=50",
    "spectrope.attention": "Attention layers, alone or with an encoding: mla, mla+alibi",
}


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """List or describe encodings, schedules and position rules.

    A card shows the formula, family, form, declared laws, settings and reference of an encoding.

    Examples:
    $ spectrope encodings
    $ spectrope encodings rope yarn
    """

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(
            name="encoding", help="Names, or file.py:Class, whose cards are printed (default: list all)."
        ),
    ] = ()
    bench: Annotated[bool, tyro.conf.arg(help="Measure time and memory of one layer relative to NoPE.")] = (
        False
    )
    length: Annotated[int, tyro.conf.arg(help="Sequence length in tokens, with --bench.")] = 128
    device: DeviceOption = "auto"
    json: JsonOption = False

    def run(self) -> None:
        """Print the list, cards, or a table of what encodings cost."""
        require(self.length >= 1, self, "length", "at least 1")
        if not self.bench:
            refuse_given(self, ("length", "device"), "goes with --bench.")
        record = self._of_some() if self.names or self.bench else _shown_list()
        if self.json:
            print_json(record)

    def _of_some(self) -> list[dict[str, Any]]:
        from spectrope.cli.cards import measured, shown_cards  # Loads torch, which the list does without.
        from spectrope.console import named

        chosen = tuple(named(spec) for spec in self.names)
        if self.bench:
            return [asdict(one) for one in measured(chosen, self.length, self.device)]
        return [card for name in chosen for card in shown_cards(name)]


def _shown_list() -> list[dict[str, str]]:
    """Print a line for each encoding, and for each part that another one can be given."""
    entries = shown_members(PACKAGES)
    width = max(len(one["name"]) for one in entries)
    say("Named combinations")
    for name, one in NAMED.items():
        summary = without_stop(one.summary)
        show_entry(name, f"{summary} ({one.spec})", width)
        entries.append({"part": "named", "name": name, "summary": summary})
    say("")
    say("`spectrope encodings NAME` prints a card: formula, laws, settings, reference.")
    return entries
