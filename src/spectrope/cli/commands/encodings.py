"""`spectrope encodings`: the catalogue, and what each entry costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.padding import Padding
from rich.progress import track
from rich.text import Text

from spectrope.attention import (
    ATTENTIONS,
    HEAD_DIM,
    N_HEADS,
    REPEATS,
    EncodingCost,
    Ratio,
    UncostedEncoding,
    batch_size,
    costs,
    describe_attention,
)
from spectrope.console import DeviceOption, console, named, refuse_given, say, table
from spectrope.core import Configured, Registry, UnknownNameError, choose_device, require, to_dict
from spectrope.encodings import ENCODINGS, POSITIONS, SCHEDULES, CatalogueEntry, describe, documented

LISTED: tuple[tuple[Registry[Any], str], ...] = (
    (ENCODINGS, "Encodings; settings follow a colon, as in alibi:learned=true or sum:rope+sinusoidal"),
    (SCHEDULES, "Frequency schedules of rotary encodings, as in rope:yarn,factor=8"),
    (POSITIONS, "Positions of the tokens, as in --set model.positions=shifted"),
    (ATTENTIONS, "Attention, by itself or with an encoding: mla, mla+alibi"),
)


@dataclass(frozen=True, kw_only=True)
class Encodings:
    """List encodings and their parts, one line each, or print the cards of some.

    A card has formula, family, form, declared laws, settings and reference.

    Examples:
    $ spectrope encodings
    $ spectrope encodings rope yarn
    """

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(name="encoding", help="Names, or file.py:Class (default: all)."),
    ] = ()
    bench: Annotated[bool, tyro.conf.arg(help="Measure time and memory of one layer, relative to NoPE.")] = (
        False
    )
    length: Annotated[int, tyro.conf.arg(help="Sequence length in tokens, with --bench.")] = 128
    device: DeviceOption = "auto"

    def run(self) -> None:
        """Print the list, cards, or a table of what encodings cost."""
        require(self.length >= 1, self, "length", "at least 1")
        if not self.bench:
            refuse_given(self, ("length",), "goes with --bench.")
        chosen = tuple(named(spec) for spec in self.names)
        if self.bench:
            self.measure(chosen or tuple(ENCODINGS))
        elif chosen:
            for name in chosen:
                _show_cards(name)
        else:
            _show_list()

    def measure(self, names: Sequence[str]) -> None:
        """Print what encodings cost; an interruption prints those that are measured."""
        outcomes: list[EncodingCost | UncostedEncoding] = []
        device = choose_device(self.device)
        measured = costs(names, self.length, device)
        try:
            for cost in track(
                measured,
                "measuring",
                total=len(names),
                console=console,
                transient=True,
                disable=not console.is_terminal,
            ):
                outcomes.append(cost)
        finally:
            if outcomes:
                _show_costs(outcomes, self.length, device.type)


def _show_costs(outcomes: Sequence[EncodingCost | UncostedEncoding], length: int, device: str) -> None:
    title = (
        f"one causal layer, {N_HEADS} heads of width {HEAD_DIM}, {batch_size(length)} x {length} tokens, "
        f"float32, {device};\ntime and memory over NoPE's, medians of {REPEATS} pairs (quartiles)"
    )
    rows = [
        (
            cost.encoding,
            cost.impl,
            _ratio(cost.forward),
            _ratio(cost.backward),
            f"{cost.memory:.2f}",
            f"{cost.mib:.1f}",
        )
        for cost in outcomes
        if isinstance(cost, EncodingCost)
    ]
    columns = ("encoding", "kernel", "forward", "backward", "memory", "MiB")
    table(title, columns, rows, numeric=columns[2:])
    for refused in outcomes:
        if isinstance(refused, UncostedEncoding):
            say(f"{refused.encoding}: {refused.reason}")


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f}, {ratio.high:.2f})"


def _show_list() -> None:
    """A line for each encoding, and for each part that another one can be given."""
    width = max(len(name) for registry, _ in LISTED for name in registry)
    for registry, title in LISTED:
        say(title)
        for name in registry:
            summary = documented(registry[name])["summary"].partition(":")[0].rstrip(".")
            say(f"  {name:<{width}}  {summary}")
        say("")
    say("`spectrope encodings NAME` prints a card: formula, laws, settings, reference.")


def _show_cards(name: str) -> None:
    """The card of an encoding, and those of parts that have the same name."""
    holders = [registry for registry, _ in LISTED if name in registry]
    if not holders:
        raise UnknownNameError("encoding", name, [name for registry, _ in LISTED for name in registry])
    for registry in holders:
        known = registry.resolve(name)
        if registry is ENCODINGS:
            entry = describe(known)
        elif registry is ATTENTIONS:
            entry = describe_attention(known)
        else:
            text = documented(registry[known])
            entry = CatalogueEntry(name=known, family=registry.what, form="", tags=(), **text)
        _show(entry, registry.config(known)())


def _show(entry: CatalogueEntry, config: Configured) -> None:
    laws = ", ".join(tag.lower().replace("_", "-") for tag in entry.tags) or "no law"
    kind = "; ".join(filter(None, (entry.family, entry.form.lower().replace("_", " "))))
    settings = to_dict(config)
    del settings["kind"]
    console.print(Text(f"{entry.name} ", style="bold").append(f"({kind})", style="not bold"))
    for label, text in (
        ("what it does", entry.summary.partition(":")[0]),
        ("formula", entry.formula),
        ("laws", laws if entry.form else ""),
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
