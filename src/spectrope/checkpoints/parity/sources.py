"""Parse a runtime on the command line: a checkpoint with settings, or the address of a server."""

from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints
from urllib.parse import parse_qsl

from spectrope.core import ConfigError

YesNo = Literal["yes", "no"]


@dataclass(frozen=True)
class RuntimeSettings:
    """How transformers runs a checkpoint, written behind its name as `?dtype=bfloat16&cache=yes`.

    Args:
        dtype: Floating-point type; "auto" is the checkpoint's.
        attention: Which attention function; "auto" is that with which transformers loads the checkpoint.
        cache: Whether tokens enter one at a time, with a cache of keys and values.
    """

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attention: Literal["auto", "sdpa", "eager"] = "auto"
    cache: YesNo = "no"


def is_address(source: str) -> bool:
    """Whether a source is the address of a server."""
    return source.lower().startswith(("http://", "https://"))


def checkpoint_and_settings(source: str) -> tuple[str, RuntimeSettings]:
    """The name of a checkpoint, and the settings behind it.

    Raises:
        ConfigError: If a setting is unknown, or has a value that it cannot have.
    """
    name, _, query = source.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    types = get_type_hints(RuntimeSettings)
    for setting, value in given.items():
        if setting not in types:
            known = ", ".join(field.name for field in fields(RuntimeSettings))
            raise ConfigError(f"{source}: unknown setting {setting!r}; known: {known}.")
        if value not in get_args(types[setting]):
            allowed = ", ".join(get_args(types[setting]))
            raise ConfigError(f"{source}: {setting} must be one of {allowed}; got {value!r}.")
    return name, RuntimeSettings(**given)  # pyright: ignore[reportArgumentType]
