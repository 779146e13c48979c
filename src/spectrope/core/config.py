"""Frozen dataclasses as the one form of configuration: read, write, compare, hash."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from pydantic import (
    ConfigDict,
    GetCoreSchemaHandler,
    TypeAdapter,
    ValidationError,
    model_serializer,
)
from pydantic_core import CoreSchema, core_schema

from spectrope.core.errors import ConfigError
from spectrope.core.registry import Registry

C = TypeVar("C")


class Configured:
    """Base of all configuration dataclasses: unknown fields are refused when one is read.

    Fields named in `added_later` are written only where they differ from their defaults, so that what was
    written before they existed keeps its text and its hash.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")
    added_later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _written(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        written = handler(self)
        for field in fields(cast(Any, self)):
            if field.name in self.added_later and getattr(self, field.name) == _default(field):
                del written[field.name]
        return written


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


class OneOf:
    """Annotation for a field that holds one of several kinds, written as `{"kind": name, ...}`.

    A plain type adapter on a base class would drop the fields that a subclass adds; this one asks the
    registry which dataclass the name stands for. A bare name reads as that kind with its defaults.
    """

    def __init__(self, registry: Registry[Any]) -> None:
        self.registry = registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(to_dict)
        return core_schema.no_info_plain_validator_function(self.read, serialization=written)

    def read(self, value: Any) -> Any:
        """Turn a name or a `{"kind": ...}` mapping into its dataclass; a dataclass passes through."""
        if is_dataclass(value):
            return value
        fields = {"kind": value} if isinstance(value, str) else value
        if not (isinstance(fields, Mapping) and isinstance(fields.get("kind"), str)):
            raise ConfigError(f'{self.registry.what} must be a name, or fields with a "kind"; got {value!r}.')
        fields = dict(fields)
        return from_dict(self.registry.config(fields.pop("kind")), fields)


@cache
def _adapter(cls: type) -> Any:
    """What reads and writes a class; making one takes milliseconds, and a study has thousands of runs."""
    return TypeAdapter(cls)


def to_dict(config: Any) -> dict[str, Any]:
    """A configuration as JSON-ready values; registered kinds carry their name under "kind"."""
    fields = _adapter(type(config)).dump_python(config, mode="json")
    kind = getattr(config, "kind", None)
    return fields if kind is None else {"kind": kind, **fields}


def from_dict(cls: type[C], fields: Mapping[str, Any]) -> C:
    """Read a configuration back.

    Raises:
        ConfigError: One line naming the first field that is unknown, missing or of the wrong type.
    """
    try:
        return _adapter(cls).validate_python(dict(fields))
    except ValidationError as error:
        first = error.errors()[0]
        broken_rule = first.get("ctx", {}).get("error")
        if isinstance(broken_rule, ConfigError):
            raise broken_rule from None
        where = ".".join([cls.__qualname__, *map(str, first["loc"])])
        raise ConfigError(f"{where}: {first['msg']}; got {first['input']!r}.") from None


def config_hash(*parts: Any) -> str:
    """Twelve hexadecimal digits that name a configuration: SHA-256 of its canonical JSON."""
    values = [to_dict(part) if is_dataclass(part) else part for part in parts]
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def strict_json(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON, with null for numbers that are not finite."""
    return json.dumps(finite(value), indent=indent, allow_nan=False)


def finite(value: Any) -> Any:
    """The value, with None in place of every number in it that is not finite."""
    if isinstance(value, Mapping):
        return {key: finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
