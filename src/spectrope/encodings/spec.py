"""Parse encodings from text: a name, with settings after colons."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as dataclass_fields
from itertools import product
from typing import Any, get_args, get_type_hints

from spectrope.core import (
    ConfigError,
    OneOf,
    Registry,
    UnknownNameError,
    from_dict,
    is_foreign,
    no_such_field,
    require_type,
)
from spectrope.encodings.base import ENCODINGS, EncodingConfig
from spectrope.encodings.named import combination
from spectrope.encodings.per_head import Group, PerHead
from spectrope.encodings.positions.base import POSITIONS, Positions

SIZES = frozenset({"d_model", "n_heads", "head_dim", "max_length", "causal"})  # Which a model sets.


def parse_encoding(spec: str) -> EncodingConfig:
    """Parse the configuration of an encoding from text.

    - `rope`: an encoding by its registered name, or `path/to/file.py:Class`, with its defaults.
    - `rope:yarn,factor=8`: a schedule, a position rule or another part by its name, with its fields.
    - `alibi:learned=true`: fields of the encoding itself.
    - `sum:rope+sinusoidal`, `per_layer:rope+rope+nope`: encodings of which this one is composed.
    - `per_head:rope=4`, `per_head:rope:yarn,factor=2=4+alibi=2`: encodings with their numbers of heads, from
      head 0 on; the remaining heads have none.

    Args:
        spec: The line; values are JSON, such as 8, true or [1, 2], or else text.

    Raises:
        UnknownNameError: If an encoding or a part of it is not known.
        ConfigError: If a field is unknown, given twice or breaks a rule, or a file cannot be run.
    """
    require_type(spec, str, "the name of an encoding", "text")
    if is_foreign(spec):
        return ENCODINGS.config(ENCODINGS.resolve(spec))()
    one = combination(spec)
    spec = spec if one is None else one.spec
    if "@" in spec:
        raise ConfigError(f"{spec!r} names a position rule, which a model has and no encoding by itself.")
    name, colon, rest = spec.partition(":")
    cls = ENCODINGS.config(ENCODINGS.resolve(name))
    if not colon:
        return cls()
    if cls is PerHead.Config and not rest.startswith("groups="):
        groups = tuple(map(_group, _split(rest, "+")))
        return cls(n_heads=max(cls.n_heads, sum(group.heads for group in groups)), groups=groups)
    parts = dict(_parts(cls))
    composed = next((field for field, (_, several) in parts.items() if several), None)
    if composed is not None and "=" not in rest.partition("+")[0].partition(":")[0]:
        return from_dict(cls, {composed: [parse_encoding(one) for one in _split(rest, "+")]})
    members = {field: registry for field, (registry, several) in parts.items() if not several}
    fields: dict[str, Any] = {}
    for words in _split(rest, ":"):
        more = _fields(cls, members, words)
        for twice in fields.keys() & more.keys():
            raise ConfigError(f"{spec!r} gives {twice} twice.")
        fields |= more
    _require_in_place(name, cls, members, fields)
    return from_dict(cls, fields)


def parse_positions(spec: str) -> Positions:
    """Parse a position rule from text: its name, with fields after commas.

    Args:
        spec: Such as `shifted` or `random_subset,longest=256`.

    Raises:
        UnknownNameError: If there is no such rule.
        ConfigError: If a field is unknown, given twice or breaks a rule.
    """
    name, *settings = _split(spec, ",")
    return OneOf(POSITIONS).read({"kind": POSITIONS.resolve(name), **_settings(settings)})


def split_sizes(spec: str) -> tuple[str, dict[str, Any]]:
    """The text of an encoding without the sizes that a model sets, and these sizes."""
    sizes: dict[str, Any] = {}
    if is_foreign(spec):
        return spec, sizes
    parts = []
    for part in _split(spec, ":"):
        words = _split(part, ",")
        sizes |= _settings([word for word in words if _names_size(word)])
        parts.append(",".join(word for word in words if not _names_size(word)))
    return ":".join(filter(None, parts)), sizes


def _names_size(word: str) -> bool:
    field, equals, _ = word.partition("=")
    return bool(equals) and field in SIZES


def _split(text: str, mark: str) -> list[str]:
    """The pieces of a text between marks that lie outside brackets."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "[{") - (letter in "]}")
        if letter == mark and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def _group(words: str) -> Group:
    """An encoding with its number of heads, as in `rope=4`."""
    spec, equals, number = words.rpartition("=")
    if not equals or not number.isdecimal():
        raise ConfigError(
            f"per_head takes encodings with their numbers of heads, such as rope=4; got {words!r}."
        )
    return Group(heads=int(number), encoding=parse_encoding(spec))


def _parts(cls: type) -> Iterator[tuple[str, tuple[Registry[Any], bool]]]:
    """Fields that hold members of a registry, with it, and whether they hold several."""
    for field, hint in get_type_hints(cls, include_extras=True).items():
        for one, several in ((hint, False), *((inner, True) for inner in get_args(hint))):
            for note in getattr(one, "__metadata__", ()):
                if isinstance(note, OneOf):
                    yield field, (note.registry, several)


def _fields(cls: type, members: dict[str, Registry[Any]], words: str) -> dict[str, Any]:
    """What one part between colons says: fields of the encoding, or a member with fields of its own."""
    first, *others = _split(words, ",")
    if "=" in first:
        return _settings((first, *others))
    for field, registry in members.items():
        if first in registry:
            return {field: {"kind": registry.resolve(first), **_settings(others)}}
    known = [name for registry in members.values() for name in registry]
    if not known:
        raise no_such_field(cls, first)
    raise UnknownNameError("part", first, known)


def _require_in_place(
    name: str, cls: type, members: Mapping[str, Registry[Any]], given: Mapping[str, Any]
) -> None:
    """Refuse a field that the encoding does not have, and that its part of a family has."""
    known = {field.name for field in dataclass_fields(cls)}
    for field, family in product(given.keys() - known, members):
        kind = given[family]["kind"] if family in given else getattr(cls(), family).kind
        if field in {one.name for one in dataclass_fields(members[family].config(kind))}:
            raise ConfigError(
                f"{cls.__qualname__} has no field {field!r}, but its {family} {kind} has; write "
                f"{name}:{kind},{field}={json.dumps(given[field])}."
            )


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Fields and their values from several `field=value`.

    Raises:
        ConfigError: If one is given twice.
    """
    fields: dict[str, Any] = {}
    for field, value in map(_setting, words):
        if field in fields:
            raise ConfigError(f"{','.join(words)!r} gives {field} twice.")
        fields[field] = value
    return fields


def _setting(word: str) -> tuple[str, Any]:
    """A field and its value from `field=value`."""
    field, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(f"{word!r} is no setting; write it as field=value.")
    return field, read_value(value)


def read_value(text: str) -> Any:
    """A value from a command line: JSON, such as 0.001, true, null or [1, 2], or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
