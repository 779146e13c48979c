"""Read, write, compare and hash configurations, which are frozen dataclasses."""

import difflib
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, is_dataclass
from dataclasses import fields as dataclass_fields
from functools import cache, partial
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
from spectrope.core.registry import Registered, Registry

C = TypeVar("C")


class Configured:
    """Base of all configuration dataclasses; reading one with an unknown field is an error.

    Python itself checks no types of fields. Whatever is built from a configuration checks them by `checked`.

    Fields named in `added_later` are written only if they differ from their defaults, so that configurations
    written before they existed keep their text and their hash.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", revalidate_instances="always", allow_inf_nan=False
    )
    added_later: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _written(self, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        written = handler(self)
        for field in dataclass_fields(cast(Any, self)):
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
        return core_schema.no_info_plain_validator_function(
            partial(self.read, base=source), serialization=written
        )

    def read(self, value: Any, base: type = object) -> Any:
        """Turn a name, a `{"kind": ...}` mapping or a dataclass into the dataclass, with checked fields.

        Args:
            value: The name, mapping or dataclass.
            base: Class of which a dataclass must be an instance.
        """
        if is_dataclass(value) and not isinstance(value, type):
            if not isinstance(value, base):
                raise ConfigError(f"{self.registry.what} must be the configuration of one; got {value!r}.")
            return checked(value)
        fields = {"kind": value} if isinstance(value, str) else value
        if not (isinstance(fields, Mapping) and isinstance(fields.get("kind"), str)):
            raise ConfigError(f'{self.registry.what} must be a name, or fields with a "kind"; got {value!r}.')
        fields = dict(fields)
        return from_dict(self.registry.config(fields.pop("kind")), fields)


@cache
def _adapter(cls: type) -> Any:
    """Cached type adapter of a class; building one takes milliseconds, and a study has thousands of runs."""
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
        if first["type"] == "unexpected_keyword_argument" and len(first["loc"]) == 1:
            raise no_such_field(cls, str(first["loc"][0])) from None
        where = ".".join([cls.__qualname__, *map(str, first["loc"])])
        raise ConfigError(f"{where}: {first['msg']}; got {first['input']!r}.") from None


def checked(config: C) -> C:
    """A configuration with fields of the declared types: itself, or a corrected copy.

    Numbers are converted, and names are replaced by the parts that they stand for.

    Raises:
        ConfigError: One line naming the first field of a wrong type, at any depth.
    """
    read = from_dict(type(config), {name: getattr(config, name) for name in _names(config)})
    return config if read == config else read


def no_such_field(cls: type, name: str, names: Iterable[str] | None = None) -> ConfigError:
    """Error for an unknown field name, with the closest existing names.

    Args:
        cls: Its class.
        name: The unknown name.
        names: Names that could be meant (default: the fields of the class).
    """
    known = [field.name for field in dataclass_fields(cast(Any, cls))] if names is None else names
    near = difflib.get_close_matches(name, dict.fromkeys(known), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return ConfigError(f"{cls.__qualname__} has no field {name!r}{hint}")


def with_fields(config: C, changes: Mapping[str, Any]) -> C:
    """Change fields of a configuration, each found by its name at any depth, in an order that rules allow.

    Args:
        config: The configuration, which is not modified.
        changes: New values by name, "learning_rate", or by path, "training.learning_rate". If several fields
            share a name, the least nested one is changed.

    Raises:
        ConfigError: If no field has the name, two at one depth have it, or a value breaks a rule.
    """
    left, refused = dict(changes), dict[str, ConfigError]()
    while left:
        for name, value in sorted(left.items(), key=lambda change: _depth(config, change[0])):
            try:
                config = _changed(config, _path_of(config, name), value)
            except ConfigError as error:  # Another change may make room for this one.
                refused[name] = error
        if refused.keys() == left.keys():
            raise next(iter(refused.values()))
        left, refused = {name: value for name, value in left.items() if name in refused}, {}
    return config


def _depth(config: Any, name: str) -> float:
    """How deep the field is that a name means now: parts are changed before what is in them."""
    try:
        return float(len(_path_of(config, name)))
    except ConfigError:
        return math.inf


def _path_of(config: Any, name: str) -> tuple[str, ...]:
    level: list[tuple[tuple[str, ...], Any]] = [((), config)]
    first, *rest = name.split(".")
    seen: list[str] = []
    while level:
        seen += [inner for _, one in level for inner in _names(one)]
        holders = [path for path, one in level if first in _names(one)]
        if len(holders) > 1:
            choices = " or ".join(repr(".".join((*path, name))) for path in holders)
            raise ConfigError(f"{name!r} could be {choices}; give the whole path.")
        if holders:
            return (*holders[0], first, *rest)
        level = [
            ((*path, inner), getattr(one, inner))
            for path, one in level
            for inner in _names(one)
            if is_dataclass(getattr(one, inner))
        ]
    raise no_such_field(type(config), name, seen)


def _names(config: Any) -> list[str]:
    return [field.name for field in dataclass_fields(config)] if is_dataclass(config) else []


def _changed(config: Any, path: tuple[str, ...], value: Any) -> Any:
    name, *rest = path
    if name not in _names(config):
        raise no_such_field(type(config), name)
    inner = _changed(getattr(config, name), tuple(rest), value) if rest else value
    return from_dict(type(config), {one: getattr(config, one) for one in _names(config)} | {name: inner})


def configured(cls: type[C], config: C | None, fields: Mapping[str, Any]) -> C:
    """Build a configuration from Python arguments: an instance, or its fields.

    Args:
        cls: Class of the configuration.
        config: An instance of it, or None.
        fields: Its fields by name, if there is no instance.

    Raises:
        ConfigError: If both are given, the instance is of another class, or a field is unknown or wrong.
    """
    owner = cls.__qualname__.removesuffix(".Config")
    if config is None:
        return from_dict(cls, fields)
    if isinstance(config, cls) and not fields:
        return checked(config)
    surplus = f"both a configuration and {next(iter(fields))}=" if fields else f"{config!r}"
    names = [one.name for one in dataclass_fields(cast(Any, cls))]
    hint = f" Write {owner}({names[0]}=...)." if names and not is_dataclass(config) and not fields else ""
    raise ConfigError(f"{owner} takes a {cls.__qualname__}, or its fields by name; got {surplus}.{hint}")


def fields_signature(cls: type) -> inspect.Signature:
    """Signature of a class whose arguments `configured` reads: a configuration, or its fields by name."""
    config = inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    shown = [
        parameter.replace(annotation=getattr(parameter.annotation, "__origin__", parameter.annotation))
        if hasattr(parameter.annotation, "__metadata__")
        else parameter
        for parameter in inspect.signature(cls).parameters.values()
    ]
    return inspect.Signature([config, *shown])


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


class FromConfig(Registered):
    """Base of registered classes that are built from their own `Config`, or from its fields."""

    Config: ClassVar[type]

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        """Register the class under `name`; without one it is a base for others.

        Raises:
            TypeError: If it is to be registered with the `Config` of another class.
        """
        if name is not None and "Config" not in cls.__dict__:
            raise TypeError(f"{cls.__qualname__} needs a Config of its own to be registered")
        super().__init_subclass__(name=name, **kwargs)
        cls.__signature__ = fields_signature(cls.Config)
