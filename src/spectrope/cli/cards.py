"""Cards and costs of encodings, as printed by `spectrope encodings`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

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
from spectrope.cli.lists import without_stop
from spectrope.console import console, say, table
from spectrope.core import ConfigError, Configured, Device, Registry, UnknownNameError, choose_device, to_dict
from spectrope.encodings import (
    ENCODINGS,
    NAMED,
    POSITIONS,
    SCHEDULES,
    CatalogueEntry,
    Named,
    combination,
    describe,
    documented,
)

REGISTRIES: tuple[Registry[Any], ...] = (ENCODINGS, SCHEDULES, POSITIONS, ATTENTIONS)


def measured(names: Sequence[str], length: int, device: Device) -> list[EncodingCost | UncostedEncoding]:
    """Measure and print the costs of encodings; after an interruption, print those measured so far."""
    outcomes: list[EncodingCost | UncostedEncoding] = []
    place = choose_device(device)
    chosen = names or tuple(ENCODINGS)
    try:
        for cost in track(
            costs(chosen, length, place),
            "measuring",
            total=len(chosen),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ):
            outcomes.append(cost)
    finally:
        if outcomes:
            _show_costs(outcomes, length, place.type)
    return outcomes


def shown_cards(name: str) -> list[dict[str, Any]]:
    """Print the card of an encoding, and those of parts that have the same name; return what they say.

    Raises:
        UnknownNameError: If there is none.
        ConfigError: If it has settings or joins several.
    """
    if one := combination(name):
        return [_shown_named(name, one)]
    holders = [registry for registry in REGISTRIES if name in registry]
    if not holders:
        if set(":+@") & set(name):
            raise ConfigError(f"cards are of single names, such as rope or yarn; got {name!r}.")
        known = [known for registry in REGISTRIES for known in registry]
        raise UnknownNameError("encoding", name, [*known, *NAMED])
    cards = []
    for registry in holders:
        known = registry.resolve(name)
        entry, config = _entry(registry, known), registry.config(known)()
        _show(entry, config)
        cards.append(asdict(entry) | {"defaults": to_dict(config)})
    return cards


def _shown_named(name: str, one: Named) -> dict[str, Any]:
    """Print the card of a combination; return what it says."""
    show_card(name, one.spec, {"what it does": without_stop(one.summary), "source": one.reference})
    return asdict(one) | {"name": name}


def _entry(registry: Registry[Any], name: str) -> CatalogueEntry:
    if registry is ENCODINGS:
        return describe(name)
    if registry is ATTENTIONS:
        return describe_attention(name)
    return CatalogueEntry(
        name=name, family=registry.what, form="", tags=(), **documented(registry[name].__doc__)
    )


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


def _show(entry: CatalogueEntry, config: Configured) -> None:
    laws = ", ".join(tag.lower().replace("_", "-") for tag in entry.tags) or "no law"
    kind = "; ".join(filter(None, (entry.family, entry.form.lower().replace("_", " "))))
    settings = to_dict(config)
    del settings["kind"]
    lines = {
        "what it does": entry.summary.partition(":")[0],
        "formula": entry.formula,
        "laws": laws if entry.form else "",
        "defaults": fields_as_text(settings),
        "source": entry.reference,
    }
    show_card(entry.name, kind, lines)


def show_card(name: str, kind: str, lines: Mapping[str, str]) -> None:
    """Print a card: a name, what it is of, and labelled lines, of which empty ones are left out."""
    console.print(Text(f"{name} ", style="bold").append(f"({kind})", style="not bold"))
    for label, text in lines.items():
        if text:
            told = Text(f"{label}: ", style="dim").append(text, style="not dim")
            console.print(Padding(told, (0, 0, 0, 2)))


def fields_as_text(settings: Mapping[str, object]) -> str:
    """Fields and their values in one line, of a nested configuration its kind only."""
    return ", ".join(f"{field}={_short(value)}" for field, value in settings.items())


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    if isinstance(value, dict):
        return str(value["kind"]) if "kind" in value else f"({fields_as_text(value)})"
    return str(value)
