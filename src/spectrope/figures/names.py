"""Names of runs in figures, and colour, dash and order of encodings."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENCODING = ("model.encoding.", "model.attention.")


def name_runs(configs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The setting and the encoding of each run, such as ("distance", "rope").

    A setting is the task, with condition and scale where they differ among the runs, "tuned" where only some
    have a learning rate from a grid, and the edition where others of the condition have a later one. Where
    two runs would still share setting and encoding, the fields other than the seed that tell them apart are
    added: only runs that differ in nothing but the seed are told as seeds of one experiment.
    """
    latest = _latest_editions(configs)
    settings = [_setting(config, configs, latest) for config in configs]
    encodings = [str(config["encoding_name"]) for config in configs]
    flat = [_without_seed(config) for config in configs]
    extra = _telling_fields(flat, list(zip(settings, encodings, strict=True)))
    of_encoding = [field for field in extra if field.startswith(ENCODING)]
    of_setting = [field for field in extra if field not in of_encoding]
    return [
        (_extended(setting, fields, of_setting), _extended(encoding, fields, of_encoding))
        for setting, encoding, fields in zip(settings, encodings, flat, strict=True)
    ]


def _kind(config: Mapping[str, Any]) -> tuple[Any, Any]:
    return config["condition"], config["encoding_name"]


def _latest_editions(configs: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, Any], int]:
    """The latest edition that there is of each condition and encoding."""
    latest: dict[tuple[Any, Any], int] = {}
    for config in configs:
        latest[_kind(config)] = max(config.get("edition", 1), latest.get(_kind(config), 1))
    return latest


def _setting(
    config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]], latest: Mapping[tuple[Any, Any], int]
) -> str:
    varied = [field for field in ("condition", "scale") if len({str(c[field]) for c in configs}) > 1]
    kinds = {c.get("tuning") for c in configs}
    words = [str(config["task"]["kind"]), *(str(config[field]) for field in varied)]
    if config.get("tuning") == "chosen" and len(kinds) > 1:
        words.append("tuned")
    if (edition := config.get("edition", 1)) < latest[_kind(config)]:
        words.append(f"edition {edition}")
    return ", ".join(words)


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf of a nested configuration under its dotted name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flatten(inner, f"{prefix}{key}.")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _flatten(inner, f"{prefix}{index}.")
    else:
        yield prefix.removesuffix("."), value


def _without_seed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves of a configuration but its seed, which some encodings have as well."""
    leaves, seed = dict(_flatten(config)), config["seed"]
    return {name: one for name, one in leaves.items() if name.rpartition(".")[2] != "seed" or one != seed}


def _telling_fields(flat: Sequence[Mapping[str, Any]], keys: Sequence[tuple]) -> list[str]:
    groups = defaultdict(list)
    for fields, key in zip(flat, keys, strict=True):
        groups[key].append(fields)
    telling: dict[str, None] = {}
    for group in groups.values():
        for field in dict.fromkeys(name for fields in group for name in fields):
            if len({repr(fields.get(field)) for fields in group}) > 1:
                telling[field] = None
    return list(telling)


def _extended(name: str, fields: Mapping[str, Any], extra: Sequence[str]) -> str:
    return ", ".join([name, *_stated(fields, extra)])


def _stated(fields: Mapping[str, Any], extra: Sequence[str]) -> list[str]:
    """Some fields by the last part of their names."""
    return [f"{field.rsplit('.', 1)[-1]} {fields[field]}" for field in extra if field in fields]


def differences(configs: Sequence[Mapping[str, Any]], names: Sequence[Any]) -> list[str]:
    """The fields in which each run differs from others of its name; empty where it does not.

    Args:
        configs: Of the runs.
        names: By which they go.
    """
    flat, told = [dict(_flatten(config)) for config in configs], [""] * len(configs)
    named = defaultdict[Any, list[int]](list)
    for place, name in enumerate(names):
        named[name].append(place)
    for name, places in named.items():
        fields = _telling_fields([flat[place] for place in places], [(name,)] * len(places))
        for place in places:
            told[place] = ", ".join(_stated(flat[place], fields))
    return told


@dataclass(frozen=True)
class Style:
    """How an encoding is drawn.

    Args:
        colour: Hexadecimal.
        dash: Lengths of dash and gap in pixels; none means a solid line.
    """

    colour: str
    dash: tuple[int, ...] = ()


# Chosen so that any two differ for normal sight and under protanopia, deuteranopia and tritanopia.
GREY, BLUE, GREEN, RED = "#464646", "#1a65c8", "#079e6f", "#d84a02"
KNOWN = {
    "nope": Style(GREY, (2, 2)),
    "sinusoidal": Style(BLUE, (6, 2)),
    "learned": Style("#61abfb", (4, 2)),
    "random": Style("#dc9e18", (1, 2)),
    "t5": Style(GREEN, (8, 3)),
    "relative": Style("#5d0669", (5, 2, 1, 2)),
    "alibi": Style("#bc6fba", (3, 1)),
    "rope": Style(RED),
}
SPARE = (
    Style("#744908", (7, 2, 2, 2)),
    Style("#a4a4a4", (4, 4)),
    Style("#770013", (2, 4)),
    Style("#30606e", (9, 2)),
)
PAPER_TASKS = ("distance", "counting", "addition")  # In its order. `TASKS` is out of reach: it needs torch.
LOSS, GAIN, ZERO = ("#f1a340", "#b35806"), ("#998ec3", "#542788"), "#f7f7f5"
DIVERGING = (*reversed(GAIN), ZERO, *LOSS)  # Of drops: below zero, zero, above.


def styles(encodings: Sequence[str]) -> dict[str, Style]:
    """The style of each encoding.

    Other encodings use the spare styles, then those of absent well-known encodings, and then the same colours
    with other dashes.
    """
    free = [*SPARE, *(style for name, style in KNOWN.items() if name not in encodings)]
    others = [name for name in encodings if name not in KNOWN]
    return {name: KNOWN.get(name) or _spare(free, others.index(name)) for name in encodings}


def _spare(free: Sequence[Style], number: int) -> Style:
    """A style that none of the encodings before has: in each round of the colours, dashes move on by one."""
    turn, at = divmod(number, len(free))
    return Style(free[at].colour, free[(at + turn) % len(free)].dash)


def ordered_encodings(names: Iterable[str]) -> list[str]:
    """Distinct names, the well-known encodings first, from no position to rotation."""
    return _ordered(names, list(KNOWN))


def ordered_settings(names: Iterable[str]) -> list[str]:
    """Distinct names of settings, the paper's tasks first."""
    return _ordered(names, PAPER_TASKS)


def _ordered(names: Iterable[str], known: Sequence[str]) -> list[str]:
    def place(name: str) -> tuple[int, str]:
        first = name.split(",")[0]
        return (known.index(first) if first in known else len(known)), name

    return sorted(set(names), key=place)
