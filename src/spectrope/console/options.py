"""Options that several commands share."""

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from spectrope.console.rare import RARE
from spectrope.core import ConfigError, Device

RunsRoot = Annotated[Path, tyro.conf.arg(name="runs", help="Folder of the runs.")]
DeviceOption = Annotated[
    Device, tyro.conf.arg(metavar="DEVICE", help="auto (CUDA if available), cpu or cuda.")
]
JsonOption = Annotated[bool, tyro.conf.arg(help="Print the result as JSON.")]
CertificateOption = Annotated[
    Path | None, tyro.conf.arg(help="Also write a certificate that `spectrope verify` checks."), RARE
]
Seeds = Annotated[
    tuple[str, ...],
    tyro.conf.arg(metavar="N|N:M ...", help="Seeds, or ranges such as 0:6 for 0 to 5."),
]
OutPage = Annotated[Path, tyro.conf.arg(help="HTML report to write, a single file.")]
StopAfter = Annotated[
    str,
    tyro.conf.arg(
        metavar="N|never", help="Stop after this many steps at 99 % test accuracy; never: use all --steps."
    ),
    RARE,
]


MOST_SEEDS = 1_000_000


def chosen_seeds(words: Sequence[str]) -> tuple[int, ...]:
    """The seeds that an option names, each once: `0 1 2`, or `0:3` for the same.

    Raises:
        ConfigError: If a word is neither a number nor a range, or a range is empty or beyond `MOST_SEEDS`.
    """
    seeds: dict[int, None] = {}
    for word in words:
        if re.fullmatch(r"\d{1,19}(:\d{1,19})?", word) is None:
            raise ConfigError(
                f"--seeds takes numbers below 2^63, or ranges such as 0:6 for 0 to 5; got {word!r}."
            )
        first, colon, last = word.partition(":")
        begin, end = int(first), int(last) if colon else int(first) + 1
        if not 1 <= end - begin <= MOST_SEEDS:
            raise ConfigError(f"--seeds takes ranges of 1 to {MOST_SEEDS:,} seeds; got {word!r}.")
        seeds |= dict.fromkeys(range(begin, end))
    return tuple(seeds)


def steps_or_never(word: str) -> int | None:
    """The number of steps that `--stop-after` names; None stands for never.

    Raises:
        ConfigError: If it is neither a number nor `never`.
    """
    if word.lower() in ("never", "none"):
        return None
    if not word.isdecimal():
        raise ConfigError(f"--stop-after takes a number of steps, or never; got {word!r}.")
    return int(word)


def refuse_given(command: Any, names: Sequence[str], told: str) -> None:
    """Refuse options that would have no effect, such as `--k goes with --distribution square or strip.`

    Args:
        command: The command, a dataclass; a field that differs from its default counts as given.
        names: Fields that do not apply.
        told: The rest of the message, after the name of the option.

    Raises:
        ConfigError: If one of them has been given.
    """
    given = _given(command)
    for name in names:
        if name in given:
            raise ConfigError(f"{_typed(name)} {told}")


def options_again(command: Any, without: Sequence[str]) -> list[str]:
    """The options that were given to a command, to be typed again: `["--bands", "2"]`.

    Args:
        command: The command, a dataclass; a field that differs from its default counts as given.
        without: Fields to leave out, such as positional ones.
    """
    words: list[str] = []
    for name, value in _given(command).items():
        if name not in without:
            values = value if isinstance(value, tuple) else () if value is True else (value,)
            words += [_typed(name), *map(str, values)]
    return words


def _given(command: Any) -> dict[str, Any]:
    """The fields that differ from their defaults, by name."""
    values = ((field, getattr(command, field.name)) for field in fields(command))
    return {field.name: value for field, value in values if value != field.default}


def _typed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


ROOT = Path("runs")
